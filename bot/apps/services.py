"""Build what all jobs of a process share from the operator's settings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import SecretStr

from agent_runtime import AgentFile, McpServer, Network, Provider, SandboxSettings, SettingsError, pick_sandbox
from bot.apps.agents import agent_maker
from bot.apps.keys import key_for
from bot.apps.storage import JobStorage, make_data_directory
from bot.apps.toolchains import directories_to_show
from bot.domain.errors import ConfigError
from bot.gate.network import unkept
from bot.jobs.results import RunResults
from bot.jobs.services import JobServices, Listener
from bot.jobs.setup import Setup
from bot.publishing.redact import Redactor
from bot.settings.agent import AgentSettings, bounds_of
from bot.settings.model import ActionInputs, ActionSettings, Settings
from bot.workspace import GIT_PAUSES, MirrorLimits, SetupCache, Workspaces, git_variables

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
    """What all jobs of a process share.

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
    if works and (problem := unkept(sandbox.level, networks(agent))):
        raise ConfigError((problem,))
    make_data_directory(agent)
    key = key_for(secret, "paused runs")
    servers = _servers(agent) if works else {}
    comes_back, inputs = inputs is None, inputs or _NO_INPUTS
    return JobServices(
        workspaces=_workspaces(agent, storage, git_pauses),
        setup=Setup(
            sandbox=sandbox,
            network=agent.network if agent.setup_network is None else agent.setup_network,
            seconds=agent.setup_seconds,
            cache=_setup_cache(agent),
            on_runner=not comes_back,
        ),
        agent=agent_maker(agent, provider, sandbox, servers=servers, state_key=key, scrub=redactor.redact_known),
        bounds=replace(bounds_of(agent), sandbox=sandbox.level, dry_run=inputs.dry_run, servers=tuple(servers)),
        redactor=redactor,
        trigger=agent.trigger,
        server_url=server_url.rstrip("/"),
        sandbox=sandbox.level,
        network=agent.network,
        work=RunResults(
            storage.patches,
            most_bytes=agent.patches_gb * 1024**3,
            lasting=storage.lasting_patches or not comes_back,
        ),
        sessions=storage.sessions,
        comes_back=comes_back,
        marker_key=key_for(secret, "status comment"),
        pictures=agent.pictures != "off",
        keep_days=agent.keep_days,
        edit_seconds=edit_seconds,
        model_patience=agent.model_patience,
        ci_note="" if comes_back else _NO_CI,
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
        return {} if agent.mcp is None else AgentFile.servers_in(agent.mcp)
    except SettingsError as error:
        raise ConfigError((f"CODEPILOT_MCP is {agent.mcp}, which cannot be used: {error}",)) from error


def _setup_cache(agent: AgentSettings) -> SetupCache | None:
    folder, size = agent.data_dir / "setup-cache", agent.setup_cache_gb * 10**9
    return SetupCache(folder, max_bytes=size, unused_seconds=agent.cache_days * _DAY_SECONDS) if size else None


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


def networks(agent: AgentSettings) -> dict[str, Network | None]:
    """The settings that name hosts, by their names."""
    return {"CODEPILOT_NETWORK": agent.network, "CODEPILOT_SETUP_NETWORK": agent.setup_network}


def redactor_for(settings: Settings | ActionSettings) -> Redactor:
    """What takes the operator's secrets out of text."""
    keys: list[SecretStr | None]
    if isinstance(settings, Settings):
        keys = [settings.webhook_secret, settings.private_key, settings.metrics_token, settings.otlp_headers]
        keys += [settings.aws_secret_access_key, settings.aws_session_token, *settings.database_passwords]
        keys += [settings.dashboard_token, settings.client_secret]
    else:
        keys = [settings.token, settings.inputs.session_key]
    return Redactor(secret.get_secret_value() for secret in (*keys, *settings.agent.secrets) if secret is not None)
