"""Operator settings: the only reader of the environment. `table.py` says what each is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from bot.domain.errors import ConfigError, InputProblem, InputsError, OutsideActionsError
from bot.settings.input_table import INPUTS
from bot.settings.model import ActionInputs, ActionSettings, ActionSurvey, AgentSettings, Settings, Survey, bounds_of
from bot.settings.reader import SECRETS, Reader, spellings
from bot.settings.runner_table import RUNNER
from bot.settings.table import AGENT, PROVIDER_KEYS, SERVICE

__all__ = [
    "ActionInputs",
    "ActionSettings",
    "ActionSurvey",
    "AgentSettings",
    "Settings",
    "Survey",
    "bounds_of",
    "load",
    "load_action",
    "load_demo",
    "survey",
    "survey_action",
]


_UNSEALED = "With `approvals: artifact` it seals the runs that wait, as there is no key of a model service."


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read what `codepilot serve` and `codepilot work` need; a variable that is empty counts as not set.

    Args:
        environ: the variables, by default the process's own.

    Raises:
        ConfigError: with every missing, wrong and unknown setting at once.
    """
    reader = Reader(os.environ if environ is None else environ)
    service = reader.read(SERVICE)
    agent = reader.agent()
    reader.check()
    if environ is None:
        _forget_secrets()
    return Settings(agent=agent, **service)


def survey(environ: Mapping[str, str] | None = None) -> Survey:
    """Read as much as there is of what `codepilot serve` needs.

    Args:
        environ: the variables, by default the process's own.
    """
    reader = Reader(os.environ if environ is None else environ)
    service, agent = reader.read(SERVICE), reader.agent()
    problems: tuple[str, ...] = ()
    try:
        reader.check()
    except ConfigError as error:
        problems = error.problems
    if environ is None:
        _forget_secrets()
    return Survey(
        problems=problems,
        agent=reader.usual(agent),
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
    given = dict(os.environ if environ is None else environ)
    _require_runner(given)
    data_dir = AGENT["data_dir"].name
    if (temporary := given.get("RUNNER_TEMP")) and not given.get(data_dir):
        given[data_dir] = f"{temporary}/codepilot"
    reader = Reader(given, inputs=True)
    if given.get("RUNNER_ENVIRONMENT") == "github-hosted":  # a machine that lives for one job
        reader.default(AGENT["allow_root"], "yes")
    runner, inputs = reader.read(RUNNER), reader.read(INPUTS)
    agent = reader.agent()
    if inputs["approvals"] == "artifact" and not (inputs["session_key"] or agent.api_key):
        reader.lacks(INPUTS["session_key"], _UNSEALED)
    problems: tuple[InputProblem, ...] = ()
    try:
        reader.check()
    except InputsError as error:
        problems = error.wrong
        agent, runner["token"] = reader.usual(agent), runner["token"] or SecretStr("")
    if environ is None:
        _forget_secrets()
    wanted = ActionInputs(**{key: value for key, value in inputs.items() if value is not None})
    return ActionSurvey(problems=problems, settings=ActionSettings(agent=agent, inputs=wanted, **runner))


def _require_runner(given: Mapping[str, str]) -> None:
    """The runner sets these for every step, whatever the workflow says."""
    needed = [each.name for key, each in RUNNER.items() if each.default is None and key != "token"]
    if missing := [name for name in needed if not given.get(name, "").strip()]:
        raise OutsideActionsError(
            f"This is no step of a GitHub Actions workflow: {', '.join(missing)} {'are' if missing[1:] else 'is'} not "
            "set. Use the action in a workflow, as docs/action.md shows; on your own machine, `codepilot run` does one "
            "task."
        )


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
    reader = Reader(given)
    reader.default(AGENT["level"], "auto")  # who watches the demo is not asked to approve in a comment
    agent = reader.agent()
    reader.check()
    if environ is None:
        _forget_secrets()
    return agent


def _forget_secrets() -> None:
    """Take the secrets out of the environment, once they were read: what is started later must not inherit them."""
    for setting in SECRETS:
        for written in spellings(setting):
            os.environ.pop(written, None)
