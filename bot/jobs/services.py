"""Services that all jobs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime import AsyncRuntime, Event, Network, Policy, Session
from bot.domain.access import Bounds
from bot.domain.job import Job
from bot.engine.protocols import RunHistory, Schedules
from bot.gate.conventions import Conventions
from bot.github import PullFacts
from bot.jobs.receipt_filter import KnownConfigs
from bot.jobs.results import RunResults
from bot.jobs.sealed_state import SavedJob
from bot.jobs.sessions import FileJobSessions, JobSessions
from bot.jobs.setup import Setup
from bot.publishing.inert import Allowed
from bot.publishing.inputs import in_inputs
from bot.publishing.marker import claimed_job, job_of, marker
from bot.publishing.redact import Redactor
from bot.workspace import Workspaces

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
