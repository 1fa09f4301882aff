"""Load settings from the environment and the settings file; `models.py` defines them.

Nothing else of the bot reads the environment. Variables take precedence over the file. All problems are reported at
once. Secrets are removed from `os.environ`, so that child processes do not inherit them.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, create_model

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
    lasting_key,
    server_of,
    settings_of,
)
from bot.settings.parsing import read_content, read_secret

Shape = TypeVar("Shape", bound=BaseModel)

_MAX_BYTES = 256 * 1024
_MODEL_MEANINGS = {"scripted": "the path of the script", "azure": "the name of your deployment"}
_ACTION_OUTAGE = 900.0
"""Seconds that a run waits for the model service; in a workflow nothing retries later."""
_FOREIGN_KEY = (
    "is not set, and {key} is not sent to {url}, which is another server. Set that server's key here, or remove {key} "
    "if it needs none."
)
_MISSING_SESSION_KEY = (
    "With `approvals: artifact` it encrypts waiting runs, since no model service's key has 32 characters or more."
)
_KEY_VARIABLES = {setting.name for setting in PROVIDER_KEYS.values()}
_OAUTH_SETTINGS = (SERVICE["client_id"], SERVICE["client_secret"])
_DEMO_CAPS = "thread=60,user=200,repository=200"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of `codepilot serve` and `codepilot work`.

    Raises:
        ConfigError: with all problems.
    """
    result = survey(environ)
    if result.problems:
        raise ConfigError(result.problems)
    return result.settings


def survey(environ: Mapping[str, str] | None = None) -> Survey:
    reader = Reader(_take_environment(environ))
    service, agent = _complete_addresses(reader.read_fields(Settings)), reader.read_agent()
    reader.require_together(*_OAUTH_SETTINGS)
    empty: dict[str, Any] = {"webhook_secret": SecretStr(""), "app_id": 0, "private_key": SecretStr("")}
    settings = Settings(agent=agent, **(empty | service))
    return Survey(
        problems=tuple(problem.text for problem in reader.find_problems()),
        settings=settings,
        invalid_fields=reader.invalid_fields,
    )


def load_action(environ: Mapping[str, str] | None = None) -> ActionSettings:
    """Read the settings of `codepilot act`; `CODEPILOT_X_Y` may also be the input `x-y`.

    Raises:
        InputsError: with all problems.
        OutsideActionsError: not a workflow step.
    """
    result = survey_action(environ)
    if result.problems:
        raise InputsError(result.problems)
    return result.settings


def survey_action(environ: Mapping[str, str] | None = None) -> ActionSurvey:
    env = _take_environment(environ)
    data_dir = AGENT["data_dir"].name
    if (temporary := env.get("RUNNER_TEMP")) and not env.get(data_dir):
        env[data_dir] = f"{temporary}/codepilot"
    # GitHub-hosted runners are discarded after one job.
    is_hosted = env.get("RUNNER_ENVIRONMENT") == "github-hosted"
    reader = Reader(env, inputs=True, defaults={AGENT["allow_root"].name: "yes"} if is_hosted else None)
    runner = {"token": SecretStr("")} | reader.read_fields(ActionSettings)
    if missing := [item.name for item in RUNNER.values() if item.default is None and item.field not in runner]:
        raise OutsideActionsError(
            f"This is not a step of a GitHub Actions workflow: {', '.join(missing)} {'are' if missing[1:] else 'is'} "
            "not set. Use the action in a workflow, as docs/action.md shows; on your own machine, `codepilot run` does "
            "one task."
        )
    inputs, agent = reader.read_action()
    settings = ActionSettings(agent=agent, inputs=inputs, **runner)
    return ActionSurvey(problems=reader.find_problems(), settings=settings)


def load_demo(
    script: Path | None,
    *,
    data_dir: Path,
    toolchains: tuple[Path, ...],
    base_url: str = "",
    model: str = "",
    environ: Mapping[str, str] | None = None,
) -> AgentSettings:
    """Read the settings of `codepilot demo`, with the model at `base_url`, else one whose key is set, else the script.

    Raises:
        ConfigError: no model, or an invalid setting.
    """
    env = _take_environment(environ)
    provider, model_name, address = AGENT["provider"].name, AGENT["model"].name, AGENT["base_url"].name
    if base_url:
        # Keys in the environment belong to other addresses.
        env = {name: value for name, value in env.items() if name not in _KEY_VARIABLES}
    env |= {name: value for name, value in ((address, base_url), (model_name, model)) if value}
    with_keys = (name for name, setting in PROVIDER_KEYS.items() if env.get(setting.name, "").strip())
    env[provider] = env.get(provider) or ("openai" if env.get(address) else next(with_keys, "scripted"))
    if env[provider] == "scripted" and script is not None:
        env[model_name] = str(script)
    if env[provider] == "scripted" and not env.get(model_name):
        keys = " or ".join(setting.name for setting in PROVIDER_KEYS.values())
        raise ConfigError(
            (f"no model: set {keys}, or name a server with --base-url, or pass --script FILE with replies to replay",)
        )
    env |= {AGENT["data_dir"].name: str(data_dir), AGENT["toolchains"].name: ":".join(map(str, toolchains))}
    # The demo needs no approvals, allows many runs, and waits for no model for hours.
    defaults = {AGENT["level"].name: "auto", AGENT["caps"].name: _DEMO_CAPS, AGENT["model_patience"].name: "60"}
    reader = Reader(env, defaults=defaults)
    agent = reader.read_agent()
    if problems := reader.find_problems():
        raise ConfigError(tuple(problem.text for problem in problems))
    return agent


def load_evaluation(
    configs: Mapping[str, Mapping[str, str]],
    *,
    toolchains: tuple[Path, ...],
    environ: Mapping[str, str] | None = None,
) -> dict[str, AgentSettings]:
    """Read the settings of an evaluation's configurations; their values, by variable, override the environment's.

    Raises:
        ConfigError: with all problems, after the configurations' names.
    """
    common, loaded, problems = _take_environment(environ), dict[str, AgentSettings](), list[str]()
    address, own_key = AGENT["base_url"].name, AGENT["base_url_key"].name
    defaults = {AGENT["model_patience"].name: "60", AGENT["toolchains"].name: ":".join(map(str, toolchains))}
    for name, values in configs.items():
        env = {**common, **values}
        # Of the keys in the environment, each configuration gets those of its own model service.
        foreign = _KEY_VARIABLES if address in values else set() if env.get(address) else {own_key}
        reader = Reader({key: value for key, value in env.items() if key not in foreign}, defaults=defaults)
        loaded[name] = reader.read_agent()
        problems += [f"{name}: {problem.text}" for problem in reader.find_problems()]
    if problems:
        raise ConfigError(tuple(problems))
    return loaded


def _take_environment(environ: Mapping[str, str] | None) -> dict[str, str]:
    """Return the variables, and remove secrets from the process's environment."""
    if environ is not None:
        return dict(environ)
    variables = dict(os.environ)
    clouds = (entry.cloud.secrets for entry in CATALOG.values() if entry.cloud)
    for name in (*(name for setting in SECRETS for name in variables_of(setting)), *chain.from_iterable(clouds)):
        os.environ.pop(name, None)
    return variables


def _complete_addresses(service: dict[str, Any]) -> dict[str, Any]:
    if "server_url" in service:
        return {"api_url": api_of(service["server_url"]), **service}
    return {"server_url": server_of(service["api_url"]), **service} if "api_url" in service else service


class Reader:
    """Reads settings and collects problems. The values are valid only without problems.

    Args:
        environ: variables.
        inputs: whether to name the Action's inputs in errors.
        defaults: text by variable, in place of the usual defaults.
    """

    def __init__(
        self, environ: Mapping[str, str], *, inputs: bool = False, defaults: Mapping[str, str] | None = None
    ) -> None:
        self._environ = environ
        self._inputs = inputs
        self._defaults: dict[str, str] = dict(defaults or {})
        self._invalid: set[Setting] = set()
        self._problems: list[InputProblem] = []
        if path := self._text_of(CONFIG):
            try:
                self._defaults |= read_file(CONFIG.parse(path), [item for item in SETTINGS if item is not CONFIG])
            except ConfigError as error:
                self._problems += [InputProblem(text=item) for item in error.problems]
            except ValueError as error:
                self._report(CONFIG, f"{error}.")

    def read_fields(self, model: type) -> dict[str, Any]:
        """Read the fields of a model that are set and valid."""
        values = {}
        for field, setting in settings_of(model).items():
            try:
                text = self._text_of(setting)
                if text:
                    values[field] = setting.parse(text)
                elif setting.default is None:
                    self._report_missing(setting)
            except ValueError as error:
                self._report(setting, f"{error}.")
        return values

    def require_together(self, *settings: Setting) -> None:
        if not self._invalid.isdisjoint(settings):
            return
        missing = [setting for setting in settings if not self._text_of(setting)]
        if 0 < len(missing) < len(settings):
            present = next(setting for setting in settings if setting not in missing)
            self._report_missing(missing[0], f"{present.name} is, and has no effect without it.")

    def read_agent(self) -> AgentSettings:
        agent = AgentSettings(**self.read_fields(AgentSettings))
        agent = replace(agent, sdk_address=self._read_sdk_address(agent.provider))
        provider, address, own_key = agent.provider, AGENT["base_url"], AGENT["base_url_key"]
        key = PROVIDER_KEYS.get(provider)
        if key and agent.api_key is None and not self._invalid & {AGENT["provider"], address, key}:
            if agent.endpoint.needs_key:
                self._report_missing_key(agent)
            elif getattr(agent, key.field) is not None:
                self._report(own_key, _FOREIGN_KEY.format(key=self._name_of(key), url=agent.base_url), empty=True)
        if agent.base_url_key is not None and agent.base_url is None and address not in self._invalid:
            self._report_missing(address, f"It is where the key {self._name_of(own_key)} is sent to.")
        if provider in _MODEL_MEANINGS and not agent.model:
            self._report_missing(AGENT["model"], f"For the provider `{provider}` it is {_MODEL_MEANINGS[provider]}.")
        if (cloud := CATALOG[provider].cloud) is not None:
            agent = replace(agent, cloud=cloud.read(self._environ))
            if missing := cloud.missing(agent.cloud):
                text = f"The provider `{provider}` needs the environment variables {missing}, as its SDK does."
                self._problems.append(InputProblem(text=text))
            if agent.base_url:
                self._report(address, f"is not for the provider `{provider}`: its credentials go there.")
        if agent.sandbox == "docker" and not agent.docker_image:
            self._report_missing(AGENT["docker_image"], "The sandbox `docker` needs an image that is on this machine.")
        agent = replace(agent, model=agent.model or MODELS.get(provider, ""))
        return replace(agent, outage_seconds=_ACTION_OUTAGE) if self._inputs else agent

    def _read_sdk_address(self, provider: str) -> dict[str, str]:
        variable = CATALOG[provider].address_variable or ""
        text = self._environ.get(variable, "").strip()
        try:
            return {variable: AGENT["base_url"].parse(text)} if text else {}
        except ValueError as error:
            self._problems.append(InputProblem(text=f"{variable} {error}."))
            return {}

    def read_action(self) -> tuple[ActionInputs, AgentSettings]:
        inputs, agent = ActionInputs(**self.read_fields(ActionInputs)), self.read_agent()
        has_key = inputs.session_key or lasting_key(agent) or INPUTS["session_key"] in self._invalid
        if inputs.approvals == "artifact" and not has_key:
            self._report_missing(INPUTS["session_key"], _MISSING_SESSION_KEY)
        return inputs, agent

    def find_problems(self) -> tuple[InputProblem, ...]:
        """Return all problems, unknown variables included. Call this last."""
        settings = (*SETTINGS, *(INPUTS.values() if self._inputs else ()))
        names = [name for item in settings for name in (item.name, self._file_of(item)) if name.startswith(PREFIX)]
        known = [name.removeprefix(PREFIX) for name in names]
        variables = sorted(name.removeprefix(PREFIX) for name in self._environ if name.startswith(PREFIX))
        unknown = []
        for name in (name for name in variables if name not in known):
            similar = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {PREFIX}{similar[0]}?" if similar else "remove it"
            unknown.append(InputProblem(text=f"{PREFIX}{name} is not a setting of this version; {remedy}"))
        return (*self._problems, *unknown)

    @property
    def invalid_fields(self) -> frozenset[str]:
        """Fields that are missing or invalid."""
        return frozenset(setting.field for setting in self._invalid)

    def _text_of(self, setting: Setting) -> str:
        """Return a setting's text: from the environment or secret file, else the settings file, else the default."""
        names = variables_of(setting) if self._inputs else (setting.name,)
        text = next((text for text in (self._environ.get(name, "") for name in names) if text.strip()), "")
        text = text if setting.verbatim else text.strip()
        file = self._file_of(setting)
        if path := self._environ.get(file, "").strip():
            if text:
                raise ValueError(f"is set, and so is {file}; remove one of them")
            try:
                return read_secret(path)
            except ValueError as error:
                raise ValueError(f"is to be read from a file, but {file} {error}") from error
        return text or self._defaults.get(setting.name, "")

    def _file_of(self, setting: Setting) -> str:
        return f"{setting.name}_FILE" if setting.secret and not self._inputs else ""

    def _report_missing(self, setting: Setting, why: str = "") -> None:
        state = "empty" if self._inputs and setting.input_name else "not set"
        self._report(setting, f"is {state}. {why or setting.help_text}", empty=True)

    def _name_of(self, setting: Setting) -> str:
        return (self._inputs and setting.input_name) or setting.name

    def _report_missing_key(self, agent: AgentSettings) -> None:
        provider = agent.provider
        available = [name for name, key in PROVIDER_KEYS.items() if getattr(agent, key.field) is not None]
        if self._inputs and available and not self._text_of(AGENT["provider"]):
            text = f"There is a key for `{available[0]}`, and without the input `provider` the service is `{provider}`."
            self._problems.append(InputProblem(text=text, input="provider", line=f"provider: {available[0]}"))
        else:
            self._report_missing(
                PROVIDER_KEYS[provider], f"The model service `{provider}` cannot be asked without its key."
            )

    def _report(self, setting: Setting, problem: str, *, empty: bool = False) -> None:
        self._invalid.add(setting)
        name = setting.input_name if self._inputs else ""
        if not name:
            text = f"{setting.name} {problem} Example: {setting.name}={setting.example}"
            self._problems.append(InputProblem(text=text))
            return
        line = yaml.safe_dump({name: setting.example}, allow_unicode=True, width=1000).strip()
        if setting.example.isdecimal():
            line = f"{name}: {setting.example}"
        if setting.secret and setting.field != "token":
            line = f"{name}: ${{{{ secrets.{setting.name} }}}}"
        secret = empty and setting in {*PROVIDER_KEYS.values(), AGENT["base_url_key"]}
        self._problems.append(InputProblem(text=f"The input `{name}` {problem}", input=name, line=line, secret=secret))


def variables_of(setting: Setting) -> tuple[str, ...]:
    """Return a setting's variables: runners set an input `max-steps` as INPUT_MAX-STEPS."""
    variable = f"INPUT_{setting.input_name.upper()}"
    return (setting.name, variable, variable.replace("-", "_")) if setting.input_name else (setting.name,)


def read_file(path: Path, settings: Collection[Setting]) -> dict[str, str]:
    """Read the settings file into a mapping by variable.

    Raises:
        ValueError: unreadable; a clause without the setting's name.
        ConfigError: invalid keys or values, or a secret in a file open to every user.
    """
    content, mode = read_content(path, most=_MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"names a file that is not UTF-8 (byte {error.start}): {path}; save it as UTF-8") from None
    try:
        file = read_settings(text, model_of(settings, _Keys), source=str(path))
    except SettingsError as error:
        raise ConfigError(tuple(str(error).splitlines())) from error
    texts = {setting.name: written for setting in settings if (written := getattr(file, setting.key))}
    secrets = sorted(setting.key for setting in settings if setting.secret and setting.name in texts)
    if secrets and mode & stat.S_IRWXO:
        raise ConfigError((f"{path}: `{secrets[0]}`: is a secret in a file open to every user; run: chmod 600 {path}",))
    return texts


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid")


def model_of(settings: Iterable[Setting], base: type[Shape]) -> type[Shape]:
    """Return a model with a key for each setting, besides those of `base`; its value is the setting's text."""
    keys: dict[str, Any] = {
        setting.key: (Annotated[str, BeforeValidator(partial(_as_text, setting))], "") for setting in settings
    }
    return create_model("Keys", __base__=base, **keys)


def _as_text(setting: Setting, value: object) -> str:
    if isinstance(value, dict):
        value = [f"{_scalar_text(name)}={_scalar_text(item)}" for name, item in value.items()]
    text = setting.separator.join(_scalar_text(item) for item in (value if isinstance(value, list) else [value]))
    if text:
        setting.parse(text)
    return text


def _scalar_text(value: object) -> str:
    if isinstance(value, bool):  # YAML 1.1 reads `on` and `yes` as one, `off` and `no` as the other
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError("must be text or a number; put it in quotes, or remove the key")


def bypass_proxies(host: str) -> None:
    """Add a host to `no_proxy` of this process and its children."""
    hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    os.environ["no_proxy"] = hosts if hosts == "*" else f"{host},{hosts}"


def derive_key(secret: SecretStr, purpose: str) -> bytes:
    """Derive a key from a secret; each purpose has its own."""
    return hmac.digest(secret.get_secret_value().encode(), f"codepilot {purpose}".encode(), hashlib.sha256)
