"""The operator's settings as values; `load.py` reads them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from agent_runtime import ContainerSettings, Network, RunLimits, SandboxLimits
from bot.domain.access import Bounds, Caps, Level
from bot.domain.commands import DEFAULT_TRIGGER, ReviewEvent
from bot.domain.errors import InputProblem
from bot.domain.listening import TrustedBots
from bot.gate.conventions import OWN_PREFIX, Conventions
from bot.gate.repo_config import PATH
from bot.settings.table import Pictures, Provider, SandboxChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How the agent works, the same for both doors.

    Attributes:
        provider: which model service.
        model: which of its models; for `scripted` the path of the script.
        api_key: the service's key; None for `scripted`.
        base_url: the service's address, or None for its own.
        sandbox: where commands run; `auto` takes the first that works.
        toolchains: directories that the sandbox shows read-only, their `bin` on the `PATH`.
        network: what commands may reach at most.
        limits: bounds of one run.
        trusted_bots: bots that may command.
        allowed_users: logins, in lower case, of the people who may command; empty for all with write access.
        data_dir: where the queue, the mirrors and the workspaces live.
        container: what containers are made with, where commands may run in some.
        allow_root: whether the bot may work as root.
        sandbox_limits: what the commands of one job may use together.
        setup_network: what repositories' setup commands may reach at most; None for the same as `network`.
        setup_seconds: how long those may take together.
        setup_cache_gb: gigabytes that are kept of what they made.
        fetch_mb: megabytes that one fetch may bring.
        pull_fetch_mb: the same for a pull request's commits.
        mirrors_gb: gigabytes that all mirrors may have together.
        triggers: the words that start a command.
        start_label: the label that starts work.
        level: what a run may do unasked.
        allow_commands: patterns of commands that need no approval, beside the built-in ones.
        models: further models that may be asked for.
        caps: how much work an hour.
        approval_hours: how long a run waits for an answer.
        keep_days: how long ended jobs and unpublished patches are kept.
        model_patience: seconds for which a job waits for a model service that is down.
        model_silence: seconds without a byte from the model after which a reply counts as broken off; None for what
            suits the model.
        pictures: whether models are shown the pictures of threads; `auto` for those known to see.
        review_on: what starts a review without a command, where a repository does not say.
    """

    provider: Provider
    model: str
    api_key: SecretStr | None
    base_url: str | None
    sandbox: SandboxChoice
    toolchains: tuple[Path, ...]
    network: Network
    limits: RunLimits
    data_dir: Path
    trusted_bots: TrustedBots = field(default_factory=TrustedBots)
    allowed_users: frozenset[str] = frozenset()
    container: ContainerSettings | None = None
    allow_root: bool = False
    sandbox_limits: SandboxLimits = field(default_factory=SandboxLimits)
    setup_network: Network | None = None
    setup_seconds: int = 600
    setup_cache_gb: int = 10
    fetch_mb: int = 1024
    pull_fetch_mb: int = 256
    mirrors_gb: int = 20
    triggers: tuple[str, ...] = (DEFAULT_TRIGGER,)
    start_label: str = "codepilot"
    level: Level = "ask"
    allow_commands: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    approval_hours: int = 72
    keep_days: int = 30
    model_patience: int = 6 * 3600
    model_silence: int | None = None
    pictures: Pictures = "auto"
    review_on: frozenset[ReviewEvent] = frozenset()

    @property
    def trigger(self) -> str:
        """The word with which the bot itself shows commands."""
        return self.triggers[0]


def bounds_of(settings: AgentSettings) -> Bounds:
    """The part of the settings that permissions are decided by."""
    return Bounds(
        limits=settings.limits,
        level=settings.level,
        models=settings.models,
        model="scripted" if settings.provider == "scripted" else settings.model,
        commands=settings.allow_commands,
        caps=settings.caps,
        approval_seconds=settings.approval_hours * 3600.0,
        network=settings.network,
        trusted_bots=settings.trusted_bots,
        allowed_users=settings.allowed_users,
        review_on=settings.review_on,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `codepilot serve` and `codepilot work` need.

    Attributes:
        agent: how the agent works.
        webhook_secret: proves deliveries.
        app_id: the GitHub App's id.
        private_key: the GitHub App's private key, in PEM.
        api_url: GitHub's REST address.
        server_url: GitHub's address for people and git.
        jobs: how many jobs one process works on side by side.
        host: address to listen on.
        port: port to listen on.
    """

    agent: AgentSettings
    webhook_secret: SecretStr
    app_id: int
    private_key: SecretStr
    api_url: str
    server_url: str
    jobs: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInputs:
    """What a workflow's author asks for with the action's own inputs; see `input_table.py`.

    Attributes:
        prompt: what the agent is to do, or None.
        command: the verb, or None.
        base: the branch that work begins at and pull requests are for, or None for the usual one.
        branch_prefix: what the names of new branches begin with.
        working_directory: where commands start, or None for the repository's root.
        repo_config: the path of the repository's own file.
        dry_run: whether everything is made and nothing published.
        output_schema: what the result must fit: a JSON schema, or the path of one in the repository; None for words.
        approvals: what becomes of a call that needs a person.
        session: the name of the artifact to go on from, or None for the thread's.
        session_key: seals runs that wait, or None for a key made from the model service's.
    """

    prompt: str | None = None
    command: str | None = None
    base: str | None = None
    branch_prefix: str = OWN_PREFIX
    working_directory: str | None = None
    repo_config: str = PATH
    dry_run: bool = False
    output_schema: dict[str, Any] | str | None = None
    approvals: Literal["denied", "artifact"] = "denied"
    session: str | None = None
    session_key: SecretStr | None = None

    @property
    def conventions(self) -> Conventions:
        """The part of it that holds for every job of the run."""
        return Conventions(
            branch_prefix=self.branch_prefix,
            repo_file=self.repo_config,
            working_directory=self.working_directory or "",
            base=self.base or "",
            output_schema=self.output_schema,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSettings:
    """Everything `codepilot act` needs; GitHub's runner sets most of it.

    Attributes:
        agent: how the agent works.
        token: the workflow's token.
        event_path: the file with the event's payload.
        event_name: the event's name.
        repository: `owner/name`.
        run_id: the workflow run.
        run_attempt: which attempt of that run, from 1.
        api_url: GitHub's REST address.
        server_url: GitHub's address for people and git.
        output_path: the file that takes the step's outputs, or None.
        summary_path: the file that takes the step's summary, or None.
        inputs: what the workflow's author asks for.
        repository_id: GitHub's numeric id of the repository, or None where the runner does not say.
        actor: the login of whom GitHub names for the run, or None; for a schedule of who last changed it.
        actor_id: that account's numeric id, or None.
        ref: the ref that the workflow runs on, such as `refs/heads/main`, or None.
        workflow: the workflow's name, or None.
    """

    agent: AgentSettings
    token: SecretStr
    event_path: Path
    event_name: str
    repository: str
    run_id: int
    run_attempt: int
    api_url: str
    server_url: str
    output_path: Path | None
    summary_path: Path | None
    inputs: ActionInputs = field(default_factory=ActionInputs)
    repository_id: int | None = None
    actor: str | None = None
    actor_id: int | None = None
    ref: str | None = None
    workflow: str | None = None

    @property
    def sealing_secret(self) -> SecretStr | None:
        """What seals runs that wait for people; None where none shall."""
        if self.inputs.approvals == "denied":
            return None
        return self.inputs.session_key or self.agent.api_key

    @property
    def run_page(self) -> str:
        """The page of the workflow run."""
        return f"{self.server_url.rstrip('/')}/{self.repository}/actions/runs/{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What can be made of settings that need not be complete, for `codepilot doctor`.

    Attributes:
        problems: one sentence for each setting that is missing, wrong or unknown.
        agent: how the agent works; what is wrong or missing there is as if it were not set.
        webhook_secret: proves deliveries, or None.
        app_id: the GitHub App's id, or None.
        private_key: the GitHub App's private key in PEM, or None.
        api_url: GitHub's REST address, or None.
    """

    problems: tuple[str, ...]
    agent: AgentSettings
    webhook_secret: SecretStr | None
    app_id: int | None
    private_key: SecretStr | None
    api_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSurvey:
    """What can be made of a step's inputs, whether they are complete or not.

    Attributes:
        problems: one for each input that is missing, wrong or unknown.
        settings: with the defaults of those; the token is empty where there is none. Good for telling problems only.
    """

    problems: tuple[InputProblem, ...]
    settings: ActionSettings
