"""A comment on lines of a pull request. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bot.domain.job import Job, Lines, Origin
from bot.domain.listening import Listening
from bot.intake.asking import ThreadText, asked_in_words, other_action
from bot.intake.deliveries import Delivery, IgnoredDelivery
from bot.intake.payloads import EventPayload, Id, PayloadPart, PullRequest, Sha, Text, User, read

EVENT = "pull_request_review_comment"


def job_from(delivery: Delivery, listening: Listening) -> Job | IgnoredDelivery:
    """The job that a new comment asks for, with the lines it is about, or why it asks for none."""
    if delivery.action != "created":
        return other_action(delivery, "created")
    event = read(_Event, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    comment = event.comment
    origin = Origin(
        kind="review_comment",
        id=comment.id,
        at=comment.created_at,
        root=comment.in_reply_to_id or comment.id,
        lines=comment.lines,
    )
    words = ThreadText(
        text=comment.body,
        author=comment.user,
        origin=origin,
        head_sha=event.pull_request.head.sha,
        unique=str(comment.id),
    )
    return asked_in_words(delivery, listening, event=event, thread=event.pull_request.thread, words=words)


_Line = Annotated[int, Field(gt=0, lt=2**31)]


class _Comment(PayloadPart):
    id: Id
    created_at: Text = ""
    body: Text
    user: User
    in_reply_to_id: Id | None = None
    path: Text
    line: _Line | None = None
    start_line: _Line | None = None
    side: Literal["LEFT", "RIGHT"] = "RIGHT"
    subject_type: str = "line"
    diff_hunk: Text = ""
    commit_id: Sha
    original_commit_id: Sha

    @property
    def lines(self) -> Lines:
        of_file = self.subject_type == "file"
        return Lines(
            path=self.path,
            line=None if of_file else self.line,
            start_line=None if of_file else self.start_line,
            side=self.side,
            hunk=self.diff_hunk,
            # The lines' numbers count in `commit_id`; an outdated comment has none, and only its first commit shows it.
            commit_sha=self.commit_id if self.line else self.original_commit_id,
        )


class _Event(EventPayload):
    pull_request: PullRequest
    comment: _Comment
