"""The App was removed from repositories of an account. Pure."""

from __future__ import annotations

from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import departed, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import Id, PayloadPart, Sender, read

EVENT = "installation_repositories"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action != "removed":
        return other_action(delivery, "removed")
    event = read(_Event, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    if not event.repositories_removed:
        return IgnoredDelivery(reason="no repository was removed")
    lost = tuple(repository.id for repository in event.repositories_removed)
    return departed(delivery, listening, sender=event.sender, repo_ids=lost)


class _Removed(PayloadPart):
    id: Id


class _Event(PayloadPart):
    sender: Sender
    repositories_removed: list[_Removed]
