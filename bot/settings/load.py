"""Load the operator's settings: the only reader of the environment. The models say what each setting is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from agent_runtime import CATALOG
from bot.domain.errors import ConfigError, InputsError, OutsideActionsError
from bot.settings.agent import AgentSettings
from bot.settings.model import ActionSettings, ActionSurvey, Settings, Survey, api_of, server_of
from bot.settings.reader import Reader, spellings
from bot.settings.table import AGENT, PROVIDER_KEYS, RUNNER, SECRETS, SERVICE

_KEY_VARIABLES = {setting.name for setting in PROVIDER_KEYS.values()}
_SIGN_IN = (SERVICE["client_id"], SERVICE["client_secret"])
_DEMO_CAPS = "thread=60,user=200,repository=200"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read what `codepilot serve` and `codepilot work` need; a variable that is empty counts as not set.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: with every missing, wrong and unknown setting at once.
    """
    reader = Reader(_taken(environ))
    service, agent = _placed(reader.values(Settings)), reader.agent()
    reader.require_together(*_SIGN_IN)
    reader.check()
    return Settings(agent=agent, **service)


def survey(environ: Mapping[str, str] | None = None) -> Survey:
    """Read as much as there is of what `codepilot serve` needs.

    Args:
        environ: the variables, by default the process's own.
    """
    reader = Reader(_taken(environ))
    service, agent = _placed(reader.values(Settings)), reader.agent()
    reader.require_together(*_SIGN_IN)
    nothing: dict[str, Any] = {"webhook_secret": SecretStr(""), "app_id": 0, "private_key": SecretStr("")}
    settings = Settings(agent=agent, **(nothing | service))
    return Survey(problems=tuple(each.text for each in reader.faults()), settings=settings, wrong=reader.wrong)


def load_action(environ: Mapping[str, str] | None = None) -> ActionSettings:
    """Read what `codepilot act` needs; each `CODEPILOT_X_Y` may also come as the action's input `x-y`.

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
    """Read as much as there is of what `codepilot act` needs.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        OutsideActionsError: this is no step of a workflow.
    """
    given = _taken(environ)
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
    return ActionSurvey(problems=reader.faults(), settings=settings)


def leave_out_of_proxies(host: str) -> None:
    """Let this process, and what it starts, ask no proxy that the environment names for a host."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    os.environ["no_proxy"] = named if named == "*" else f"{host},{named}"


def load_demo(
    script: Path | None,
    *,
    data_dir: Path,
    toolchains: tuple[Path, ...],
    base_url: str = "",
    model: str = "",
    environ: Mapping[str, str] | None = None,
) -> AgentSettings:
    """Read what `codepilot demo` needs: the model at the address, or whose key is there, else the script.

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
    given = _taken(environ)
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
    reader.check()
    return agent


def _placed(service: dict[str, Any]) -> dict[str, Any]:
    """The settings with both addresses of the GitHub server, where one of them is set."""
    if "server_url" in service:
        return {"api_url": api_of(service["server_url"]), **service}
    return {"server_url": server_of(service["api_url"]), **service} if "api_url" in service else service


def _taken(environ: Mapping[str, str] | None) -> dict[str, str]:
    """The variables. Those of the process lose their secrets: programs started later must not inherit them."""
    if environ is not None:
        return dict(environ)
    given = dict(os.environ)
    clouds = (entry.cloud.secrets for entry in CATALOG.values() if entry.cloud)
    for name in (*(name for setting in SECRETS for name in spellings(setting)), *chain.from_iterable(clouds)):
        os.environ.pop(name, None)
    return given
