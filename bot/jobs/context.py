"""Services that all jobs share (`JobServices`), and the context of one job (`JobContext`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from weakref import WeakValueDictionary

from agent_runtime import AsyncRuntime, Event, Network, Policy, Session, SessionError, Usage
from bot.domain.access import Bounds
from bot.domain.commands import CommentMode
from bot.domain.errors import QueueError
from bot.domain.grammar import Place
from bot.domain.job import Job
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.issues import Reaction
from bot.github.rate_limit import Urgency
from bot.github.types import CommentTarget, GitHubError, PullFacts, RepoFacts
from bot.jobs.access import AccessChecks
from bot.jobs.faults import is_patience_over
from bot.jobs.posts import StatusComment, reply_target
from bot.jobs.record import StoredRecord
from bot.jobs.setup import Setup
from bot.jobs.stamps import Stamps
from bot.jobs.state import RunState
from bot.jobs.storage import FileJobSessions, JobSessions, RunResults, SavedJob
from bot.permissions.levels import Conventions, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import Allowlist
from bot.publishing.markers import claimed_job_id, sign_marker, signed_job
from bot.publishing.outcome import Published, Refused
from bot.publishing.plan import Publication
from bot.publishing.publish import Target, publish
from bot.publishing.redact import Redactor
from bot.publishing.render import settings_to_inputs
from bot.publishing.status_view import StatusView, build_log, pack_log, prepend_attempts, unpack_log
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import JobEngine, Ledger, RunHistory, Schedules, Spending

log = logging.getLogger(__name__)
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The configuration of one job's agent.

    Attributes:
        session: None records nothing.
        start_in: working directory of commands, relative to `work_dir`.
        attended: whether a user can answer the run.
        readable: host directories that the sandbox shows, by their paths there.
        excuses_failures: whether tests that fail before the agent begins do not count against it.
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
    index_file: Path | None = None
    attended: bool = True
    servers: tuple[str, ...] = ()
    readable: Mapping[str, Path] = field(default_factory=dict)
    excuses_failures: bool = False


AgentFactory = Callable[[AgentSpec, Sequence[Listener]], AsyncRuntime]
"""Factory of an agent whose listeners receive every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResume:
    """Resumption of waiting jobs across workflow runs.

    Attributes:
        key: encrypts saved jobs; the same in all runs of the repository's workflows, and unknown to forks.
        engine: the queue of this run.
        folder: for the action to upload.
        name: of the artifact to resume; empty for the thread's.
        plain: whether GitHub's URLs have no TLS, as with a local hub.
        claimed: ids of jobs whose comments show the answer.
    """

    key: bytes
    engine: InMemoryEngine
    folder: Path
    sessions: FileJobSessions
    name: str = ""
    plain: bool = False
    saved: dict[str, SavedJob] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)

    def name_for(self, job: Job) -> str:
        return self.name or artifact_name(job)


def artifact_name(job: Job) -> str:
    return f"codepilot-session-{job.thread.number}"


CONFIG_SECONDS = 60.0
"""Lifetime of a cached configuration."""
_MAX_REPOSITORIES = 10_000


class ConfigCache:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._configs: OrderedDict[int, tuple[float, RepoConfig]] = OrderedDict()
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def put(self, repo_id: int, config: RepoConfig) -> None:
        self._configs[repo_id] = (self._clock() + CONFIG_SECONDS, config)
        self._configs.move_to_end(repo_id)
        if len(self._configs) > _MAX_REPOSITORIES:
            self._configs.popitem(last=False)

    def lock(self, repo_id: int) -> asyncio.Lock:
        """Return the repository's lock, so that simultaneous events share one request."""
        return self._locks.setdefault(repo_id, asyncio.Lock())

    def get(self, repo_id: int) -> RepoConfig | None:
        until, config = self._configs.get(repo_id, (0.0, None))
        return config if self._clock() < until else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """The services that all jobs share.

    Attributes:
        sessions: None if no job can wait for a user, as in most workflow steps.
        is_long_running: whether waiting jobs resume and check run events arrive; false in a workflow step.
        handover: None outside of workflow steps that can wait.
        stamps: None outside of workflow steps, and without a secret that later runs have.
        edit_seconds: between edits of a status comment.
        model_patience: seconds to wait for an unavailable model.
        places: names of local directories, for comments.
        schedules: None in a workflow step; likewise `spending`.
    """

    workspaces: Workspaces
    setup: Setup
    agent: AgentFactory
    bounds: Bounds
    redactor: Redactor
    server_url: str
    work: RunResults
    sessions: JobSessions | None
    marker_key: bytes
    is_long_running: bool
    pictures: bool
    keep_days: int
    edit_seconds: float
    model_patience: float = 0.0
    run_url: str = ""
    handover: WorkflowResume | None = None
    stamps: Stamps | None = None
    listeners: tuple[Listener, ...] = ()
    schedules: Schedules | None = None
    configs: ConfigCache = field(default_factory=ConfigCache)
    places: Mapping[str, str] = field(default_factory=dict)
    conventions: Conventions = field(default_factory=Conventions)
    ca_file: Path | None = None
    history: RunHistory | None = None
    spending: Spending | None = None

    def marker(self, job: Job) -> str:
        return sign_marker(job.id, job.repo.id, job.thread.number, key=self.marker_key)

    def status_marker(self, job: Job) -> str:
        """Return the marker of a status comment, which also marks fixes of failed checks."""
        own = self.marker(job)
        if job.origin.kind != "ci":
            return own
        return own + sign_marker(job.id, job.repo.id, job.thread.number, key=self.marker_key, kind="ci")

    def is_own(self, pull: PullFacts, job: Job) -> bool:
        """Whether a job of the thread opened a pull request, according to its marker.

        Workflows of one repository may have different keys. There the branch decides: only writers can create one.
        """
        number = job.thread.number
        claimed = claimed_job_id(pull.body, number, branch=pull.head_ref)
        if claimed is None or not self.is_long_running:
            return claimed is not None
        return signed_job(pull.body, job.repo.id, number, key=self.marker_key) == claimed

    @property
    def push_pause(self) -> float:
        """Seconds that a review of a push waits for another push; 0 in a workflow (one run per push)."""
        return 2 * self.edit_seconds if self.is_long_running else 0.0

    def strip_local_paths(self, text: str) -> str:
        for path, name in self.places.items():
            text = text.replace(path, name)
        return text

    def rename_settings_to_inputs(self, text: str) -> str:
        return text if self.is_long_running else settings_to_inputs(text)

    def allowed(self, job: Job) -> Allowlist:
        # Nobody is behind a failed check or a schedule, so nobody is named.
        is_automatic = job.origin.kind in {"ci", "recipe"} or (job.origin.kind == "event" and job.origin.vouched)
        login = "" if is_automatic else job.actor.login
        return Allowlist(login=login, number=job.thread.number, server=self.server_url, repo=job.repo.full_name)

    @property
    def can_wait(self) -> bool:
        return self.sessions is not None

    @property
    def place(self) -> Place:
        if self.is_long_running:
            return "app"
        if self.stamps is None:
            return "workflow without a key"
        return "workflow" if self.handover is None else "workflow with approvals"

    def has_session(self, job: Job) -> bool:
        """Whether the job has a session. May block, and raise `SessionError`, as the other session methods."""
        return self.sessions is not None and self.sessions.has(job.id)

    def session_events(self, job: Job) -> Sequence[Event]:
        return () if self.sessions is None else self.sessions.events(job.id)

    def forget_session(self, job: Job) -> None:
        if self.sessions is not None:
            self.sessions.forget(job.id)

    async def store_log(self, job: Job) -> None:
        """Store the log of a run for the dashboard; a failure is only logged."""
        if self.history is None:
            return

        def packed(earlier: bytes | None) -> tuple[bytes, Usage] | None:
            events = self.session_events(job)
            entries = build_log(events, lambda text: self.strip_local_paths(self.redactor.redact(text)))
            merged = prepend_attempts(entries, None if earlier is None else unpack_log(earlier))
            return (pack_log(merged), merged.usage) if events else None

        try:
            stored = await asyncio.to_thread(packed, await self.history.load_log(job.id))
            if stored is not None:
                await self.history.save_log(job, *stored)
        except (SessionError, QueueError) as error:
            log.warning("the log of the run is not kept for the dashboard: %s", error)
        except Exception:  # also where a job is given up for a fault of ours, which may be this one
            log.exception("the log of the run is not kept for the dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One job with its client and services."""

    job: Job
    services: JobServices
    github: GitHub
    queue: JobEngine
    ledger: Ledger
    access_checks: AccessChecks
    marker: str
    state: RunState

    @property
    def reply_target(self) -> CommentTarget:
        return reply_target(self.job)

    @property
    def record(self) -> StoredRecord:
        return self.state.record

    @property
    def branch_prefix(self) -> str:
        return self.state.branch_prefix or self.services.conventions.branch_prefix

    @property
    def can_ask(self) -> bool:
        """Whether a user can answer the run, now or later."""
        return self.services.can_wait and self.job.thread.has_comments and self.comment_mode != "never"

    @property
    def comment_mode(self) -> CommentMode:
        return comment_mode_of(self.job, self.services)

    @property
    def patch_note(self) -> str:
        if not self.services.is_long_running:
            return "The patch is in the summary of this workflow run."
        days, name = self.services.keep_days, f"{self.job.id}.patch"
        return f"The patch is attached to the check run, and stored by the operator for {days} days, as `{name}`."

    def for_job(self, job: Job) -> JobContext:
        marker = self.services.marker(job)
        return replace(
            self,
            job=job,
            marker=marker,
            state=new_state(self.github, self.queue, job, self.services),
        )

    def record_of(self, job: Job) -> StoredRecord:
        return StoredRecord(self.queue, job.id)

    async def react(self, content: Reaction) -> bool:
        """React to the command; return True if the reaction exists or there is no comment. A failure is only logged."""
        origin = self.job.origin
        if self.comment_mode == "never" or origin.kind not in {"comment", "review_comment", "description"}:
            return True
        try:
            await self.github.comments.react(self.job.repo.full_name, self.reply_target, origin.id, content)
        except GitHubError as error:
            log.warning("no reaction: %s", error)
            return False
        return True

    async def remove_labels(self, names: Iterable[str]) -> None:
        """Remove labels that no longer count; a failure is only logged."""
        repo, number = self.job.repo, self.job.thread.number
        for name in names:
            await self.ledger.delete_label(repo.id, number, name)
            try:
                await self.github.threads.remove_label(repo.full_name, number, name)
            except GitHubError as error:
                log.warning("the label %s was not removed: %s", name, error)

    async def publish(
        self, publication: Publication, repo: RepoFacts, pusher: Tree, *, dry_run: bool, replay: bool = False
    ) -> Published:
        return await publish(
            self.github,
            self.record.published,
            publication,
            job=self.job,
            target=Target(repo=repo, branch_prefix=self.branch_prefix),
            pusher=pusher,
            redactor=self.services.redactor,
            replay=replay,
            dry_run=dry_run,
            last_try=is_patience_over(await self.record.read()),
        )

    async def refuse(self, refusal: Refusal) -> Refused:
        """Refuse the job: reply once per cause and hour in a thread, else react."""
        digest = sha256(refusal.variant.encode()).hexdigest()[:16] if refusal.variant else ""  # it may be long
        notice = (self.job.repo.id, self.job.thread.key, f"{refusal.cause} {digest}".rstrip())
        await self.remove_labels(refusal.voided)
        silent = refusal.silent or self.job.is_from_event
        if silent and self.job.origin.kind == "description":
            # A template may hold the command, and put it into every stranger's issue.
            return Refused(reason=refusal.reason, is_silent=True)
        if silent or not await self.ledger.claim_notice(*notice, by=self.job.id):
            await self.react("confused")
            return Refused(reason=refusal.reason, is_silent=True)
        return Refused(reason=refusal.reason, reply=f"🚫 {refusal.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContextFactory:
    """Build the context of each job; `on_view` is called with the view of each outcome before it is reported."""

    services: JobServices
    queue: JobEngine
    ledger: Ledger
    github_for: Callable[[Job], GitHub]
    access_checks: AccessChecks = field(default_factory=AccessChecks)
    on_view: Callable[[StatusView], None] = lambda _view: None

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[JobContext]:
        async with self.github_for(job) as github:
            if job.lane == "steer":
                github.raise_priority(Urgency.CONTROL)
            marker = self.services.marker(job)
            context = JobContext(
                job=job,
                services=self.services,
                github=github,
                queue=self.queue,
                ledger=self.ledger,
                access_checks=self.access_checks,
                marker=marker,
                state=new_state(github, self.queue, job, self.services),
            )
            with context.state.phases:
                yield context


def comment_mode_of(job: Job, services: JobServices) -> CommentMode:
    of_recipe = job.recipe.comment if job.recipe is not None else None
    return services.conventions.comment or of_recipe or "always"


def new_state(github: GitHub, queue: JobEngine, job: Job, services: JobServices) -> RunState:
    record, stamp = StoredRecord(queue, job.id), None
    if services.stamps is not None and job.lane == "work":
        stamp = partial(services.stamps.make, job, github.redact_text)
    comment = StatusComment(
        github,
        record.comment,
        job,
        marker=services.marker(job),
        is_quiet=comment_mode_of(job, services) != "always",
        stamp=stamp,
    )
    return RunState(record=record, comment=comment, run_url=services.run_url)
