"""A comment on an issue or pull request. Pure."""

from __future__ import annotations

from bot.domain.job import Job, Origin
from bot.domain.listening import Listening
from bot.intake.asking import Words, asked_in_words, other_action
from bot.intake.deliveries import Delivery, Ignored
from bot.intake.payloads import Event, Id, Issue, Part, Text, User, read

EVENT = "issue_comment"


def job_from(delivery: Delivery, listening: Listening) -> Job | Ignored:
    """The job that a new comment asks for, or why it asks for none."""
    if delivery.action != "created":
        return other_action(delivery, "created")
    event = read(_Event, delivery)
    if isinstance(event, Ignored):
        return event
    comment = event.comment
    words = Words(
        text=comment.body,
        author=comment.user,
        origin=Origin(kind="comment", id=comment.id, at=comment.created_at),
        unique=str(comment.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.issue.thread, words=words)


class _Comment(Part):
    id: Id
    created_at: Text = ""
    body: Text
    user: User


class _Event(Event):
    issue: Issue
    comment: _Comment
