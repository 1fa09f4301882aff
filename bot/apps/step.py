"""One step of a workflow as a process: masks first, then the work, and at the end an exit code."""

from __future__ import annotations

import sys

from agent_runtime import AgentError, SettingsError, require_output_schema
from bot.apps.action import commands, misconfigured
from bot.apps.action.conclusion import Conclusion, exit_code
from bot.apps.action.log import StepLog
from bot.apps.action.notes import notes_on
from bot.apps.action.work import work_step
from bot.apps.logs import start_log
from bot.apps.process import guard
from bot.apps.services import redactor_for
from bot.domain.errors import BotError, ConfigError, InputProblem, InputsError
from bot.settings.model import ActionSettings, ActionSurvey

_ROOT = (
    "This runner works as root, and nothing on the machine is safe from root if the sandbox fails. Use another user "
    "for the runner; or, if the machine is discarded after the job, set the input `allow-root`."
)


async def take_step(survey: ActionSurvey) -> int:
    """Handle the event of one workflow run.

    Args:
        survey: what the step was given.

    Returns:
        The exit code of the step.
    """
    settings = survey.settings
    for secret in (settings.token, *settings.agent.secrets, settings.inputs.session_key):
        for line in commands.mask(secret.get_secret_value()) if secret is not None else ():
            say(line)
    redactor = redactor_for(settings)
    problems = survey.problems or _of_root(settings) or await _of_schema(settings)
    if not problems:
        try:
            start_log(redactor)
            end = await work_step(settings, listeners=[StepLog(say, redactor.redact)])
            for line in notes_on(end):
                say(redactor.redact(line))
            return exit_code(end.conclusion)
        except InputsError as error:
            problems = error.wrong
        except (BotError, AgentError) as error:
            problems = (misconfigured.problem_of(error),)
    await misconfigured.tell(settings, problems, redactor=redactor, say=say)
    return exit_code(Conclusion.MISCONFIGURED)


def say(line: str) -> None:
    """Write to the step's output at once: the runner carries commands out in the order in which they come."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _of_root(settings: ActionSettings) -> tuple[InputProblem, ...]:
    """Close this process to others; what is wrong where it belongs to root, who must allow that."""
    try:
        guard(allow_root=settings.agent.allow_root)
    except ConfigError:
        return (InputProblem(text=_ROOT, input="allow-root", line="allow-root: 'yes'"),)
    return ()


async def _of_schema(settings: ActionSettings) -> tuple[InputProblem, ...]:
    """What is wrong with a schema that is in the workflow itself."""
    schema = settings.inputs.output_schema
    try:
        if isinstance(schema, dict):
            await require_output_schema(schema)
    except SettingsError as error:
        return (InputProblem(text=f"The input `output-schema` is not valid. {error}", input="output-schema"),)
    return ()
