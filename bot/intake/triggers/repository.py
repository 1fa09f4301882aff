"""A repository was deleted. Pure."""

from __future__ import annotations

from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import departed, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, read

EVENT = "repository"

_LOOKED_AT_AGAIN = ("renamed", "transferred", "archived", "privatized", "publicized")


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action in _LOOKED_AT_AGAIN:
        return IgnoredDelivery(
            reason=f"a repository that was {delivery.action} is checked again before anything is published"
        )
    if delivery.action != "deleted":
        return other_action(delivery, "deleted")
    event = read(EventPayload, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    return departed(delivery, listening, sender=event.sender, repo_ids=(event.repository.id,))
