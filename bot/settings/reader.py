"""Reads settings by their tables, from variables and a file, and keeps what is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from agent_runtime import ContainerSettings, RunLimits, SandboxLimits
from bot.domain.access import Caps
from bot.domain.errors import ConfigError, InputProblem, InputsError
from bot.domain.listening import TrustedBots
from bot.settings.file import read_file
from bot.settings.input_table import INPUTS
from bot.settings.model import AgentSettings
from bot.settings.runner_table import RUNNER
from bot.settings.setting import PREFIX, Setting
from bot.settings.table import AGENT, CONFIG, MODELS, PROVIDER_KEYS, SERVICE, SETTINGS

_OUTAGE = RunLimits().outage_seconds
_ACTION_OUTAGE = 900.0
"""Seconds for which a run itself waits for the model; in a workflow nobody tries again after it."""

SECRETS = (SERVICE["webhook_secret"], RUNNER["token"], INPUTS["session_key"], *PROVIDER_KEYS.values())
"""The settings that are secrets themselves, rather than name a file with one."""


def spellings(setting: Setting) -> tuple[str, ...]:
    """How a setting is called in the environment: the runner turns an input `max-steps` into INPUT_MAX-STEPS, and
    composite actions pass theirs on by hand."""  # noqa: D205, D209 - one sentence
    if setting is CONFIG:  # the action's input of this name is the repository's own file
        return (setting.name,)
    plain = setting.input_name.upper() if setting.name.startswith(PREFIX) else setting.name
    return (setting.name, f"INPUT_{plain}", f"INPUT_{plain.replace('-', '_')}")


def input_name(setting: Setting) -> str:
    """What a setting is called among the Action's inputs; empty where it is none of them."""
    if setting in _NO_INPUTS:
        return ""
    return setting.input_name


_NO_INPUTS = (AGENT["data_dir"], CONFIG, *(each for key, each in RUNNER.items() if key != "token"))
_FROM_STORE = "{name}: ${{{{ secrets.{variable} }}}}"


class Reader:
    """Reads settings, and keeps what is wrong until all were read; nothing it gives may be used before `check`.

    Args:
        environ: the variables.
        inputs: whether these are the inputs of an Action, which errors then name.
    """

    def __init__(self, environ: Mapping[str, str], *, inputs: bool = False) -> None:
        self._environ = environ
        self._inputs = inputs
        self._defaults: dict[str, str] = {}
        self._problems: list[InputProblem] = []
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
            self._lacks_key(provider, [name for name, key in keys.items() if key is not None])
        model = found.pop("model") or MODELS.get(provider, "")
        if provider == "scripted" and not model:
            self._missing(AGENT["model"], "For the provider `scripted` it is the path of the script.")
        trusted = found.pop("trusted_bots") or TrustedBots()
        found |= {key: found[key] or frozenset() for key in ("allowed_users", "review_on")}
        found |= {key: found[key] or () for key in ("allow_commands", "models")}
        caps = found.pop("caps") or Caps()
        toolchains = found.pop("toolchains") or ()
        bounds = found.pop("sandbox_limits") or SandboxLimits()
        image, program = found.pop("docker_image"), found.pop("docker_program")
        if found["sandbox"] == "docker" and image is None:
            self._missing(AGENT["docker_image"], "The sandbox `docker` needs an image that is on the runner.")
        return AgentSettings(
            provider=provider,
            model=model,
            api_key=keys.get(provider),
            limits=limits,
            trusted_bots=trusted,
            caps=caps,
            toolchains=toolchains,
            sandbox_limits=bounds,
            container=ContainerSettings(image=image, program=program) if image else None,
            **found,
        )

    def _further(self) -> dict[str, str]:
        """What the settings file says, by the names of variables."""
        path = self._value(CONFIG, self._written(CONFIG))
        if path is None:
            return {}
        may_stand_there = [setting for setting in SETTINGS if setting is not CONFIG]
        try:
            return read_file(path, may_stand_there, secrets=[setting.name for setting in SECRETS])
        except ConfigError as error:
            self._problems += [InputProblem(text=each) for each in error.problems]
            return {}

    def lacks(self, setting: Setting, why: str) -> None:
        """Keep that a setting is missing which another one needs."""
        self._missing(setting, why)

    def usual(self, agent: AgentSettings) -> AgentSettings:
        """The same with the default of each setting that is wrong or missing."""
        usual = {key: setting.parse(setting.default) for key, setting in AGENT.items() if setting.default}
        unset = {key: value for key, value in usual.items() if hasattr(agent, key) and getattr(agent, key) is None}
        return replace(agent, **unset)

    def check(self) -> None:
        """Raise ConfigError, for an Action InputsError, when anything was wrong, unknown variables included."""
        settings = (*SETTINGS, *(INPUTS.values() if self._inputs else ()))
        known = [s.name.removeprefix(PREFIX) for s in settings if s.name.startswith(PREFIX)]
        written = sorted(name.removeprefix(PREFIX) for name in self._environ if name.startswith(PREFIX))
        for name in (name for name in written if name not in known):
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {PREFIX}{near[0]}?" if near else "remove it"
            self._problems.append(InputProblem(text=f"{PREFIX}{name} is no setting of this version; {remedy}"))
        if self._problems and self._inputs:
            raise InputsError(tuple(self._problems))
        if self._problems:
            raise ConfigError(tuple(each.text for each in self._problems))

    def _found(self, setting: Setting) -> str | None:
        """The environment first, then the file, then the default."""
        written = self._written(setting) or self._file.get(setting.name)
        return written or self._defaults.get(setting.name, setting.default)

    def _value(self, setting: Setting, written: str | None) -> Any:  # noqa: ANN401 - each row has its own type
        if written is None:
            return self._missing(setting)
        if not written:
            return None
        try:
            return setting.parse(written)
        except ValueError as error:
            self._wrong(setting, f"{error}.")
            return None

    def _written(self, setting: Setting) -> str:
        names = spellings(setting) if self._inputs and setting.name.startswith(PREFIX) else (setting.name,)
        return next((text for text in (self._environ.get(each, "").strip() for each in names) if text), "")

    def _missing(self, setting: Setting, why: str = "") -> None:
        """Keep that a setting is missing, and why it is needed, where its meaning alone does not say so."""
        if self._named(setting):
            self._wrong(setting, f"is empty. {why or setting.meaning}", secret=setting in PROVIDER_KEYS.values())
        else:
            self._wrong(setting, f"is not set. {setting.meaning}")

    def _lacks_key(self, provider: str, others: list[str]) -> None:
        """Say that the key of the model service is missing, and which service there is a key for."""
        self._missing(PROVIDER_KEYS[provider], f"The model service `{provider}` cannot be asked without its key.")
        if self._inputs and others and not self._written(AGENT["provider"]):
            text = f"There is a key for `{others[0]}`, and without the input `provider` the service is `{provider}`."
            self._problems[-1] = InputProblem(text=text, input="provider", line=f"provider: {others[0]}")

    def _wrong(self, setting: Setting, what: str, *, secret: bool = False) -> None:
        """Keep what is wrong with a setting, in the words of whoever wrote it."""
        name = self._named(setting)
        if not name:
            text = f"{setting.name} {what} Example: {setting.name}={setting.example}"
            self._problems.append(InputProblem(text=text))
            return
        line = yaml.safe_dump({name: setting.example.strip("`")}, allow_unicode=True, width=1000).strip()
        if setting.example.isdecimal():
            line = f"{name}: {setting.example}"
        if setting in {*PROVIDER_KEYS.values(), INPUTS["session_key"]}:
            line = _FROM_STORE.format(name=name, variable=setting.name)
        self._problems.append(InputProblem(text=f"The input `{name}` {what}", input=name, line=line, secret=secret))

    def _named(self, setting: Setting) -> str:
        return input_name(setting) if self._inputs else ""
