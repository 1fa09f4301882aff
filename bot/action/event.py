"""Read the event that started the workflow run as a delivery."""

from __future__ import annotations

import json

from bot.config import ActionSettings
from bot.errors import MalformedError
from bot.intake.deliveries import Delivery, from_action
from bot.intake.listening import Listening

# https://api.github.com/users/github-actions[bot]
_ACTIONS_BOT_ID = 41898282
_MAX_EVENT_BYTES = 25 * 1024 * 1024


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
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) cannot be read: {error.strerror}") from error
    if len(content) > _MAX_EVENT_BYTES:
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) has more than {_MAX_EVENT_BYTES:,} bytes")
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) is not JSON: {error}") from error
    delivery = from_action(
        event=settings.event_name,
        payload=payload,
        run_id=str(settings.run_id),
        run_attempt=str(settings.run_attempt),
    )
    _check_repository(delivery, settings)
    return delivery


def listening_of(settings: ActionSettings) -> Listening:
    """What a workflow's step listens for."""
    return Listening(
        triggers=settings.agent.triggers,
        own_ids=frozenset({_ACTIONS_BOT_ID}),
        trusted_bots=settings.agent.trusted_bots,
        start_label=settings.agent.start_label,
    )


def _check_repository(delivery: Delivery, settings: ActionSettings) -> None:
    """The token is good for the workflow's repository alone, so an event about another one is no job of this run."""
    repository = delivery.payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(name, str) or name.lower() != settings.repository.lower():
        raise MalformedError(
            f"the event in {settings.event_path} (GITHUB_EVENT_PATH) is about {name or 'no repository'}, "
            f"and this workflow runs in {settings.repository} (GITHUB_REPOSITORY)"
        )
