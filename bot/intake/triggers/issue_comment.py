"""A comment on an issue or pull request. Pure."""

from __future__ import annotations

from bot.domain.job import Job, Origin
from bot.domain.listening import Listening
from bot.intake.asking import ThreadText, asked_in_words, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Id, Issue, PayloadPart, Text, User, read

EVENT = "issue_comment"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a new comment asks for, or why it asks for none."""
    if delivery.action != "created":
        return other_action(delivery, "created")
    event = read(_Event, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    comment = event.comment
    words = ThreadText(
        text=comment.body,
        author=comment.user,
        origin=Origin(kind="comment", id=comment.id, at=comment.created_at),
        unique=str(comment.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.issue.thread, words=words)


class _Comment(PayloadPart):
    id: Id
    created_at: Text = ""
    body: Text
    user: User


class _Event(EventPayload):
    issue: Issue
    comment: _Comment
