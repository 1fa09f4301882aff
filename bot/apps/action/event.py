"""Read the event that started the workflow run, as a delivery, and what it and the inputs ask for."""

from __future__ import annotations

import json
import secrets

from bot.apps.action.prompts import WRITERS_ONLY, PromptRequest, asked_by_workflow
from bot.domain.errors import MalformedError
from bot.domain.job import Actor, Job, Repo
from bot.domain.listening import Listening
from bot.intake.deliveries import Delivery, IgnoredDelivery, from_action
from bot.intake.triggers import job_from
from bot.settings.model import ActionSettings

# Its id is another one on each Enterprise Server: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"
_MAX_EVENT_BYTES = 25 * 1024 * 1024
_FROM_RUNNER = (
    "GitHub's runner writes it: make sure that no earlier step changes that file or the variable, and run the job "
    "again."
)


def job_of_run(settings: ActionSettings) -> Job | IgnoredDelivery:
    """The job that the run is for: what the inputs ask for, else what somebody asked for in the event.

    Raises:
        MalformedError: the event file is not what a runner writes.
        ConfigError: the inputs contradict each other or the event.
    """
    delivery, inputs, listening = delivery_from(settings), settings.inputs, listening_of(settings)
    if inputs.prompt or inputs.command or inputs.recipe:
        repo_id, login, number = settings.repository_id, settings.actor, settings.actor_id
        asked = PromptRequest(
            prompt=inputs.prompt,
            command=inputs.command,
            recipe=inputs.recipe,
            base=inputs.base,
            workflow=settings.workflow or "",
            ref=settings.ref or "",
            # Whether it is private is asked of GitHub before anything is published.
            repo=Repo(id=repo_id, full_name=settings.repository, private=False) if repo_id else None,
            actor=Actor(id=number, login=login) if number and login else None,
            branch_prefix=inputs.branch_prefix,
            # Several steps of one run may each have a job.
            unique=f"{settings.run_id}:{settings.run_attempt}:{secrets.token_hex(8)}",
        )
        return asked_by_workflow(delivery, asked, listening)
    if delivery.event in WRITERS_ONLY:
        return IgnoredDelivery(
            reason=f"the event `{delivery.event}` contains no command, and the input `prompt` is not set. Write "
            "below `with:`: `prompt: What the agent is to do`"
        )
    return job_from(delivery, listening)


def delivery_from(settings: ActionSettings) -> Delivery:
    """Read the event that started the workflow.

    Raises:
        MalformedError: the event file cannot be read, is no JSON object, or is about another repository.
    """
    path = settings.event_path
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_EVENT_BYTES + 1)
    except OSError as error:
        raise MalformedError(
            f"The event file {path} (GITHUB_EVENT_PATH) cannot be read: {error.strerror}. {_FROM_RUNNER}"
        ) from error
    if len(content) > _MAX_EVENT_BYTES:
        raise MalformedError(
            f"The event file {path} (GITHUB_EVENT_PATH) has more than {_MAX_EVENT_BYTES:,} bytes. {_FROM_RUNNER}"
        )
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            f"The event file {path} (GITHUB_EVENT_PATH) is not JSON: {error}. {_FROM_RUNNER}"
        ) from error
    delivery = from_action(
        event=settings.event_name,
        payload=payload,
        run_id=str(settings.run_id),
        run_attempt=str(settings.run_attempt),
    )
    if delivery.event == "schedule" and "repository" not in delivery.payload:
        return delivery  # GitHub tells a schedule of its cron line alone
    # The token is good for the workflow's repository alone, so an event about another one is no job of this run.
    repository = delivery.payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(name, str) or name.lower() != settings.repository.lower():
        raise MalformedError(
            f"The event in {settings.event_path} (GITHUB_EVENT_PATH) is about {name or 'no repository'}, "
            f"and this workflow runs in {settings.repository} (GITHUB_REPOSITORY). {_FROM_RUNNER}"
        )
    return delivery


def listening_of(settings: ActionSettings) -> Listening:
    """What a workflow's step listens for."""
    return Listening(
        triggers=settings.agent.triggers,
        own_login=_ACTIONS_LOGIN,
        trusted_bots=settings.agent.trusted_bots,
        start_label=settings.agent.start_label,
    )
