"""A repository was deleted. Pure."""

from __future__ import annotations

from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import departed, other_action
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.payloads import Event, read

EVENT = "repository"

_LOOKED_AT_AGAIN = ("renamed", "transferred", "archived", "privatized", "publicized")


def job_from(delivery: Delivery, listening: Listening) -> Job | Ignored:
    """What to end, or why nothing has to."""
    if delivery.action in _LOOKED_AT_AGAIN:
        return Ignored(reason=f"a repository that was {delivery.action} is looked at anew before anything is published")
    if delivery.action != "deleted":
        return other_action(delivery, "deleted")
    event = read(Event, delivery)
    if isinstance(event, Ignored):
        return event
    return departed(delivery, listening, sender=event.sender, repo_ids=(event.repository.id,))
