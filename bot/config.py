"""Operator settings: the only reader of the environment. `config_table.py` says what each is."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from agent_runtime import ContainerSettings, Network, RunLimits, SandboxLimits
from bot.config_file import read_file
from bot.config_table import AGENT, CONFIG, MODELS, PROVIDER_KEYS, SERVICE, SETTINGS, Pictures, Provider, SandboxChoice
from bot.errors import ConfigError
from bot.gate.standing import Bounds, Caps, Level
from bot.intake.commands import DEFAULT_TRIGGER
from bot.runner_table import RUNNER
from bot.setting import PREFIX, Setting

_OUTAGE = RunLimits().outage_seconds
_ACTION_OUTAGE = 900.0
"""Seconds for which a run itself waits for the model; in a workflow nobody tries again after it."""

_SECRETS = (SERVICE["webhook_secret"], RUNNER["token"], *PROVIDER_KEYS.values())
"""The settings that are secrets themselves, rather than name a file with one."""


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
        trusted_bot_ids: numeric user ids of bots that may command.
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
    """

    provider: Provider
    model: str
    api_key: SecretStr | None
    base_url: str | None
    sandbox: SandboxChoice
    toolchains: tuple[Path, ...]
    network: Network
    limits: RunLimits
    trusted_bot_ids: frozenset[int]
    data_dir: Path
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
        trusted_bot_ids=settings.trusted_bot_ids,
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


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read what `codepilot serve` and `codepilot work` need; a variable that is empty counts as not set.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: with every missing, wrong and unknown setting at once.
    """
    reader = _Reader(os.environ if environ is None else environ)
    service = reader.read(SERVICE)
    agent = reader.agent()
    reader.check()
    if environ is None:
        _forget_secrets()
    return Settings(agent=agent, **service)


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


def survey(environ: Mapping[str, str] | None = None) -> Survey:
    """Read as much as there is of what `codepilot serve` needs.

    Args:
        environ: the variables, by default the process's own.
    """
    reader = _Reader(os.environ if environ is None else environ)
    service, agent = reader.read(SERVICE), reader.agent()
    usual = {key: setting.parse(setting.default) for key, setting in AGENT.items() if setting.default}
    mended = {key: value for key, value in usual.items() if hasattr(agent, key) and getattr(agent, key) is None}
    problems: tuple[str, ...] = ()
    try:
        reader.check()
    except ConfigError as error:
        problems = error.problems
    if environ is None:
        _forget_secrets()
    return Survey(
        problems=problems,
        agent=replace(agent, **mended),
        webhook_secret=service["webhook_secret"],
        app_id=service["app_id"],
        private_key=service["private_key"],
        api_url=service["api_url"],
    )


def load_action(environ: Mapping[str, str] | None = None) -> ActionSettings:
    """Read what `codepilot act` needs; each `CODEPILOT_X_Y` may also come as the action's input `x-y`.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: with every missing, wrong and unknown setting at once.
    """
    given = dict(os.environ if environ is None else environ)
    data_dir = AGENT["data_dir"].name
    if (temporary := given.get("RUNNER_TEMP")) and not given.get(data_dir):
        given[data_dir] = f"{temporary}/codepilot"
    reader = _Reader(given, inputs=True)
    if given.get("RUNNER_ENVIRONMENT") == "github-hosted":  # a machine that lives for one job
        reader.default(AGENT["allow_root"], "yes")
    runner = reader.read(RUNNER)
    agent = reader.agent()
    reader.check()
    if environ is None:
        _forget_secrets()
    return ActionSettings(agent=agent, **runner)


def load_demo(
    script: Path | None, *, data_dir: Path, toolchains: tuple[Path, ...], environ: Mapping[str, str] | None = None
) -> AgentSettings:
    """Read what `codepilot demo` needs: the model whose key is there, else the script.

    Args:
        script: what the scripted model replays; None when there is nothing to replay.
        data_dir: where everything is kept.
        toolchains: directories that the sandbox shows.
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: no model can be used, or a setting is wrong.
    """
    given = dict(os.environ if environ is None else environ)
    provider = AGENT["provider"].name
    with_key = [name for name, setting in PROVIDER_KEYS.items() if given.get(setting.name, "").strip()]
    if not given.get(provider):
        given[provider] = with_key[0] if with_key else "scripted"
    if given[provider] == "scripted" and script is not None:
        given[AGENT["model"].name] = str(script)
    if given[provider] == "scripted" and not given.get(AGENT["model"].name):
        keys = " or ".join(setting.name for setting in PROVIDER_KEYS.values())
        raise ConfigError((f"no model: set {keys}, or pass --script FILE with replies to replay",))
    given |= {AGENT["data_dir"].name: str(data_dir), AGENT["toolchains"].name: ":".join(map(str, toolchains))}
    reader = _Reader(given)
    reader.default(AGENT["level"], "auto")  # who watches the demo is not asked to approve in a comment
    agent = reader.agent()
    reader.check()
    if environ is None:
        _forget_secrets()
    return agent


def _forget_secrets() -> None:
    """Take the secrets out of the environment, once they were read: what is started later must not inherit them."""
    for setting in _SECRETS:
        for written in _spellings(setting.name):
            os.environ.pop(written, None)


def _spellings(name: str) -> tuple[str, ...]:
    """How a setting is called in the environment: the runner turns an input `max-steps` into INPUT_MAX-STEPS, and
    composite actions pass theirs on by hand."""  # noqa: D205, D209 - one sentence
    plain = name.removeprefix(PREFIX)
    return (name, f"INPUT_{plain.replace('_', '-')}", f"INPUT_{plain}")


class _Reader:
    """Reads settings, and keeps what is wrong until all were read; nothing it gives may be used before `check`."""

    def __init__(self, environ: Mapping[str, str], *, inputs: bool = False) -> None:
        self._environ = environ
        self._inputs = inputs
        self._defaults: dict[str, str] = {}
        self._problems: list[str] = []
        self._file = self._further()

    def default(self, setting: Setting, written: str) -> None:
        """Take another value for a setting that is not set than its usual one."""
        self._defaults[setting.name] = written

    def read(self, table: Mapping[str, Setting]) -> dict[str, Any]:
        """One value a row, by the row's key; None for a wrong one and for one that is not set."""
        return {key: self._value(setting, self._found(setting)) for key, setting in table.items()}

    def agent(self) -> AgentSettings:
        """The part that both doors share."""
        found = self.read(AGENT)
        keys = self.read(PROVIDER_KEYS)
        provider = found.pop("provider")
        limits = RunLimits(
            max_steps=found.pop("max_steps"),
            max_cost_usd=found.pop("max_cost_usd"),
            max_seconds=found.pop("max_seconds"),
            outage_seconds=min(found["model_patience"] or 0, _ACTION_OUTAGE if self._inputs else _OUTAGE),
        )
        if provider in PROVIDER_KEYS and keys[provider] is None:
            self._missing(PROVIDER_KEYS[provider])
        model = found.pop("model") or MODELS.get(provider, "")
        if provider == "scripted" and not model:
            self._missing(AGENT["model"])
        trusted = found.pop("trusted_bot_ids") or frozenset()
        found |= {key: found[key] or () for key in ("allow_commands", "models")}
        caps = found.pop("caps") or Caps()
        toolchains = found.pop("toolchains") or ()
        bounds = found.pop("sandbox_limits") or SandboxLimits()
        image, program = found.pop("docker_image"), found.pop("docker_program")
        if found["sandbox"] == "docker" and image is None:
            self._missing(AGENT["docker_image"])
        return AgentSettings(
            provider=provider,
            model=model,
            api_key=keys.get(provider),
            limits=limits,
            trusted_bot_ids=trusted,
            caps=caps,
            toolchains=toolchains,
            sandbox_limits=bounds,
            container=ContainerSettings(image=image, program=program) if image else None,
            **found,
        )

    def _further(self) -> dict[str, str]:
        """What the settings file says, by the names of variables."""
        path = self._value(CONFIG, self._written(CONFIG.name))
        if path is None:
            return {}
        may_stand_there = [setting for setting in SETTINGS if setting is not CONFIG]
        try:
            return read_file(path, may_stand_there, secrets=[setting.name for setting in _SECRETS])
        except ConfigError as error:
            self._problems += error.problems
            return {}

    def check(self) -> None:
        """Raise ConfigError when anything was wrong, unknown variables included."""
        known = [s.name.removeprefix(PREFIX) for s in SETTINGS if s.name.startswith(PREFIX)]
        written = sorted(name.removeprefix(PREFIX) for name in self._environ if name.startswith(PREFIX))
        for name in (name for name in written if name not in known):
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {PREFIX}{near[0]}?" if near else "remove it"
            self._problems.append(f"{PREFIX}{name} is no setting of this version; {remedy}")
        if self._problems:
            raise ConfigError(tuple(self._problems))

    def _found(self, setting: Setting) -> str | None:
        """The environment first, then the file, then the default."""
        written = self._written(setting.name) or self._file.get(setting.name)
        return written or self._defaults.get(setting.name, setting.default)

    def _value(self, setting: Setting, written: str | None) -> Any:  # noqa: ANN401 - each row has its own type
        if written is None:
            return self._missing(setting)
        if not written:
            return None
        try:
            return setting.parse(written)
        except ValueError as error:
            self._problems.append(f"{setting.name} {error}. Example: {setting.name}={setting.example}")
            return None

    def _written(self, name: str) -> str:
        names = _spellings(name) if self._inputs and name.startswith(PREFIX) else (name,)
        return next((text for text in (self._environ.get(each, "").strip() for each in names) if text), "")

    def _missing(self, setting: Setting) -> None:
        self._problems.append(f"{setting.name} is not set. {setting.meaning} Example: {setting.name}={setting.example}")
