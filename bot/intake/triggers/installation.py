"""The App was removed from an account, or suspended. Pure."""

from __future__ import annotations

from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.intake.asking import departed, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import PayloadPart, Sender, read

EVENT = "installation"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """What to end, or why nothing has to."""
    if delivery.action not in ("deleted", "suspend"):
        return other_action(delivery, "deleted", "suspend")
    event = read(_Event, delivery)
    return event if isinstance(event, IgnoredDelivery) else departed(delivery, listening, sender=event.sender)


class _Event(PayloadPart):
    sender: Sender
