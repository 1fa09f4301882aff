"""One job with its client, its record and its services; and how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from agent_runtime import AsyncRuntime, Event, Network, Policy, Session, Status, traced
from bot.domain.access import Bounds, Role, commanded_by_workflow, is_app, may_command
from bot.domain.errors import BotError
from bot.domain.job import Actor, Job, JobState
from bot.git.errors import BranchGoneError
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.issues import Reaction
from bot.github.rate_limit import Urgency
from bot.github.types import (
    Annotation,
    BotIdentity,
    CommentFacts,
    GitHubError,
    JobFacts,
    PullFacts,
    PullLink,
    RedCheck,
    RepoFacts,
    ReviewDraft,
    ReviewFacts,
    RunFacts,
    Snapshot,
    Spot,
    thread_is_gone,
)
from bot.jobs.setup import Setup
from bot.jobs.storage import FileJobSessions, JobSessions, KnownConfigs, RunResults, SavedJob
from bot.permissions.levels import Conventions, Refusal, ThreadState
from bot.publishing.markdown import Allowed
from bot.publishing.redact import Redactor
from bot.publishing.render import claimed_job, in_inputs, job_of, marker
from bot.publishing.view import StatusView
from bot.queue.protocols import JobEngine, Ledger, RunHistory, Schedules
from bot.queue.records import StoredRecord

# ---- Services that all jobs share.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """What all jobs share.

    Attributes:
        workspaces: where jobs get their files.
        setup: makes them ready.
        agent: makes the agent of a job.
        bounds: what the operator allows.
        redactor: takes secrets out of whatever leaves.
        trigger: the word that starts a command, for the help.
        server_url: GitHub's address for people and git.
        sandbox: the level the agent's commands run at, for the comment.
        network: what they may reach at most.
        work: keeps what runs come to until it is published, and a while longer when it is not.
        sessions: keeps the sessions of jobs, so that these can wait for people; None where nobody will send an
            answer, as in most workflows' steps.
        comes_back: whether this process, or the next one on its directory, sees jobs through that wait; a workflow's
            step ends with them.
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
    trigger: str
    server_url: str
    sandbox: str
    network: Network
    work: RunResults
    sessions: JobSessions | None
    marker_key: bytes
    comes_back: bool
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
        return marker(job.id, job.repo.id, job.thread.number, key=self.marker_key)

    def status_marker(self, job: Job) -> str:
        """The marker of a job's status comment, which says of work on failed checks that these started it."""
        own = self.marker(job)
        if job.origin.kind != "ci":
            return own
        return own + marker(job.id, job.repo.id, job.thread.number, key=self.marker_key, kind="ci")

    def made(self, pull: PullFacts, job: Job) -> bool:
        """Whether work in the job's thread made a pull request of our own account's, by the mark in its description.

        Workflows of one repository may have different keys, so there the branch must do: only who may write to the
        repository can make one.
        """
        number = job.thread.number
        claimed = claimed_job(pull.body, number, branch=pull.head_ref)
        if claimed is None or not self.comes_back:
            return claimed is not None
        return job_of(pull.body, job.repo.id, number, key=self.marker_key) == claimed

    @property
    def push_pause(self) -> float:
        """Seconds for which the review of a push waits for the next push, which in a workflow has a run of its own."""
        return 2 * self.edit_seconds if self.comes_back else 0.0

    def without_places(self, text: str) -> str:
        """The text without the paths of this machine, which are nobody's business in a thread."""
        for path, name in self.places.items():
            text = text.replace(path, name)
        return text

    def named(self, text: str) -> str:
        """The bot's own words with settings called as the reader knows them: in a workflow, they are inputs."""
        return text if self.can_wait else in_inputs(text)

    def allowed(self, job: Job) -> Allowed:
        """Who and what may be named in a job's comment without being hidden."""
        # Nobody is behind a failed check or a schedule, so nobody is named.
        login = "" if job.origin.kind in {"ci", "recipe"} else job.actor.login
        return Allowed(login=login, number=job.thread.number, server=self.server_url, repo=job.repo.full_name)

    @property
    def checks(self) -> bool:
        """Whether jobs have check runs: where a press of their buttons comes back."""
        return self.comes_back

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


# ---- Reads from GitHub, each question asked once for as long as a phase of a job lasts.


T = TypeVar("T")

_ANNOTATIONS = 20


class PhaseReader:
    """What GitHub says while a job begins, or while it publishes; later decisions use new requests.

    Args:
        github: acts for the job.
    """

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._answers: dict[Hashable, Any] = {}

    def continued_by(self, github: GitHub) -> PhaseReader:
        """The same phase with another client: the one that began it is closed."""
        reader = PhaseReader(github)
        reader._answers = self._answers
        return reader

    async def me(self) -> BotIdentity:
        """See `Accounts.me`."""
        return await self._github.accounts.me()

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        """See `Accounts.role_of`."""
        return await self._once(
            ("role", repo, account_id, login), lambda: self._github.accounts.role_of(repo, account_id, login)
        )

    async def file_at(self, repo: str, path: str) -> bytes | None:
        """A file on the default branch; see `Repos.file_at`."""
        return await self._once(("file", repo, path), lambda: self._github.repos.file_at(repo, path))

    async def comments(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        """See `Comments.of_thread`."""
        return await self._once(("comments", repo, number), lambda: self._github.comments.of_thread(repo, number))

    async def reviews(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        """See `Reviews.of_pull`."""
        return await self._once(("reviews", repo, number), lambda: self._github.reviews.of_pull(repo, number))

    async def failing_checks(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """See `Checks.failing`."""
        return await self._once(("checks", repo, sha), lambda: self._github.checks.failing(repo, sha))

    async def annotations(self, repo: str, check_id: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run."""
        return await self._once(
            ("annotations", repo, check_id), lambda: self._github.checks.annotations(repo, check_id, _ANNOTATIONS)
        )

    async def run(self, repo: str, run_id: int) -> RunFacts:
        """See `Runs.get`."""
        return await self._once(("run", repo, run_id), lambda: self._github.runs.get(repo, run_id))

    async def jobs_of_run(self, repo: str, run_id: int) -> tuple[JobFacts, ...]:
        """See `Runs.jobs`."""
        return await self._once(("jobs", repo, run_id), lambda: self._github.runs.jobs(repo, run_id))

    async def _once(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        if question not in self._answers:
            self._answers[question] = await ask()
        answer: T = self._answers[question]
        return answer


# ---- Everything that permissions are decided by, asked of GitHub now.


class ReplacedRepositoryError(BotError):
    """The repository was deleted, and its name given to another, which is nobody's to answer in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """What GitHub was asked about a job's place: enough to turn away who may not command.

    Attributes:
        snapshot: the repository and the thread.
        roles: of the job's actor, and of the others that count.
        by_workflow: whether a workflow's file is what commands.
        reader: asks GitHub what else this phase of the job needs.
    """

    snapshot: Snapshot
    roles: tuple[Role, ...]
    reader: PhaseReader = field(compare=False)
    by_workflow: bool = False

    @property
    def repo(self) -> RepoFacts:
        """The repository."""
        return self.snapshot.repo

    @property
    def may_command(self) -> bool:
        """Whether everybody who asked may command the bot at all; only who may write can change a workflow's file."""
        return self.by_workflow or all(map(may_command, self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot(AccessCheck):
    """The place a job is about, as GitHub has it now.

    Attributes:
        thread: the issue or pull request.
        labels: the names of its labels.
    """

    thread: ThreadState
    labels: tuple[str, ...]

    @property
    def pull_link(self) -> PullLink | None:
        """The bot's own pull request in which work on an issue continues."""
        number = self.thread.continues
        return PullLink(number=number, html_url=f"{self.repo.html_url}/pull/{number}") if number else None


async def check_access(github: GitHub, job: Job, *, bounds: Bounds) -> AccessCheck:
    """See where a job is about, and who asks. Two requests: strangers can make the bot come as often as they comment.

    Args:
        github: acts for the job.
        job: the job.
        bounds: which bots and people may command at all; others have no rights here.

    Raises:
        ReplacedRepositoryError: the name belongs to another repository now.
        GitHubError: something could not be found out, which nobody may take for a yes.
    """
    name = job.repo.full_name
    place = job.thread
    asking = (
        github.threads.branch_snapshot(name, place.branch)
        if place.branch
        else github.threads.snapshot(name, place.number)
    )
    snapshot = await asking
    if snapshot.repo.id != job.repo.id:
        raise ReplacedRepositoryError(f"{name} is no longer the repository for which the command was given.")
    reader, people = PhaseReader(github), (job.actor, *job.others)
    roles = tuple([await _role(reader, snapshot.repo.full_name, job, each, bounds) for each in people])
    return AccessCheck(snapshot=snapshot, roles=roles, reader=reader, by_workflow=commanded_by_workflow(job))


def fetch_snapshot(job: Job, access: AccessCheck) -> ThreadSnapshot:
    """Look at the thread, or at the branch, too.

    Raises:
        GitHubError: it is gone.
    """
    repo, thread, pull = access.repo, access.snapshot.thread, access.snapshot.pull
    head: tuple[str, str, int | None, str]
    if job.thread.kind == "branch":  # it has no thread, which somebody could close or lock
        thread, branch = None, job.thread.branch
        head = (access.snapshot.branch_head or "", branch, repo.id, branch)
    elif thread is None or (job.thread.kind == "pull" and pull is None):
        raise thread_is_gone(repo.full_name, job.thread.number)
    elif pull is not None:
        head = (pull.head_sha, pull.head_ref, pull.head_repo_id, pull.base_ref)
    else:
        head = (access.snapshot.default_head or "", repo.default_branch, repo.id, repo.default_branch)
    return ThreadSnapshot(
        snapshot=access.snapshot,
        labels=thread.labels if thread is not None else (),
        roles=access.roles,
        reader=access.reader,
        by_workflow=access.by_workflow,
        thread=ThreadState(
            default_branch=repo.default_branch,
            head_sha=head[0],
            head_ref=head[1],
            head_repo_id=head[2],
            base_ref=head[3],
            is_open=thread is None or thread.state == "open",
            locked=thread is not None and thread.locked,
            archived=repo.archived,
            private=repo.private,
            author_id=thread.author_id if thread is not None else None,
        ),
    )


async def head_of(github: GitHub, here: ThreadSnapshot, branch: str) -> str:
    """The commit that a branch stands at.

    Raises:
        BranchGoneError: there is no such branch.
        GitHubError: it could not be found out.
    """
    seen = here.snapshot
    if seen.pull is not None and seen.pull.base_ref == branch:
        sha = seen.base_head
    else:
        sha = await github.repos.branch_head(here.repo.full_name, branch)
    if sha is None:
        raise BranchGoneError(
            f"The branch `{branch}`, which the work is for, does not exist.", "Choose another and try again."
        )
    return sha


async def _role(reader: PhaseReader, repo: str, job: Job, who: Actor, bounds: Bounds) -> Role:
    """What somebody may do, as far as the bot listens to them.

    CI that runs on the bot's own push has the bot for its actor; that push was somebody's wish. Of other Apps GitHub
    does not say what they may do in a repository, so the operator's word counts.
    """
    if job.origin.kind in {"workflow", "recipe"} and job.origin.vouched:
        return "write"
    if bounds.trusted_bots.hold(who.id, who.login):
        return "write" if is_app(who.login) else await reader.role_of(repo, who.id, who.login)
    if is_app(who.login):
        return "write" if job.origin.kind == "ci" and who.id == (await reader.me()).id else "none"
    return await reader.role_of(repo, who.id, who.login) if bounds.hears(who.login) else "none"


# ---- Hand the snapshot of the acknowledgement to the worker that starts the job right after.


FRESH_SECONDS = 15.0
"""Older answers are requested again. All are requested again before anything is published."""


class AccessChecks:
    """What was asked about jobs that are about to begin; each is given out once.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, AccessCheck]] = {}

    def keep(self, job_id: str, access: AccessCheck) -> None:
        """Keep what was asked just now."""
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] <= FRESH_SECONDS}
        self._kept[job_id] = now, access

    def take(self, job_id: str, github: GitHub) -> AccessCheck | None:
        """What was asked about a job, if that was just now; `github` goes on asking."""
        at, access = self._kept.pop(job_id, (0.0, None))
        if access is None or self._clock() - at > FRESH_SECONDS:
            return None
        return replace(access, reader=access.reader.continued_by(github))


# ---- The phase of its job that an attempt is in, as a span.


Phase = Literal["admit", "prepare", "run", "publish"]


class Phases:
    """A phase lasts until the next one begins, or the body ends; all of it in one task."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._open = ExitStack()

    def begin(self, phase: Phase) -> None:
        """End the phase before; go on with the same one."""
        if phase != self._phase:
            self._open.close()
            self._phase = phase
            self._open.enter_context(traced(phase, {"codepilot.phase": phase}))

    def __enter__(self) -> Self:
        """Begin; there is no phase yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the last phase."""
        self._open.__exit__(kind, error, trace)


log = logging.getLogger(__name__)


def spot_of(job: Job) -> Spot:
    """Where the job is answered: in the thread about the lines that it came from, else below the issue."""
    if job.origin.kind == "review_comment":
        return Spot(kind="review_thread", number=job.thread.number, root=job.origin.root or job.origin.id)
    return Spot(kind="thread", number=job.thread.number)


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
                record=StoredRecord(self.queue, job.id),
                access_checks=self.access_checks,
                marker=self.services.marker(job),
            )
            with context.phases:
                yield context


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One job with all that is needed to run it.

    Attributes:
        job: the job.
        services: what all jobs share.
        github: the client that may act for it.
        queue: where it came from, and the other jobs of its thread are.
        ledger: what is kept of threads beside their jobs.
        record: what this job has done so far.
        access_checks: what was asked of GitHub for jobs that are about to begin.
        marker: the signed mark of its comment.
        phases: what is being done for it.
    """

    job: Job
    services: JobServices
    github: GitHub
    queue: JobEngine
    ledger: Ledger
    record: StoredRecord
    access_checks: AccessChecks
    marker: str
    phases: Phases = field(default_factory=Phases)

    @property
    def spot(self) -> Spot:
        """Where in the thread the job is answered."""
        return spot_of(self.job)

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer what a run asks: in a thread, to a bot that is still there then."""
        return self.services.can_wait and self.job.thread.has_comments

    @property
    def kept(self) -> str:
        """Where the patch of work that was not published is, for the comment."""
        if not self.services.comes_back:
            return "The patch is in the summary of this workflow run."
        where = "attached to the check run, and " if self.services.checks else ""
        return (
            f"The patch is {where}stored by the operator for {self.services.keep_days} days, as `{self.job.id}.patch`."
        )

    def about(self, other: Job) -> JobContext:
        """Another job, with the client of this one."""
        return replace(self, job=other, record=self.of(other), marker=self.services.marker(other))

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
            await self.ledger.drop_label(repo.id, number, name)
            try:
                await self.github.threads.remove_label(repo.full_name, number, name)
            except GitHubError as error:
                log.warning("the label %s was not removed: %s", name, error)

    async def refuse(self, refusal: Refusal) -> Ending:
        """Refuse the request: in one short reply, at most once per cause and hour in a thread; else by a reaction."""
        which = sha256(refusal.because.encode()).hexdigest()[:16] if refusal.because else ""  # it may be long
        told = (self.job.repo.id, self.job.thread.key, f"{refusal.cause} {which}".rstrip())
        await self.void(refusal.voided)
        silent = refusal.silent or self.job.is_unasked
        if silent and self.job.origin.kind == "description":
            # A template may hold the command, and put it into every stranger's issue.
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        if silent or not await self.ledger.may_tell(*told, by=self.job.id):
            await self.react("confused")
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        view = ShortReply(text=refusal.reason, refused=True)
        return Ending(state=JobState.REFUSED, reason=refusal.reason, view=view)
