"""The words of a review; its comments on lines come as events of their own. Pure."""

from __future__ import annotations

from bot.domain.job import Job, Origin
from bot.domain.listening import Listening
from bot.intake.asking import ThreadText, asked_in_words, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Id, PayloadPart, PullRequest, Text, User, read

EVENT = "pull_request_review"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that the words of a review ask for, or why they ask for none."""
    if delivery.action != "submitted":
        return other_action(delivery, "submitted")
    event = read(_Event, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    words = ThreadText(
        text=event.review.body or "",
        author=event.review.user,
        origin=Origin(kind="review", id=event.review.id, at=event.review.submitted_at or ""),
        head_sha=event.pull_request.head.sha,
        unique=str(event.review.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.pull_request.thread, words=words)


class _Review(PayloadPart):
    id: Id
    submitted_at: Text | None = None
    body: Text | None = None
    user: User


class _Event(EventPayload):
    pull_request: PullRequest
    review: _Review
