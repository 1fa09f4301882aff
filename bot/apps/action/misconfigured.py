"""Report a step that cannot begin: in the log, in the summary and, to those who may command, in the thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bot.apps.action import commands
from bot.apps.action.conclusion import Conclusion
from bot.apps.action.event import delivery_from, listening_of
from bot.apps.action.files import write_outputs, write_summary
from bot.apps.action.outputs import outputs_without_run
from bot.domain.errors import BotError, InputProblem
from bot.domain.job import Job
from bot.github import GitHub
from bot.intake.triggers import job_from
from bot.jobs.context import spot_of
from bot.jobs.snapshot import check_access
from bot.publishing.active import Allowed
from bot.publishing.inputs import in_inputs
from bot.publishing.redact import Redactor
from bot.publishing.render import render_reply
from bot.publishing.text import fenced
from bot.settings.agent import bounds_of
from bot.settings.model import ActionSettings

log = logging.getLogger(__name__)

_TITLE = "Codepilot cannot start"
_WITHOUT_SECRETS = frozenset({"pull_request", "pull_request_review", "pull_request_review_comment"})
"""Events for which GitHub gives no secrets when they come from a fork."""
_FORK = (
    "GitHub passes no secrets to a workflow that a pull request from a fork starts. A maintainer can give the "
    "command in a comment: the event `issue_comment` has them."
)
_DEPENDABOT = (
    "GitHub passes a workflow that Dependabot starts only Dependabot's secrets: add this one under *Settings → "
    "Secrets and variables → Dependabot*, too."
)
_NOT_STORED = (
    "If that line is already there, the secret is missing: add it under *Settings → Secrets and variables → "
    "Actions*. If it belongs to an environment, the job needs `environment:`. If the name of the input is misspelt, "
    "GitHub shows a warning in the same run."
)


def why_empty(event: str, payload: Mapping[str, Any]) -> str:
    """Why a secret that the workflow passes on may be empty in a run.

    Args:
        event: the name of what started the run.
        payload: of that.
    """
    if _at(payload, "sender", "login") == "dependabot[bot]":
        return _DEPENDABOT
    head, base = (_at(payload, "pull_request", side, "repo", "id") for side in ("head", "base"))
    return _FORK if event in _WITHOUT_SECRETS and head != base else _NOT_STORED


def errors(problems: Sequence[InputProblem], why: str) -> list[str]:
    """The same for the log: a line each, with the YAML to write."""
    told = (
        "\n".join(filter(None, (each.text, each.line and f"with:\n  {each.line}", why if each.secret else "")))
        for each in problems[: commands.MOST_ANNOTATIONS]
    )
    return [commands.annotation("error", each.replace("*", ""), title=_TITLE) for each in told]


def explained(problems: Sequence[InputProblem], why: str) -> str:
    """The same as Markdown, with the YAML in one piece."""
    told = [each.text for each in problems]
    said = told[0] if len(told) == 1 else "\n".join(f"- {each}" for each in told)
    parts = [f"{_TITLE}.", said]
    if lines := [each.line for each in problems if each.line]:
        yaml = "\n".join(["with:", *(f"  {each}" for each in lines)])
        parts.append(f"In the step of the workflow that uses Codepilot:\n\n{fenced(yaml, 'yaml')}")
    if any(each.secret for each in problems):
        parts.append(why)
    return "\n\n".join(parts)


def problem_of(error: Exception) -> InputProblem:
    """What keeps a step from working, in the words of a workflow's author."""
    return InputProblem(text=in_inputs(str(error)))


async def tell(
    settings: ActionSettings, problems: Sequence[InputProblem], *, redactor: Redactor, say: Callable[[str], None]
) -> None:
    """Tell it in all three places.

    Args:
        settings: as far as they can be read; the token may be empty.
        problems: at least one.
        redactor: takes secrets out.
        say: takes lines for the step's output.
    """
    problems, job, why = list(problems), None, _NOT_STORED
    try:
        delivery = delivery_from(settings)
        why = why_empty(delivery.event, delivery.payload)
        found = job_from(delivery, listening_of(settings))
        job = found if isinstance(found, Job) else None
    except BotError as error:
        if str(error) not in {each.text for each in problems}:
            problems.append(InputProblem(text=str(error)))
    for line in errors(problems, why):
        say(redactor.redact(line))
    told = redactor.redact(explained(problems, why))
    if settings.output_path is not None:
        write_outputs(settings.output_path, outputs_without_run(Conclusion.MISCONFIGURED, told))
    if settings.summary_path is not None:
        write_summary(settings.summary_path, f"### ⚙️ {told}")
    if job is not None and settings.token.get_secret_value():
        try:
            await _tell_thread(settings, job, f"{told}\n\n[The run]({settings.run_page})", redactor)
        except BotError as error:
            say(commands.annotation("warning", redactor.redact(f"The thread was not informed. {error}"), title=_TITLE))


async def _tell_thread(settings: ActionSettings, job: Job, told: str, redactor: Redactor) -> None:
    """Comment, where somebody who may command has asked for something.

    Raises:
        GitHubError: GitHub did not answer, or refused.
    """
    if job.lane == "event" or job.is_unasked or job.thread.kind == "branch" or settings.run_attempt > 1:
        return
    async with GitHub.for_token(
        settings.token.get_secret_value(), settings.api_url, redact=redactor.redact, ca_file=settings.agent.ca_file
    ) as github:
        access = await check_access(github, job, bounds=bounds_of(settings.agent))
        if not access.may_command:
            return
        name = job.repo.full_name
        allowed = Allowed(
            login=job.actor.login, number=job.thread.number, server=settings.server_url.rstrip("/"), repo=name
        )
        body = render_reply(told, allowed, job_id=job.id, refused=True)
        await github.comments.create(name, spot_of(job), body)


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
