"""Build the services that all jobs of a process share, from the operator's settings. Start at `build_services`."""

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
    read_python_home,
)
from bot.domain.errors import ConfigError, InputProblem, InputsError
from bot.git.blobs import BlobAccess, BlobStore, open_blobs
from bot.git.mirror import MirrorLimits
from bot.git.process import PAUSES as GIT_PAUSES
from bot.git.process import git_variables
from bot.git.setup_cache import SetupCache
from bot.git.snapshots import Snapshots, Vault
from bot.git.workspace import Workspaces
from bot.github.app import AppAccess
from bot.jobs.context import AgentFactory, AgentSpec, JobServices, Listener
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

EDIT_SECONDS = 10.0
"""Minimum time between edits of a status comment."""

# Keeps compiled files out of the change; not every project ignores them.
_ENVIRONMENT = {"PYTHONPYCACHEPREFIX": "/tmp/pycache"}  # noqa: S108 - inside the sandbox, where it is a tmpfs of its own
_NO_INPUTS = ActionInputs()
_DAY_SECONDS = 24 * 3600.0


def build_services(
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
        secret: derives the bot's keys: the webhook secret, or for a workflow step a secret that later runs share.
        edit_seconds: minimum time between edits of a status comment.
        provider: replaces the configured model.
        inputs: inputs of the Action; None for a service.
        works: whether agents run here; otherwise no sandbox is needed.
        git_pauses: seconds before each retry of git.

    Raises:
        ConfigError: an unusable setting, or no git.
        SandboxError: no sandbox works.
    """
    if shutil.which("git") is None:
        raise ConfigError(("`git` is not on the PATH; install it. Example: sudo apt-get install git",))
    sandbox = pick_sandbox(agent.sandbox if works else "local", sandbox_settings(agent))
    if works and (problem := network_problem(sandbox.level, networks(agent))):
        raise ConfigError((problem,))
    make_data_directory(agent)
    key = derive_key(secret, "paused runs")
    is_long_running, inputs = inputs is None, inputs or _NO_INPUTS
    servers = _servers(agent, inputs.mcp) if works else {}
    for value in [value for server in servers.values() for value in server.secrets]:
        redactor.add_secret(value)
    return JobServices(
        workspaces=_workspaces(agent, storage, git_pauses, sandbox),
        setup=Setup(
            sandbox=sandbox,
            network=agent.network if agent.setup_network is None else agent.setup_network,
            seconds=agent.setup_seconds,
            cache=_setup_cache(agent),
            on_runner=not is_long_running,
        ),
        agent=agent_factory(agent, provider, sandbox, servers=servers, state_key=key, scrub=redactor.redact_known),
        bounds=replace(bounds_of(agent), sandbox=sandbox.level, dry_run=inputs.dry_run, servers=tuple(servers)),
        redactor=redactor,
        server_url=server_url.rstrip("/"),
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
        run_url=run_url,
        listeners=tuple(listeners),
        conventions=replace(inputs.conventions, branch_prefix=agent.branch_prefix),
        ca_file=agent.ca_file,
        places={str(agent.data_dir): "$CODEPILOT_DATA_DIR", sys.prefix: "$VIRTUAL_ENV"},
    )


def _workspaces(agent: AgentSettings, storage: JobStorage, pauses: tuple[float, ...], sandbox: Sandbox) -> Workspaces:
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
        shows_objects=sandbox.is_isolated,
    )


def _servers(agent: AgentSettings, definitions: str | None) -> dict[str, McpServer]:
    source = f"mcp:\n{definitions}" if definitions else agent.mcp
    try:
        return {} if source is None else AgentFile.read_servers(source)
    except SettingsError as error:
        if definitions:
            raise InputsError((InputProblem(text=f"The input `mcp` is not valid. {error}", input="mcp"),)) from error
        raise ConfigError((f"CODEPILOT_MCP is {agent.mcp}, which cannot be used: {error}",)) from error


def _setup_cache(agent: AgentSettings) -> SetupCache | None:
    folder, size = agent.data_dir / "setup-cache", agent.setup_cache_gb * 10**9
    return SetupCache(folder, max_bytes=size, unused_seconds=agent.cache_days * _DAY_SECONDS) if size else None


def networks(agent: AgentSettings) -> dict[str, Network | None]:
    return {"CODEPILOT_NETWORK": agent.network, "CODEPILOT_SETUP_NETWORK": agent.setup_network}


def sandbox_settings(agent: AgentSettings) -> SandboxSettings:
    return SandboxSettings(
        read_only=visible_directories(agent.toolchains, private=(agent.data_dir,)),
        path=tuple(path / "bin" for path in agent.toolchains if (path / "bin").is_dir()),
        environment=_ENVIRONMENT,
        limits=agent.sandbox_limits,
        container=agent.container,
        toolchains="none",  # the operator names them: the service's own are no business of a repository
        git_writable=True,  # no git outside ever opens a workspace
    )


def redactor_for(settings: Settings | ActionSettings) -> Redactor:
    keys: list[SecretStr | None]
    if isinstance(settings, Settings):
        keys = [settings.webhook_secret, settings.private_key, settings.metrics_token, settings.otlp_headers]
        keys += [settings.aws_secret_access_key, settings.aws_session_token, *settings.database_passwords]
        keys += [settings.dashboard_token, settings.client_secret]
    else:
        keys = [settings.token, settings.inputs.session_key]
    return Redactor(secret.get_secret_value() for secret in (*keys, *settings.agent.secrets) if secret is not None)


def read_app_access(settings: Settings) -> AppAccess:
    return AppAccess(
        app_id=settings.app_id,
        private_key=settings.private_key.get_secret_value(),
        api_url=settings.api_url,
        ca_file=settings.agent.ca_file,
    )


def make_data_directory(agent: AgentSettings) -> None:
    try:
        agent.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"CODEPILOT_DATA_DIR is {agent.data_dir}, which cannot be created: {error.strerror}"
        raise ConfigError((f"{problem}. Create it for the bot's user, or name another directory.",)) from error


def agent_factory(
    settings: AgentSettings,
    provider: Callable[[], Provider] | None,
    sandbox: Sandbox,
    *,
    servers: Mapping[str, McpServer],
    state_key: bytes,
    scrub: Callable[[str], str],
) -> AgentFactory:
    """Return a factory of jobs' agents; `state_key` signs waiting runs."""

    def make(spec: AgentSpec, listeners: Sequence[Listener]) -> AsyncRuntime:
        job_settings = replace(settings, model=spec.model) if spec.model not in {"", "scripted"} else settings
        agent = Agent(
            provider=provider() if provider is not None else build_model(job_settings),
            work_dir=spec.work_dir,
            sandbox=sandbox.showing(spec.readable),
            network=spec.network,
            policy=spec.policy,
            repository_instructions=spec.instructions,
            skills=spec.skills,
            tools=spec.tools,
            chat=False,
            attended=spec.attended,
            scrub=scrub,
            start_in=spec.start_in,
            kept_index=spec.index_file,
            separates_commands=True,
            baseline_seconds=Agent.baseline_seconds if spec.excuses_failures else 0,
            mcp=tuple(servers[name] for name in spec.servers),
            transport=None if settings.model_transport == "auto" else settings.model_transport,
        )
        if spec.session is None:
            return AsyncRuntime(agent, listeners=listeners, state_key=state_key)
        return AsyncRuntime(
            agent,
            spec.session,
            listeners=listeners,
            state_key=state_key,
            resumable=True,
        )

    return make


def build_model(settings: AgentSettings) -> Provider:
    scripted, endpoint = settings.provider == "scripted", settings.endpoint
    return provider_for(
        settings.provider,
        model=None if scripted else settings.model or None,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        base_url=endpoint.base_url,
        options=ModelOptions(
            silence=settings.model_silence,
            script=Path(settings.model) if scripted else None,
            images=True if settings.pictures == "on" else None,
            key_variable=endpoint.key_variable,
            model_setting="CODEPILOT_MODEL",
            url_setting=endpoint.address_variable or "CODEPILOT_BASE_URL",
            cloud=settings.cloud,
        ),
    )


_FOLDER = "patches"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStorage:
    """Persistent storage of jobs.

    Attributes:
        sessions: None if no job waits.
        snapshots: files of waiting jobs for other machines; None if there are none.
        lasting_patches: whether to keep published patches, for the dashboard.
    """

    sessions: JobSessions | None
    patches: PatchStore
    snapshots: Snapshots | None = None
    lasting_patches: bool = False


def open_storage(settings: Settings) -> JobStorage:
    """Open the storage of a service.

    Raises:
        ConfigError: a dependency is missing.
        SessionError: the database failed.
        StorageError: the blob store failed.
    """
    sessions: JobSessions = open_sessions(settings.agent)
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
    blobs = None if settings.storage_url is None else open_blob_store(settings, settings.storage_url)
    snapshots = None if blobs is None else Snapshots(blobs=blobs, key=derive_key(settings.webhook_secret, "snapshots"))
    return JobStorage(
        sessions=sessions,
        patches=open_patches(settings, blobs),
        snapshots=snapshots,
        lasting_patches=settings.has_dashboard,
    )


def local_storage(agent: AgentSettings) -> JobStorage:
    return JobStorage(sessions=None, patches=PatchFiles(agent.data_dir / _FOLDER))


def open_patches(settings: Settings, blobs: BlobStore | None) -> PatchStore:
    folder = settings.agent.data_dir / _FOLDER
    if blobs is None:
        return PatchFiles(folder)
    return PatchBlobs(Vault(blobs=blobs, folder=_FOLDER, key=derive_key(settings.webhook_secret, "patches")), folder)


def open_sessions(agent: AgentSettings) -> FileJobSessions:
    return FileJobSessions(agent.data_dir / "sessions")


def open_blob_store(settings: Settings, url: str) -> BlobStore:
    access = BlobAccess(
        access_key_id=settings.aws_access_key_id or "",
        secret_access_key=settings.aws_secret_access_key,
        session_token=settings.aws_session_token,
        region=settings.aws_region or "",
        endpoint=settings.aws_endpoint_url or "",
    )
    return open_blobs(url, access)


_SYSTEM = tuple(map(Path, ("/bin", "/lib", "/lib64", "/sbin", "/usr")))
"""Directories visible in every sandbox."""

_MAX_LINKS = 40
"""Limit of symbolic links, as the kernel's."""


def visible_directories(toolchains: Sequence[Path], *, private: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the toolchains, each virtual environment preceded by its base Python, without which it has no `python`.

    Args:
        private: directories, besides the home directory, that links of environments must not reveal.

    Raises:
        ConfigError: a base Python is missing or would reveal a private directory.
    """
    private_directories = [*private]
    with suppress(KeyError):  # a container may run as a user that it does not know, who has no home directory
        private_directories.append(Path(pwd.getpwuid(geteuid()).pw_dir))
    visible: list[Path] = []
    for toolchain in toolchains:
        for directory in (*_find_pythons(toolchain), toolchain):
            problem = f"CODEPILOT_TOOLCHAINS: {toolchain} is a virtual environment of the Python in {directory}, which"
            if not directory.is_dir() and directory != toolchain:
                raise ConfigError(
                    (f"{problem} does not exist on this machine; create the environment here, or name another one.",)
                )
            revealed = next((path for path in private_directories if path.is_relative_to(directory)), None)
            if revealed and directory != toolchain:
                raise ConfigError((f"{problem} also contains {revealed}; use a Python in a directory of its own.",))
            if not any(directory.is_relative_to(visible_directory) for visible_directory in (*visible, *_SYSTEM)):
                visible.append(directory)
    return tuple(visible)


def _find_pythons(toolchain: Path) -> Iterator[Path]:
    """Find the directories of a virtual environment's base Python; none for other directories."""
    if not (home := read_python_home(toolchain)):
        return
    if Path(home).is_absolute():
        yield _find_prefix(Path(home))
    link = toolchain / "bin" / "python"
    for _ in range(_MAX_LINKS):
        if not link.is_symlink():
            return
        link = link.parent / link.readlink()
        if not link.is_relative_to(toolchain):
            yield _find_prefix(link.parent)


def _find_prefix(programs: Path) -> Path:
    """Return the installation of a Python in `programs`, or `programs` for links among other programs."""
    return programs.parent if any(programs.parent.glob("lib*/python3*/os.py")) else programs
