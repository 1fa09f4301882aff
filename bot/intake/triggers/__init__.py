"""One kind of event a file; each is named once, in `TRIGGERS`."""

from __future__ import annotations

from typing import Protocol

from bot.intake.deliveries import Delivery, Ignored
from bot.intake.triggers import issue_comment
from bot.jobs.job import Job


class Trigger(Protocol):
    """Turns one kind of event into a job, or says why it asks for none. Never raises for what a payload holds."""

    def __call__(
        self, delivery: Delivery, *, trigger: str, own_ids: frozenset[int], trusted_bot_ids: frozenset[int]
    ) -> Job | Ignored:
        """See `issue_comment.job_from`."""


TRIGGERS: dict[str, Trigger] = {issue_comment.EVENT: issue_comment.job_from}
"""From an event's name to what reads it."""


def job_from(
    delivery: Delivery, *, trigger: str, own_ids: frozenset[int], trusted_bot_ids: frozenset[int] = frozenset()
) -> Job | Ignored:
    """The job that a delivery asks for, or why it asks for none."""
    read = TRIGGERS.get(delivery.event)
    if read is None:
        return Ignored(reason=f"nothing listens to the event {delivery.event}")
    return read(delivery, trigger=trigger, own_ids=own_ids, trusted_bot_ids=trusted_bot_ids)
