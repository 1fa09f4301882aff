"""Build the parts that all jobs of a process share from the operator's settings.

`services` joins them: the makers of agents and models, the sandbox with the operator's toolchains, the workspaces, and
the storage for the data of jobs, on this machine or shared with others.
"""

from __future__ import annotations

import logging
import pwd
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import geteuid
from pathlib import Path

from pydantic import SecretStr

from agent_runtime import (
    Agent,
    AgentFile,
    AsyncRuntime,
    McpServer,
    ModelOptions,
    Network,
    Provider,
    Sandbox,
    SandboxSettings,
    SessionError,
    SettingsError,
    pick_sandbox,
    provider_for,
)
from bot.domain.errors import ConfigError
from bot.git.blobs import BlobAccess, BlobStore, open_blobs
from bot.git.mirror import MirrorLimits
from bot.git.process import PAUSES as GIT_PAUSES
from bot.git.process import git_variables
from bot.git.setup_cache import SetupCache
from bot.git.snapshots import Snapshots, Vault
from bot.git.workspace import Workspaces
from bot.github.app import AppAccess
from bot.jobs.context import AgentMaker, AgentSpec, JobServices, Listener
from bot.jobs.setup import Setup
from bot.jobs.storage import (
    DatabaseJobSessions,
    FileJobSessions,
    JobSessions,
    PatchBlobs,
    PatchFiles,
    PatchStore,
    RunResults,
)
from bot.permissions.levels import network_problem
from bot.publishing.redact import Redactor
from bot.settings.load import derive_key
from bot.settings.models import ActionInputs, ActionSettings, AgentSettings, Settings, bounds_of

log = logging.getLogger(__name__)

# https://docs.github.com/actions/concepts/security/github_token#when-github_token-triggers-workflow-runs
_NO_CI = (
    "GitHub starts no workflow for commits pushed with a workflow's own token. Push an empty commit, or close and "
    "reopen the pull request, to start the checks."
)

EDIT_SECONDS = 10.0
"""Between two edits of a status comment."""

# What Python compiles while the agent tests is not part of its change, and not every project ignores it.
_ENVIRONMENT = {"PYTHONPYCACHEPREFIX": "/tmp/pycache"}  # noqa: S108 - inside the sandbox, where it is a tmpfs of its own
_NO_INPUTS = ActionInputs()
_DAY_SECONDS = 24 * 3600.0


def services(
    agent: AgentSettings,
    *,
    server_url: str,
    secret: SecretStr,
    redactor: Redactor,
    listeners: Sequence[Listener],
    edit_seconds: float,
    provider: Callable[[], Provider] | None,
    storage: JobStorage,
    run_url: str = "",
    inputs: ActionInputs | None = None,
    works: bool = True,
    git_pauses: tuple[float, ...] = GIT_PAUSES,
) -> JobServices:
    """Build the services that all jobs of a process share.

    Args:
        agent: the operator's settings.
        server_url: GitHub's address for people and git.
        secret: what the bot's own keys are made from: the webhook's secret; for a workflow's step a secret that
            later runs have, too, or else its token.
        redactor: takes secrets out of whatever leaves.
        listeners: called with every event of every run.
        edit_seconds: between two edits of a status comment.
        provider: makes the model of a run, in place of the one that the settings name.
        storage: keeps what outlives an attempt at a job.
        run_url: the page of the workflow's run, where the bot is a step of one.
        inputs: what the workflow's author asks for, where the bot is a step of one; None for a service, which answers
            and presses of buttons reach later.
        works: whether agents run in this process; a machine that only receives need not have a sandbox.
        git_pauses: seconds before each further try at a git server whose trouble may pass.

    Raises:
        ConfigError: the sandbox cannot keep to the network, there is no git, the data directory cannot be made, or the
            file of MCP servers cannot be used.
        SandboxError: no sandbox works here.
    """
    if shutil.which("git") is None:
        raise ConfigError(("`git` is not on the PATH; install it. Example: sudo apt-get install git",))
    sandbox = pick_sandbox(agent.sandbox if works else "local", sandbox_settings(agent))
    if works and (problem := network_problem(sandbox.level, networks(agent))):
        raise ConfigError((problem,))
    make_data_directory(agent)
    key = derive_key(secret, "paused runs")
    servers = _servers(agent) if works else {}
    is_long_running, inputs = inputs is None, inputs or _NO_INPUTS
    return JobServices(
        workspaces=_workspaces(agent, storage, git_pauses),
        setup=Setup(
            sandbox=sandbox,
            network=agent.network if agent.setup_network is None else agent.setup_network,
            seconds=agent.setup_seconds,
            cache=_setup_cache(agent),
            on_runner=not is_long_running,
        ),
        agent=agent_maker(agent, provider, sandbox, servers=servers, state_key=key, scrub=redactor.redact_known),
        bounds=replace(bounds_of(agent), sandbox=sandbox.level, dry_run=inputs.dry_run, servers=tuple(servers)),
        redactor=redactor,
        server_url=server_url.rstrip("/"),
        sandbox=sandbox.level,
        network=agent.network,
        work=RunResults(
            storage.patches,
            most_bytes=agent.patches_gb * 1024**3,
            lasting=storage.lasting_patches or not is_long_running,
        ),
        sessions=storage.sessions,
        is_long_running=is_long_running,
        marker_key=derive_key(secret, "status comment"),
        pictures=agent.pictures != "off",
        keep_days=agent.keep_days,
        edit_seconds=edit_seconds,
        model_patience=agent.model_patience,
        ci_note="" if is_long_running else _NO_CI,
        run_url=run_url,
        listeners=tuple(listeners),
        conventions=inputs.conventions,
        ca_file=agent.ca_file,
        places={str(agent.data_dir): "$CODEPILOT_DATA_DIR", sys.prefix: "$VIRTUAL_ENV"},
    )


def _workspaces(agent: AgentSettings, storage: JobStorage, pauses: tuple[float, ...]) -> Workspaces:
    limits = MirrorLimits(
        fetch_bytes=agent.fetch_mb * 1024**2,
        pull_bytes=agent.pull_fetch_mb * 1024**2,
        total_bytes=agent.mirrors_gb * 1024**3,
        unused_seconds=agent.cache_days * _DAY_SECONDS,
    )
    return Workspaces(
        agent.data_dir / "workspaces",
        limits=limits,
        pauses=pauses,
        snapshots=storage.snapshots,
        environment=git_variables(agent.ca_file),
    )


def _servers(agent: AgentSettings) -> dict[str, McpServer]:
    try:
        return {} if agent.mcp is None else AgentFile.read_servers(agent.mcp)
    except SettingsError as error:
        raise ConfigError((f"CODEPILOT_MCP is {agent.mcp}, which cannot be used: {error}",)) from error


def _setup_cache(agent: AgentSettings) -> SetupCache | None:
    folder, size = agent.data_dir / "setup-cache", agent.setup_cache_gb * 10**9
    return SetupCache(folder, max_bytes=size, unused_seconds=agent.cache_days * _DAY_SECONDS) if size else None


def networks(agent: AgentSettings) -> dict[str, Network | None]:
    """The settings that name hosts, by their names."""
    return {"CODEPILOT_NETWORK": agent.network, "CODEPILOT_SETUP_NETWORK": agent.setup_network}


def sandbox_settings(agent: AgentSettings) -> SandboxSettings:
    """Show the operator's toolchains with what they need, and put their `bin` before the system's programs.

    Raises:
        ConfigError: a toolchain cannot run in a sandbox.
    """
    return SandboxSettings(
        read_only=directories_to_show(agent.toolchains, private=(agent.data_dir,)),
        path=tuple(path / "bin" for path in agent.toolchains if (path / "bin").is_dir()),
        environment=_ENVIRONMENT,
        limits=agent.sandbox_limits,
        container=agent.container,
        git_writable=True,  # no git outside ever opens a workspace
    )


def redactor_for(settings: Settings | ActionSettings) -> Redactor:
    """Return the redactor of the operator's secrets."""
    keys: list[SecretStr | None]
    if isinstance(settings, Settings):
        keys = [settings.webhook_secret, settings.private_key, settings.metrics_token, settings.otlp_headers]
        keys += [settings.aws_secret_access_key, settings.aws_session_token, *settings.database_passwords]
        keys += [settings.dashboard_token, settings.client_secret]
    else:
        keys = [settings.token, settings.inputs.session_key]
    return Redactor(secret.get_secret_value() for secret in (*keys, *settings.agent.secrets) if secret is not None)


def app_access(settings: Settings) -> AppAccess:
    """Return the App's credentials, from the settings."""
    return AppAccess(
        app_id=settings.app_id,
        private_key=settings.private_key.get_secret_value(),
        api_url=settings.api_url,
        ca_file=settings.agent.ca_file,
    )


def make_data_directory(agent: AgentSettings) -> None:
    """Make the directory that everything else is in, unless it is there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        agent.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = f"CODEPILOT_DATA_DIR is {agent.data_dir}, which cannot be created: {error.strerror}"
        raise ConfigError((f"{why}. Create it for the bot's user, or name another directory.",)) from error


def agent_maker(
    settings: AgentSettings,
    provider: Callable[[], Provider] | None,
    sandbox: Sandbox,
    *,
    servers: Mapping[str, McpServer],
    state_key: bytes,
    scrub: Callable[[str], str],
) -> AgentMaker:
    """Return the function that makes the agent of each job.

    Args:
        settings: the operator's; they name the model of a job that names none.
        provider: makes every model, in place of those that the settings name.
        sandbox: where commands run.
        servers: the MCP servers that the operator defines, by name.
        state_key: signs runs that wait for a person.
        scrub: takes the bot's secrets out of what is recorded.
    """

    def make(order: AgentSpec, listeners: Sequence[Listener]) -> AsyncRuntime:
        named = replace(settings, model=order.model) if order.model not in {"", "scripted"} else settings
        agent = Agent(
            provider=provider() if provider is not None else model_of(named),
            work_dir=order.work_dir,
            sandbox=sandbox,
            network=order.network,
            policy=order.policy,
            repository_instructions=order.instructions,
            skills=order.skills,
            tools=order.tools,
            chat=False,
            scrub=scrub,
            start_in=order.start_in,
            kept_index=order.kept_index,
            separates_commands=True,
            mcp=tuple(servers[name] for name in order.servers),
            transport=None if settings.model_transport == "auto" else settings.model_transport,
        )
        if order.session is None:
            return AsyncRuntime(agent, listeners=listeners, state_key=state_key)
        return AsyncRuntime(
            agent,
            order.session,
            listeners=listeners,
            state_key=state_key,
            resumable=True,
        )

    return make


def model_of(settings: AgentSettings) -> Provider:
    """The model that the settings name.

    Raises:
        SettingsError: there is no such model service, or it cannot be used as it is set.
    """
    scripted = settings.provider == "scripted"
    return provider_for(
        settings.provider,
        model=None if scripted else settings.model or None,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        base_url=settings.base_url,
        options=ModelOptions(
            silence=settings.model_silence,
            script=Path(settings.model) if scripted else None,
            images=True if settings.pictures == "on" else None,
            key_variable=settings.key_variable,
            cloud=settings.cloud,
        ),
    )


_FOLDER = "patches"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStorage:
    """Keeps what outlives an attempt at a job.

    Attributes:
        sessions: the logs of runs; None where no job waits for a person.
        patches: the changes of runs.
        snapshots: the files of jobs that wait, for other machines; None where these cannot reach them.
        lasting_patches: whether the patches of published work stay, too, for the dashboard.
    """

    sessions: JobSessions | None
    patches: PatchStore
    snapshots: Snapshots | None = None
    lasting_patches: bool = False


def storage_of(settings: Settings) -> JobStorage:
    """Return the storage of a service.

    Raises:
        ConfigError: the blob store needs what is not installed.
        SessionError: the database cannot be used.
        StorageError: the directory of the blob store cannot be made.
    """
    sessions: JobSessions = files_of(settings.agent)
    if settings.shared_database is not None:
        sessions = DatabaseJobSessions(settings.shared_database)
        try:
            sessions.prepare()
        except SessionError as error:
            raise SessionError(f"The database named by CODEPILOT_DATABASE_URL cannot be used. {error}") from error
        if settings.storage_url is None:
            log.warning(
                "CODEPILOT_DATABASE_URL is a server's address and CODEPILOT_STORAGE_URL is not set: workers on other "
                "machines cannot continue the jobs that wait on this one. Example: CODEPILOT_STORAGE_URL=s3://my-bucket/bot"
            )
    blobs = None if settings.storage_url is None else blobs_of(settings, settings.storage_url)
    snapshots = None if blobs is None else Snapshots(blobs=blobs, key=derive_key(settings.webhook_secret, "snapshots"))
    return JobStorage(
        sessions=sessions,
        patches=patches_of(settings, blobs),
        snapshots=snapshots,
        lasting_patches=settings.has_dashboard,
    )


def local_storage(agent: AgentSettings) -> JobStorage:
    """Return the storage of a workflow's step: only patches, on the runner."""
    return JobStorage(sessions=None, patches=PatchFiles(agent.data_dir / _FOLDER))


def patches_of(settings: Settings, blobs: BlobStore | None) -> PatchStore:
    """Return the store for patches: the operator's blob store, or else files that the operator can read."""
    folder = settings.agent.data_dir / _FOLDER
    if blobs is None:
        return PatchFiles(folder)
    return PatchBlobs(Vault(blobs=blobs, folder=_FOLDER, key=derive_key(settings.webhook_secret, "patches")), folder)


def files_of(agent: AgentSettings) -> FileJobSessions:
    """The sessions of jobs that only this machine continues."""
    return FileJobSessions(agent.data_dir / "sessions")


def blobs_of(settings: Settings, url: str) -> BlobStore:
    """Return the blob store at an address, reached with the operator's key.

    Raises:
        ConfigError: the blob store needs what is not installed.
        StorageError: the directory of the blob store cannot be made.
    """
    access = BlobAccess(
        access_key_id=settings.aws_access_key_id or "",
        secret_access_key=settings.aws_secret_access_key,
        session_token=settings.aws_session_token,
        region=settings.aws_region or "",
        endpoint=settings.aws_endpoint_url or "",
    )
    return open_blobs(url, access)


_SYSTEM = tuple(map(Path, ("/bin", "/lib", "/lib64", "/sbin", "/usr")))
"""The directories that every sandbox shows."""

_CONFIGURATION_BYTES = 64 * 1024

_HOPS = 40
"""As many symbolic links as the kernel follows."""


def directories_to_show(toolchains: Sequence[Path], *, private: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The toolchains, and before each virtual environment the Python that it was made from.

    A virtual environment holds links to a Python somewhere else. Where that is not shown, the sandbox has no `python`,
    and `pytest` in the same environment is there and cannot start.

    Args:
        toolchains: what the operator named.
        private: directories that must not be shown on the strength of such a link, nor what lies around them; this
            user's home directory is always one.

    Raises:
        ConfigError: the Python of an environment does not exist, or cannot be shown without what is private.
    """
    hidden = [*private]
    with suppress(KeyError):  # a container may run as a user that it does not know, who has no home directory
        hidden.append(Path(pwd.getpwuid(geteuid()).pw_dir))
    shown: list[Path] = []
    for toolchain in toolchains:
        for directory in (*_pythons_of(toolchain), toolchain):
            what = f"CODEPILOT_TOOLCHAINS: {toolchain} is a virtual environment of the Python in {directory}, which"
            if not directory.is_dir() and directory != toolchain:
                raise ConfigError(
                    (f"{what} does not exist on this machine; create the environment here, or name another one.",)
                )
            around = next((path for path in hidden if path.is_relative_to(directory)), None)
            if around and directory != toolchain:
                raise ConfigError(
                    (f"{what} also contains {around}; create the environment with a Python in a directory of its own.",)
                )
            if not any(directory.is_relative_to(other) for other in (*shown, *_SYSTEM)):
                shown.append(directory)
    return tuple(shown)


def _pythons_of(toolchain: Path) -> Iterator[Path]:
    """The directories that a virtual environment's Python needs; nothing for other directories."""
    try:
        with (toolchain / "pyvenv.cfg").open(encoding="utf-8", errors="replace") as file:
            text = file.read(_CONFIGURATION_BYTES)
    except FileNotFoundError:
        return
    pairs = (line.partition("=") for line in text.splitlines())
    home = next((value.strip() for key, _, value in pairs if key.strip().lower() == "home"), "")
    if Path(home).is_absolute():
        yield _prefix(Path(home))
    link = toolchain / "bin" / "python"
    for _ in range(_HOPS):
        if not link.is_symlink():
            return
        link = link.parent / link.readlink()
        if not link.is_relative_to(toolchain):
            yield _prefix(link.parent)


def _prefix(programs: Path) -> Path:
    """The whole of a Python whose program lies in `programs`; for links among other programs, these alone."""
    return programs.parent if any(programs.parent.glob("lib*/python3*/os.py")) else programs
