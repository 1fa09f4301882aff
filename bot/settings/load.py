"""Load the operator's settings from the environment and the settings file.

Nothing else of the bot reads the environment. `models.py` defines the settings. There is a `load` or `survey` function
for each way to run the bot; all of them report every missing, wrong and unknown setting at once. A variable takes
precedence over the file, and the file over defaults. Secrets are removed from the process's environment, so that
programs that it starts do not inherit them.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, ConfigDict, SecretStr, create_model

from agent_runtime import CATALOG, SettingsError, read_settings
from bot.domain.errors import ConfigError, InputProblem, InputsError, OutsideActionsError
from bot.settings.models import (
    AGENT,
    CONFIG,
    INPUTS,
    MODELS,
    PREFIX,
    PROVIDER_KEYS,
    RUNNER,
    SECRETS,
    SERVICE,
    SETTINGS,
    ActionInputs,
    ActionSettings,
    ActionSurvey,
    AgentSettings,
    Setting,
    Settings,
    Survey,
    api_of,
    server_of,
    settings_of,
)
from bot.settings.parsing import content_of, secret_in

_MAX_BYTES = 256 * 1024
_MODEL_MEANS = {"scripted": "the path of the script", "azure": "the name of your deployment"}
_ACTION_OUTAGE = 900.0
"""Seconds for which a run itself waits for the model; in a workflow nobody tries again after it."""
_OTHER_ADDRESS = (
    "is not set, and {key} is not sent to {url}, which is another server. Set that server's key here, or remove {key} "
    "if it needs none."
)
_UNSEALED = "With `approvals: artifact` it encrypts waiting runs, because there is no key of a model service."
_KEY_VARIABLES = {setting.name for setting in PROVIDER_KEYS.values()}
_SIGN_IN = (SERVICE["client_id"], SERVICE["client_secret"])
_DEMO_CAPS = "thread=60,user=200,repository=200"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of `codepilot serve` and `codepilot work`; a variable that is empty counts as not set.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: with every missing, wrong and unknown setting at once.
    """
    found = survey(environ)
    if found.problems:
        raise ConfigError(found.problems)
    return found.settings


def survey(environ: Mapping[str, str] | None = None) -> Survey:
    """Read the settings of `codepilot serve` as far as they can be read.

    Args:
        environ: the variables, by default the process's own.
    """
    reader = Reader(_take_environment(environ))
    service, agent = _with_both_addresses(reader.values(Settings)), reader.agent()
    reader.require_together(*_SIGN_IN)
    nothing: dict[str, Any] = {"webhook_secret": SecretStr(""), "app_id": 0, "private_key": SecretStr("")}
    settings = Settings(agent=agent, **(nothing | service))
    return Survey(problems=tuple(each.text for each in reader.problems()), settings=settings, wrong=reader.wrong)


def load_action(environ: Mapping[str, str] | None = None) -> ActionSettings:
    """Read the settings of `codepilot act`; each `CODEPILOT_X_Y` may also come as the action's input `x-y`.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        InputsError: with every missing, wrong and unknown input at once.
        OutsideActionsError: this is no step of a workflow.
    """
    found = survey_action(environ)
    if found.problems:
        raise InputsError(found.problems)
    return found.settings


def survey_action(environ: Mapping[str, str] | None = None) -> ActionSurvey:
    """Read the settings of `codepilot act` as far as they can be read.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        OutsideActionsError: this is no step of a workflow.
    """
    given = _take_environment(environ)
    data_dir = AGENT["data_dir"].name
    if (temporary := given.get("RUNNER_TEMP")) and not given.get(data_dir):
        given[data_dir] = f"{temporary}/codepilot"
    # GitHub's own runners are machines that live for one job.
    hosted = given.get("RUNNER_ENVIRONMENT") == "github-hosted"
    reader = Reader(given, inputs=True, defaults={AGENT["allow_root"].name: "yes"} if hosted else None)
    runner = {"token": SecretStr("")} | reader.values(ActionSettings)
    if missing := [each.name for each in RUNNER.values() if each.default is None and each.field not in runner]:
        raise OutsideActionsError(
            f"This is not a step of a GitHub Actions workflow: {', '.join(missing)} {'are' if missing[1:] else 'is'} "
            "not set. Use the action in a workflow, as docs/action.md shows; on your own machine, `codepilot run` does "
            "one task."
        )
    inputs, agent = reader.action()
    settings = ActionSettings(agent=agent, inputs=inputs, **runner)
    return ActionSurvey(problems=reader.problems(), settings=settings)


def load_demo(
    script: Path | None,
    *,
    data_dir: Path,
    toolchains: tuple[Path, ...],
    base_url: str = "",
    model: str = "",
    environ: Mapping[str, str] | None = None,
) -> AgentSettings:
    """Read the agent's settings for `codepilot demo`: the model at the address, or whose key is there, else the script.

    Args:
        script: the replies of the scripted model; None when there is nothing to replay.
        data_dir: where everything is kept.
        toolchains: directories that the sandbox shows.
        base_url: the address of a model service, in place of the one in the variables.
        model: its model, the same.
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: no model can be used, or a setting is wrong.
    """
    given = _take_environment(environ)
    provider, named, address = AGENT["provider"].name, AGENT["model"].name, AGENT["base_url"].name
    if base_url:
        # The person names this address for the demo; a key that is there for another one stays here.
        given = {name: value for name, value in given.items() if name not in _KEY_VARIABLES}
    given |= {name: value for name, value in ((address, base_url), (named, model)) if value}
    with_key = (name for name, setting in PROVIDER_KEYS.items() if given.get(setting.name, "").strip())
    given[provider] = given.get(provider) or ("openai" if given.get(address) else next(with_key, "scripted"))
    if given[provider] == "scripted" and script is not None:
        given[named] = str(script)
    if given[provider] == "scripted" and not given.get(named):
        keys = " or ".join(setting.name for setting in PROVIDER_KEYS.values())
        raise ConfigError(
            (f"no model: set {keys}, or name a server with --base-url, or pass --script FILE with replies to replay",)
        )
    given |= {AGENT["data_dir"].name: str(data_dir), AGENT["toolchains"].name: ":".join(map(str, toolchains))}
    # The person who watches the demo is not asked to approve in a comment, and may try things again and again.
    reader = Reader(given, defaults={AGENT["level"].name: "auto", AGENT["caps"].name: _DEMO_CAPS})
    agent = reader.agent()
    if problems := reader.problems():
        raise ConfigError(tuple(each.text for each in problems))
    return agent


def _take_environment(environ: Mapping[str, str] | None) -> dict[str, str]:
    """The variables. Those of the process lose their secrets: programs started later must not inherit them."""
    if environ is not None:
        return dict(environ)
    given = dict(os.environ)
    clouds = (entry.cloud.secrets for entry in CATALOG.values() if entry.cloud)
    for name in (*(name for setting in SECRETS for name in spellings(setting)), *chain.from_iterable(clouds)):
        os.environ.pop(name, None)
    return given


def _with_both_addresses(service: dict[str, Any]) -> dict[str, Any]:
    """The settings with both addresses of the GitHub server, where one of them is set."""
    if "server_url" in service:
        return {"api_url": api_of(service["server_url"]), **service}
    return {"server_url": server_of(service["api_url"]), **service} if "api_url" in service else service


class Reader:
    """Reads settings, and collects the problems until all were read; its values may be used only without problems.

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
        self._defaults: dict[str, str] = dict(defaults or {})
        self._wrong: set[Setting] = set()
        self._problems: list[InputProblem] = []
        if written := self._written(CONFIG):
            try:
                self._defaults |= read_file(CONFIG.parse(written), [each for each in SETTINGS if each is not CONFIG])
            except ConfigError as error:
                self._problems += [InputProblem(text=each) for each in error.problems]
            except ValueError as error:
                self._report(CONFIG, f"{error}.")

    def values(self, model: type) -> dict[str, Any]:
        """Read the fields of a model that are set and valid. A required field that is not set is a problem."""
        found = {}
        for field, setting in settings_of(model).items():
            try:
                written = self._written(setting)
                if written:
                    found[field] = setting.parse(written)
                elif setting.default is None:
                    self._report_missing(setting)
            except ValueError as error:
                self._report(setting, f"{error}.")
        return found

    def require_together(self, *settings: Setting) -> None:
        """Report a problem if only some of these settings are set."""
        if not self._wrong.isdisjoint(settings):
            return
        missing = [each for each in settings if not self._written(each)]
        if 0 < len(missing) < len(settings):
            given = next(each for each in settings if each not in missing)
            self._report_missing(missing[0], f"{given.name} is, and has no effect without it.")

    def agent(self) -> AgentSettings:
        """Read the agent's settings; those that are wrong or missing have their defaults."""
        agent = AgentSettings(**self.values(AgentSettings))
        provider, address, own_key = agent.provider, AGENT["base_url"], AGENT["base_url_key"]
        key = PROVIDER_KEYS.get(provider)
        if key and agent.api_key is None and not self._wrong & {AGENT["provider"], address, key}:
            if CATALOG[provider].is_own(agent.base_url):
                self._report_missing_key(agent)
            elif getattr(agent, key.field) is not None:
                self._report(own_key, _OTHER_ADDRESS.format(key=self._name_of(key), url=agent.base_url), empty=True)
        if agent.base_url_key is not None and agent.base_url is None and address not in self._wrong:
            self._report_missing(address, f"It is where the key {self._name_of(own_key)} is sent to.")
        if provider in _MODEL_MEANS and not agent.model:
            self._report_missing(AGENT["model"], f"For the provider `{provider}` it is {_MODEL_MEANS[provider]}.")
        if (cloud := CATALOG[provider].cloud) is not None:
            agent = replace(agent, cloud=cloud.read(self._environ))
            if lacking := cloud.missing(agent.cloud):
                said = f"The provider `{provider}` needs the environment variables {lacking}, as its SDK does."
                self._problems.append(InputProblem(text=said))
            if agent.base_url:
                self._report(address, f"is not for the provider `{provider}`: its credentials go there.")
        if agent.sandbox == "docker" and not agent.docker_image:
            self._report_missing(AGENT["docker_image"], "The sandbox `docker` needs an image that is on this machine.")
        agent = replace(agent, model=agent.model or MODELS.get(provider, ""))
        return replace(agent, outage_seconds=_ACTION_OUTAGE) if self._inputs else agent

    def action(self) -> tuple[ActionInputs, AgentSettings]:
        """Read the action's own inputs and the agent's settings; the wrong and missing ones have their defaults."""
        inputs, agent = ActionInputs(**self.values(ActionInputs)), self.agent()
        sealed = inputs.session_key or agent.api_key or INPUTS["session_key"] in self._wrong
        if inputs.approvals == "artifact" and not sealed:
            self._report_missing(INPUTS["session_key"], _UNSEALED)
        return inputs, agent

    def problems(self) -> tuple[InputProblem, ...]:
        """Return all problems, unknown variables included; to be called after everything was read."""
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

    def _written(self, setting: Setting) -> str:
        """Return a setting's text from the environment or the secret's file, else the settings file, else a default.

        Raises:
            ValueError: the secret's file cannot be used.
        """
        names = spellings(setting) if self._inputs else (setting.name,)
        given = next((text for text in (self._environ.get(each, "") for each in names) if text.strip()), "")
        given = given if setting.verbatim else given.strip()
        file = self._file_of(setting)
        if place := self._environ.get(file, "").strip():
            if given:
                raise ValueError(f"is set, and so is {file}; remove one of them")
            try:
                return secret_in(place)
            except ValueError as error:
                raise ValueError(f"is to be read from a file, but {file} {error}") from error
        return given or self._defaults.get(setting.name, "")

    def _file_of(self, setting: Setting) -> str:
        """The variable that names a file with a secret, as container engines give them; empty where there is none."""
        return f"{setting.name}_FILE" if setting.secret and not self._inputs else ""

    def _report_missing(self, setting: Setting, why: str = "") -> None:
        """Report a setting that is missing, and the reason that it is needed, if its meaning does not say so."""
        state = "empty" if self._inputs and setting.input_name else "not set"
        self._report(setting, f"is {state}. {why or setting.meaning}", empty=True)

    def _name_of(self, setting: Setting) -> str:
        return (self._inputs and setting.input_name) or setting.name

    def _report_missing_key(self, agent: AgentSettings) -> None:
        """Report that the key of the model service is missing, or that only another service's key is set."""
        provider = agent.provider
        others = [name for name, key in PROVIDER_KEYS.items() if getattr(agent, key.field) is not None]
        if self._inputs and others and not self._written(AGENT["provider"]):
            text = f"There is a key for `{others[0]}`, and without the input `provider` the service is `{provider}`."
            self._problems.append(InputProblem(text=text, input="provider", line=f"provider: {others[0]}"))
        else:
            self._report_missing(
                PROVIDER_KEYS[provider], f"The model service `{provider}` cannot be asked without its key."
            )

    def _report(self, setting: Setting, what: str, *, empty: bool = False) -> None:
        """Add a problem with a setting, under the name by which it was set."""
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


def spellings(setting: Setting) -> tuple[str, ...]:
    """A setting's names in the environment: the runner turns an input `max-steps` into INPUT_MAX-STEPS, and composite
    actions pass theirs on by hand."""  # noqa: D205, D209 - one sentence
    given = f"INPUT_{setting.input_name.upper()}"
    return (setting.name, given, given.replace("-", "_")) if setting.input_name else (setting.name,)


def read_file(path: Path, settings: Collection[Setting]) -> dict[str, str]:
    """The values that the file has, by the names of environment variables.

    Args:
        path: of the file.
        settings: the ones that may be set there; a file that holds a secret one must not be open to every user.

    Raises:
        ValueError: it cannot be read; a clause without the setting that names the file.
        ConfigError: it has keys or values that do not fit, or is open to every user and holds a secret.
    """
    content, mode = content_of(path, most=_MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"names a file that is not UTF-8 (byte {error.start}): {path}; save it as UTF-8") from None
    keys: dict[str, Any] = {
        each.key: (Annotated[str, BeforeValidator(partial(_as_text, each))], "") for each in settings
    }
    try:
        file = read_settings(
            text, create_model("Keys", __config__=ConfigDict(extra="forbid"), **keys), source=str(path)
        )
    except SettingsError as error:
        raise ConfigError(tuple(str(error).splitlines())) from error
    found = {each.name: written for each in settings if (written := getattr(file, each.key))}
    held = sorted(each.key for each in settings if each.secret and each.name in found)
    if held and mode & stat.S_IRWXO:
        raise ConfigError((f"{path}: `{held[0]}`: is a secret in a file open to every user; run: chmod 600 {path}",))
    return found


def _as_text(setting: Setting, value: object) -> str:
    """A value of YAML as it would be written in a variable, where it fits the setting."""
    if isinstance(value, dict):
        value = [f"{_scalar_text(name)}={_scalar_text(each)}" for name, each in value.items()]
    text = setting.between.join(_scalar_text(each) for each in (value if isinstance(value, list) else [value]))
    if text:
        setting.parse(text)
    return text


def _scalar_text(value: object) -> str:
    if isinstance(value, bool):  # YAML 1.1 reads `on` and `yes` as one, `off` and `no` as the other
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError("must be text or a number; put it in quotes, or remove the key")


def leave_out_of_proxies(host: str) -> None:
    """Let this process, and what it starts, ask no proxy that the environment names for a host."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    os.environ["no_proxy"] = named if named == "*" else f"{host},{named}"


def key_for(secret: SecretStr, purpose: str) -> bytes:
    """A key of its own for each purpose, so that the secret itself signs one thing only."""
    return hmac.digest(secret.get_secret_value().encode(), f"codepilot {purpose}".encode(), hashlib.sha256)
