"""Reads models of settings from variables and a file, and keeps all that is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from agent_runtime import CATALOG
from bot.domain.errors import ConfigError, InputProblem
from bot.settings.agent import MODELS, AgentSettings
from bot.settings.file import read_file
from bot.settings.model import ActionInputs
from bot.settings.parsing import secret_in
from bot.settings.setting import PREFIX, Setting, settings_of
from bot.settings.table import AGENT, CONFIG, INPUTS, PROVIDER_KEYS, SETTINGS

_MODEL_MEANS = {"scripted": "the path of the script", "azure": "the name of your deployment"}
_ACTION_OUTAGE = 900.0
"""Seconds for which a run itself waits for the model; in a workflow nobody tries again after it."""
_OTHER_ADDRESS = (
    "is not set, and {key} is not sent to {url}, which is another server. Set that server's key here, or remove {key} "
    "if it needs none."
)
_UNSEALED = "With `approvals: artifact` it encrypts waiting runs, because there is no key of a model service."


def spellings(setting: Setting) -> tuple[str, ...]:
    """A setting's names in the environment: the runner turns an input `max-steps` into INPUT_MAX-STEPS, and composite
    actions pass theirs on by hand."""  # noqa: D205, D209 - one sentence
    given = f"INPUT_{setting.input_name.upper()}"
    return (setting.name, given, given.replace("-", "_")) if setting.input_name else (setting.name,)


class Reader:
    """Reads settings, and keeps what is wrong until all were read; nothing it gives may be used before `check`.

    Args:
        environ: the variables.
        inputs: whether these are the inputs of an Action, which errors then name.
        defaults: written values for settings that are not set, in place of their usual ones, by variable.
    """

    def __init__(
        self, environ: Mapping[str, str], *, inputs: bool = False, defaults: Mapping[str, str] | None = None
    ) -> None:
        self._environ = environ
        self._inputs = inputs
        self._further: dict[str, str] = dict(defaults or {})
        self._wrong: set[Setting] = set()
        self._problems: list[InputProblem] = []
        if written := self._written(CONFIG):
            try:
                self._further |= read_file(CONFIG.parse(written), [each for each in SETTINGS if each is not CONFIG])
            except ConfigError as error:
                self._problems += [InputProblem(text=each) for each in error.problems]
            except ValueError as error:
                self._tell(CONFIG, f"{error}.")

    def values(self, model: type) -> dict[str, Any]:
        """The fields of a model that are set, and set rightly. One that must be set and is not is a problem."""
        found = {}
        for field, setting in settings_of(model).items():
            try:
                written = self._written(setting)
                if written:
                    found[field] = setting.parse(written)
                elif setting.default is None:
                    self._lacks(setting)
            except ValueError as error:
                self._tell(setting, f"{error}.")
        return found

    def require_together(self, *settings: Setting) -> None:
        """Keep as a problem that some of these settings are set, and others are not."""
        if not self._wrong.isdisjoint(settings):
            return
        missing = [each for each in settings if not self._written(each)]
        if 0 < len(missing) < len(settings):
            given = next(each for each in settings if each not in missing)
            self._lacks(missing[0], f"{given.name} is, and has no effect without it.")

    def agent(self) -> AgentSettings:
        """The agent's settings; what is wrong or missing has its default."""
        agent = AgentSettings(**self.values(AgentSettings))
        key, own = PROVIDER_KEYS.get(agent.provider), CATALOG[agent.provider].is_own(agent.base_url)
        if key and agent.api_key is None and not self._wrong & {AGENT["provider"], AGENT["base_url"], key}:
            if own:
                self._lacks_key(agent)
            elif getattr(agent, key.field) is not None:
                told = _OTHER_ADDRESS.format(key=self._called(key), url=agent.base_url)
                self._tell(AGENT["base_url_key"], told, empty=True)
        if agent.base_url_key is not None and agent.base_url is None and AGENT["base_url"] not in self._wrong:
            self._lacks(AGENT["base_url"], f"It is where the key {self._called(AGENT['base_url_key'])} is sent to.")
        if agent.provider in _MODEL_MEANS and not agent.model:
            self._lacks(AGENT["model"], f"For the provider `{agent.provider}` it is {_MODEL_MEANS[agent.provider]}.")
        if (cloud := CATALOG[agent.provider].cloud) is not None:
            agent = replace(agent, cloud=cloud.of(self._environ))
            if lacking := cloud.lacking(agent.cloud):
                said = f"The provider `{agent.provider}` needs the environment variables {lacking}, as its SDK does."
                self._problems.append(InputProblem(text=said))
            if agent.base_url:
                self._tell(AGENT["base_url"], f"is not for the provider `{agent.provider}`: its credentials go there.")
        if agent.sandbox == "docker" and not agent.docker_image:
            self._lacks(AGENT["docker_image"], "The sandbox `docker` needs an image that is on this machine.")
        agent = replace(agent, model=agent.model or MODELS.get(agent.provider, ""))
        return replace(agent, outage_seconds=_ACTION_OUTAGE) if self._inputs else agent

    def action(self) -> tuple[ActionInputs, AgentSettings]:
        """The action's own inputs and the agent's settings; what is wrong or missing has its default."""
        inputs, agent = ActionInputs(**self.values(ActionInputs)), self.agent()
        sealed = inputs.session_key or agent.api_key or INPUTS["session_key"] in self._wrong
        if inputs.approvals == "artifact" and not sealed:
            self._lacks(INPUTS["session_key"], _UNSEALED)
        return inputs, agent

    def faults(self) -> tuple[InputProblem, ...]:
        """All that is wrong, unknown variables included; to be asked once everything was read."""
        settings = (*SETTINGS, *(INPUTS.values() if self._inputs else ()))
        names = [name for each in settings for name in (each.name, self._file_of(each)) if name.startswith(PREFIX)]
        known = [name.removeprefix(PREFIX) for name in names]
        written = sorted(name.removeprefix(PREFIX) for name in self._environ if name.startswith(PREFIX))
        unknown = []
        for name in (name for name in written if name not in known):
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {PREFIX}{near[0]}?" if near else "remove it"
            unknown.append(InputProblem(text=f"{PREFIX}{name} is not a setting of this version; {fix}"))
        return (*self._problems, *unknown)

    @property
    def wrong(self) -> frozenset[str]:
        """The fields of the settings that are missing or wrong, as far as they were read."""
        return frozenset(each.field for each in self._wrong)

    def check(self) -> None:
        """Raise ConfigError when anything is wrong."""
        if faults := self.faults():
            raise ConfigError(tuple(each.text for each in faults))

    def _written(self, setting: Setting) -> str:
        """The environment first, or the secret's own file; then the file of settings, then another default.

        Raises:
            ValueError: the secret's file cannot be used.
        """
        names = spellings(setting) if self._inputs else (setting.name,)
        given = next((text for text in (self._environ.get(each, "").strip() for each in names) if text), "")
        file = self._file_of(setting)
        if place := self._environ.get(file, "").strip():
            if given:
                raise ValueError(f"is set, and so is {file}; remove one of them")
            try:
                return secret_in(place)
            except ValueError as error:
                raise ValueError(f"is to be read from a file, but {file} {error}") from error
        return given or self._further.get(setting.name, "")

    def _file_of(self, setting: Setting) -> str:
        """The variable that names a file with a secret, as container engines give them; empty where there is none."""
        return f"{setting.name}_FILE" if setting.secret and not self._inputs else ""

    def _lacks(self, setting: Setting, why: str = "") -> None:
        """Keep that a setting is missing, and why it is needed, where its meaning alone does not say so."""
        state = "empty" if self._inputs and setting.input_name else "not set"
        self._tell(setting, f"is {state}. {why or setting.meaning}", empty=True)

    def _called(self, setting: Setting) -> str:
        return (self._inputs and setting.input_name) or setting.name

    def _lacks_key(self, agent: AgentSettings) -> None:
        """Keep that the key of the model service is missing, or that the key of another one is there instead."""
        provider = agent.provider
        others = [name for name, key in PROVIDER_KEYS.items() if getattr(agent, key.field) is not None]
        if self._inputs and others and not self._written(AGENT["provider"]):
            text = f"There is a key for `{others[0]}`, and without the input `provider` the service is `{provider}`."
            self._problems.append(InputProblem(text=text, input="provider", line=f"provider: {others[0]}"))
        else:
            self._lacks(PROVIDER_KEYS[provider], f"The model service `{provider}` cannot be asked without its key.")

    def _tell(self, setting: Setting, what: str, *, empty: bool = False) -> None:
        """Keep a problem with a setting, under the name by which it was set."""
        self._wrong.add(setting)
        name = setting.input_name if self._inputs else ""
        if not name:
            text = f"{setting.name} {what} Example: {setting.name}={setting.example}"
            self._problems.append(InputProblem(text=text))
            return
        line = yaml.safe_dump({name: setting.example}, allow_unicode=True, width=1000).strip()
        if setting.example.isdecimal():
            line = f"{name}: {setting.example}"
        if setting.secret and setting.field != "token":
            line = f"{name}: ${{{{ secrets.{setting.name} }}}}"
        secret = empty and setting in {*PROVIDER_KEYS.values(), AGENT["base_url_key"]}
        self._problems.append(InputProblem(text=f"The input `{name}` {what}", input=name, line=line, secret=secret))
