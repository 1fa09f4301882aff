"""Reads settings by their tables, from variables and a file, and keeps what is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from agent_runtime import ContainerSettings, RunLimits, SandboxLimits
from bot.config_file import read_file
from bot.config_table import AGENT, CONFIG, MODELS, PROVIDER_KEYS, SERVICE, SETTINGS
from bot.config_values import AgentSettings
from bot.errors import ConfigError
from bot.gate.standing import Caps
from bot.runner_table import RUNNER
from bot.setting import PREFIX, Setting

_OUTAGE = RunLimits().outage_seconds
_ACTION_OUTAGE = 900.0
"""Seconds for which a run itself waits for the model; in a workflow nobody tries again after it."""

SECRETS = (SERVICE["webhook_secret"], RUNNER["token"], *PROVIDER_KEYS.values())
"""The settings that are secrets themselves, rather than name a file with one."""


def spellings(name: str) -> tuple[str, ...]:
    """How a setting is called in the environment: the runner turns an input `max-steps` into INPUT_MAX-STEPS, and
    composite actions pass theirs on by hand."""  # noqa: D205, D209 - one sentence
    plain = name.removeprefix(PREFIX)
    return (name, f"INPUT_{plain.replace('_', '-')}", f"INPUT_{plain}")


class Reader:
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
            return read_file(path, may_stand_there, secrets=[setting.name for setting in SECRETS])
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
        names = spellings(name) if self._inputs and name.startswith(PREFIX) else (name,)
        return next((text for text in (self._environ.get(each, "").strip() for each in names) if text), "")

    def _missing(self, setting: Setting) -> None:
        self._problems.append(f"{setting.name} is not set. {setting.meaning} Example: {setting.name}={setting.example}")
