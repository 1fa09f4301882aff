"""The job's context: its services, its client of GitHub, its record; and how it ended.

`JobServices` are what all jobs share; a `JobContextFactory` adds what belongs to one job. An `Ending` is the result of
every path through the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal
from weakref import WeakValueDictionary

from agent_runtime import AsyncRuntime, Event, Network, Policy, Session, SessionError, Status, traced
from bot.domain.access import Bounds
from bot.domain.errors import QueueError
from bot.domain.job import Job, JobState
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.issues import Reaction
from bot.github.rate_limit import Urgency
from bot.github.types import GitHubError, PullFacts, ReviewDraft, Spot
from bot.jobs.access import AccessChecks
from bot.jobs.setup import Setup
from bot.jobs.storage import FileJobSessions, JobSessions, RunResults, SavedJob
from bot.permissions.levels import Conventions, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import Allowlist
from bot.publishing.redact import Redactor
from bot.publishing.render import claimed_job_id, settings_to_inputs, sign_marker, signed_job
from bot.publishing.status_view import StatusView, build_log, pack_log, prepend_attempts, unpack_log
from bot.queue.protocols import JobEngine, Ledger, RunHistory, Schedules
from bot.queue.records import StoredRecord

log = logging.getLogger(__name__)
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What the agent of one job is to be like.

    Attributes:
        work_dir: where it works.
        policy: what it may call and spend.
        tools: what it has.
        model: which model works.
        network: what its commands may reach.
        instructions: texts of the repository's maintainers, by the file that they are from.
        skills: the `SKILL.md` files of the base branch, by path.
        session: the log of its run; None keeps nothing.
        start_in: the directory below `work_dir` in which its commands start; empty for that itself.
        kept_index: a file for the code index that the jobs of its repository share.
        servers: the operator's MCP servers whose tools it has, by name.
    """

    work_dir: Path
    policy: Policy
    tools: tuple[str, ...]
    model: str
    network: Network
    instructions: Mapping[str, str]
    session: Session | None
    skills: Mapping[str, str] = field(default_factory=dict)
    start_in: str = ""
    kept_index: Path | None = None
    servers: tuple[str, ...] = ()


AgentMaker = Callable[[AgentSpec, Sequence[Listener]], AsyncRuntime]
"""Makes a ready agent, whose listeners receive every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """How the steps of workflow runs leave jobs that wait for people to each other.

    Attributes:
        key: seals them; the same in every run of the repository's workflows, and unknown to those of forks.
        folder: where a sealed job is put, for the action to upload.
        sessions: where the sessions of this step are.
        name: of the artifact to go on from; empty for that of the thread.
        plain: whether GitHub's addresses have no TLS, as those of a hub on this machine.
        saved: the jobs that this step resumes, by their ids.
        claimed: the ids of those whose comments say so.
    """

    key: bytes
    folder: Path
    sessions: FileJobSessions
    name: str = ""
    plain: bool = False
    saved: dict[str, SavedJob] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)

    def name_for(self, job: Job) -> str:
        """The artifact of what waits in a job's thread."""
        return self.name or artifact_name(job)


def artifact_name(job: Job) -> str:
    """What the artifact is called that keeps a waiting job: who answers knows no more than the thread."""
    return f"codepilot-session-{job.thread.number}"


CONFIG_SECONDS = 60.0
"""For how long what a repository's file said is taken for what it says now."""
_MOST_REPOSITORIES = 10_000


class KnownConfigs:
    """What the files of repositories said when somebody last looked, for a short while.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[int, tuple[float, RepoConfig]] = OrderedDict()
        self._reading: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def learn(self, repo_id: int, config: RepoConfig) -> None:
        """Keep what was just read on the default branch."""
        self._known[repo_id] = (self._clock() + CONFIG_SECONDS, config)
        self._known.move_to_end(repo_id)
        if len(self._known) > _MOST_REPOSITORIES:
            self._known.popitem(last=False)

    def reading(self, repo_id: int) -> asyncio.Lock:
        """Held while somebody reads a repository's files, so that events that come at once ask GitHub once."""
        return self._reading.setdefault(repo_id, asyncio.Lock())

    def of(self, repo_id: int) -> RepoConfig | None:
        """What it says; None when nobody has looked lately."""
        until, config = self._known.get(repo_id, (0.0, None))
        return config if self._clock() < until else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """What all jobs share.

    Attributes:
        workspaces: where jobs get their files.
        setup: makes them ready.
        agent: makes the agent of a job.
        bounds: what the operator allows.
        redactor: takes secrets out of whatever leaves.
        server_url: GitHub's address for people and git.
        sandbox: the level the agent's commands run at, for the comment.
        network: what they may reach at most.
        work: keeps what runs come to until it is published, and a while longer when it is not.
        sessions: keeps the sessions of jobs, so that these can wait for people; None where nobody will send an
            answer, as in most workflows' steps.
        is_long_running: whether this process, or the next one on its directory, sees jobs through that wait, and gets
            the presses of buttons in check runs; a workflow's step ends with its jobs and makes no check runs.
        handover: how a workflow's step leaves jobs that wait to later ones; None elsewhere, and where it does not.
        marker_key: signs the marks in comments.
        pictures: whether models that see are shown the pictures of threads.
        keep_days: how long the patches of work that was not published are kept.
        edit_seconds: between two edits of a status comment.
        model_patience: seconds for which a job waits for a model service that is down.
        ci_note: what the comment says of a push that starts no workflow; empty where pushes do.
        run_url: the page of the workflow's run, where the bot is a step of one; else empty.
        listeners: called with every event of every run, e.g. the demo's terminal.
        places: directories of this machine, and what comments call them.
        conventions: how jobs name and place things.
        ca_file: certificate authorities of the operator's own, for what GitHub names on other hosts.
        schedules: when recipes are due; None where nothing runs them, as in a workflow's step.
        configs: what repositories ask for on their default branches, as far as somebody has looked lately.
        history: keeps the logs of runs for the dashboard; None where there is none.
    """

    workspaces: Workspaces
    setup: Setup
    agent: AgentMaker
    bounds: Bounds
    redactor: Redactor
    server_url: str
    sandbox: str
    network: Network
    work: RunResults
    sessions: JobSessions | None
    marker_key: bytes
    is_long_running: bool
    pictures: bool
    keep_days: int
    edit_seconds: float
    model_patience: float = 0.0
    ci_note: str = ""
    run_url: str = ""
    handover: Handover | None = None
    listeners: tuple[Listener, ...] = ()
    schedules: Schedules | None = None
    configs: KnownConfigs = field(default_factory=KnownConfigs)
    places: Mapping[str, str] = field(default_factory=dict)
    conventions: Conventions = field(default_factory=Conventions)
    ca_file: Path | None = None
    history: RunHistory | None = None

    def marker(self, job: Job) -> str:
        """The signed mark of a job's comment."""
        return sign_marker(job.id, job.repo.id, job.thread.number, key=self.marker_key)

    def status_marker(self, job: Job) -> str:
        """The marker of a job's status comment, which says of work on failed checks that these started it."""
        own = self.marker(job)
        if job.origin.kind != "ci":
            return own
        return own + sign_marker(job.id, job.repo.id, job.thread.number, key=self.marker_key, kind="ci")

    def made(self, pull: PullFacts, job: Job) -> bool:
        """Whether work in the job's thread made a pull request of our own account's, by the mark in its description.

        Workflows of one repository may have different keys, so there the branch must do: only who may write to the
        repository can make one.
        """
        number = job.thread.number
        claimed = claimed_job_id(pull.body, number, branch=pull.head_ref)
        if claimed is None or not self.is_long_running:
            return claimed is not None
        return signed_job(pull.body, job.repo.id, number, key=self.marker_key) == claimed

    @property
    def push_pause(self) -> float:
        """Seconds for which the review of a push waits for the next push, which in a workflow has a run of its own."""
        return 2 * self.edit_seconds if self.is_long_running else 0.0

    def strip_local_paths(self, text: str) -> str:
        """The text without the paths of this machine, which are nobody's business in a thread."""
        for path, name in self.places.items():
            text = text.replace(path, name)
        return text

    def rename_settings_to_inputs(self, text: str) -> str:
        """The bot's own words with settings called as the reader knows them: in a workflow, they are inputs."""
        return text if self.can_wait else settings_to_inputs(text)

    def allowed(self, job: Job) -> Allowlist:
        """Who and what may be named in a job's comment without being hidden."""
        # Nobody is behind a failed check or a schedule, so nobody is named.
        login = "" if job.origin.kind in {"ci", "recipe"} else job.actor.login
        return Allowlist(login=login, number=job.thread.number, server=self.server_url, repo=job.repo.full_name)

    @property
    def can_wait(self) -> bool:
        """Whether a job can wait for a person; else whatever would need one is denied, and the job goes on."""
        return self.sessions is not None

    def has_session(self, job: Job) -> bool:
        """Whether an attempt at the job has left a session. It may block, and raise `SessionError`."""
        return self.sessions is not None and self.sessions.has(job.id)

    def session_events(self, job: Job) -> Sequence[Event]:
        """What the session of a job has recorded; nothing without one. It may block, and raise `SessionError`."""
        return () if self.sessions is None else self.sessions.events(job.id)

    def forget_session(self, job: Job) -> None:
        """Drop the session of a job that needs it no more. It may block, and raise `SessionError`."""
        if self.sessions is not None:
            self.sessions.forget(job.id)

    async def keep_log(self, job: Job) -> None:
        """Keep the log of a job's run for the dashboard, before its session is dropped; no job fails for that."""
        if self.history is None:
            return

        def packed(before: bytes | None) -> tuple[bytes, float | None] | None:
            events = self.session_events(job)
            told = build_log(events, lambda text: self.strip_local_paths(self.redactor.redact(text)))
            found = prepend_attempts(told, None if before is None else unpack_log(before))
            return (pack_log(found), found.usage.cost_usd) if events else None

        try:
            kept = await asyncio.to_thread(packed, await self.history.load_log(job.id))
            if kept is not None:
                await self.history.save_log(job, kept[0], cost_usd=kept[1])
        except (SessionError, QueueError) as error:
            log.warning("the log of the run is not kept for the dashboard: %s", error)
        except Exception:  # also where a job is given up for a fault of ours, which may be this one
            log.exception("the log of the run is not kept for the dashboard")


Phase = Literal["admit", "prepare", "run", "publish"]


class Phases(ExitStack):
    """A phase lasts until the next one begins, or the body ends; all of it in one task."""

    _phase: Phase | None = None

    def begin(self, phase: Phase) -> None:
        """End the phase before; go on with the same one."""
        if phase != self._phase:
            self.close()
            self._phase = phase
            self.enter_context(traced(phase, {"codepilot.phase": phase}))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One job with all that is needed to run it.

    Attributes:
        job: the job.
        services: what all jobs share.
        github: the client that may act for it.
        queue: where it came from, and the other jobs of its thread are.
        ledger: what is kept of threads beside their jobs.
        access_checks: what was asked of GitHub for jobs that are about to begin.
        marker: the signed mark of its comment.
        phases: what is being done for it.
    """

    job: Job
    services: JobServices
    github: GitHub
    queue: JobEngine
    ledger: Ledger
    access_checks: AccessChecks
    marker: str
    phases: Phases = field(default_factory=Phases)

    @property
    def spot(self) -> Spot:
        """Where in the thread the job is answered."""
        return spot_of(self.job)

    @property
    def record(self) -> StoredRecord:
        """The job's progress so far."""
        return self.of(self.job)

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer what a run asks: in a thread, to a bot that is still there then."""
        return self.services.can_wait and self.job.thread.has_comments

    @property
    def kept(self) -> str:
        """Where the patch of work that was not published is, for the comment."""
        if not self.services.is_long_running:
            return "The patch is in the summary of this workflow run."
        days, name = self.services.keep_days, f"{self.job.id}.patch"
        return f"The patch is attached to the check run, and stored by the operator for {days} days, as `{name}`."

    def about(self, other: Job) -> JobContext:
        """Another job, with the client of this one."""
        return replace(self, job=other, marker=self.services.marker(other))

    def of(self, other: Job) -> StoredRecord:
        """What another job has done so far."""
        return StoredRecord(self.queue, other.id)

    async def react(self, content: Reaction) -> bool:
        """Answer the command with a reaction. It may be deleted by now; no job fails, and nobody is told, for that.

        Returns:
            Whether it is there, or there is nothing to react to.
        """
        origin = self.job.origin
        if origin.kind not in {"comment", "review_comment", "description"}:
            return True
        try:
            await self.github.comments.react(self.job.repo.full_name, self.spot, origin.id, content)
        except GitHubError as error:
            log.warning("no reaction: %s", error)
            return False
        return True

    async def void(self, names: Iterable[str]) -> None:
        """Take labels off that count no more; they raise nothing, whether GitHub does it or not."""
        repo, number = self.job.repo, self.job.thread.number
        for name in names:
            await self.ledger.delete_label(repo.id, number, name)
            try:
                await self.github.threads.remove_label(repo.full_name, number, name)
            except GitHubError as error:
                log.warning("the label %s was not removed: %s", name, error)

    async def refuse(self, refusal: Refusal) -> Ending:
        """Refuse the request: in one short reply, at most once per cause and hour in a thread; else by a reaction."""
        which = sha256(refusal.variant.encode()).hexdigest()[:16] if refusal.variant else ""  # it may be long
        told = (self.job.repo.id, self.job.thread.key, f"{refusal.cause} {which}".rstrip())
        await self.void(refusal.voided)
        silent = refusal.silent or self.job.is_from_event
        if silent and self.job.origin.kind == "description":
            # A template may hold the command, and put it into every stranger's issue.
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        if silent or not await self.ledger.claim_notice(*told, by=self.job.id):
            await self.react("confused")
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        view = ShortReply(text=refusal.reason, refused=True)
        return Ending(state=JobState.REFUSED, reason=refusal.reason, view=view)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContextFactory:
    """Makes the context of each job from what all jobs have in common.

    Attributes:
        services: what all jobs share.
        queue: where they come from.
        ledger: what is kept of threads beside their jobs.
        github_for: the client that may act for a job.
        access_checks: what was asked of GitHub for jobs that are about to begin.
        ended: told how each job ended, or that it waits, before people are.
    """

    services: JobServices
    queue: JobEngine
    ledger: Ledger
    github_for: Callable[[Job], GitHub]
    access_checks: AccessChecks = field(default_factory=AccessChecks)
    ended: Callable[[Ending], None] = lambda _ending: None

    @asynccontextmanager
    async def opened(self, job: Job) -> AsyncIterator[JobContext]:
        """The context of a job, with a client that acts for it until the body ends."""
        async with self.github_for(job) as github:
            if job.lane == "steer":
                github.hurry(Urgency.ANSWER)
            context = JobContext(
                job=job,
                services=self.services,
                github=github,
                queue=self.queue,
                ledger=self.ledger,
                access_checks=self.access_checks,
                marker=self.services.marker(job),
            )
            with context.phases:
                yield context


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortReply:
    """A short answer in a comment of its own.

    Attributes:
        text: Markdown; rendering makes it harmless.
        refused: whether it says no.
    """

    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended, or that it waits now; no view for what nobody is to be told in words.

    Attributes:
        state: the state it goes to.
        reason: why, for the queue and the log.
        view: what its comment says.
        until: for `WAITING`: when it is too late to answer, or when the job is tried again, in seconds since the epoch.
        request_id: for `WAITING`: the request that somebody has to answer; empty when the job waits for the model.
        status: how the agent's run ended, when there was one.
        patch: the change that was not published, when there is one.
        partial: whether that is only what was left out of what was published.
        review: the comments on lines that were made.
        proven: whether the asker is known to have access; else nobody is told before that is.
        misconfigured: whether it failed for a permission that the bot does not have.
        output_json: the result that fits the operator's output schema, as compact JSON, where one was asked for.
    """

    state: JobState
    reason: str = ""
    view: StatusView | ShortReply | None = None
    until: float = 0.0
    request_id: str = ""
    status: Status | None = None
    patch: str = ""
    partial: bool = False
    review: ReviewDraft | None = None
    proven: bool = True
    misconfigured: bool = False
    output_json: str = ""


def spot_of(job: Job) -> Spot:
    """Where the job is answered: in the thread about the lines that it came from, else below the issue."""
    if job.origin.kind == "review_comment":
        return Spot(kind="review_thread", number=job.thread.number, root=job.origin.root or job.origin.id)
    return Spot(kind="thread", number=job.thread.number)
