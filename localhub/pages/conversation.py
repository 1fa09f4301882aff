"""The entries of a thread's page, in the order in which they happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from localhub.git.rows import Row, rows
from localhub.state.model import Comment, Issue, IssueEvent, PullRequestReview, ReviewComment
from localhub.state.store import Store

SHOWN_ROWS = 6
"""Lines of the difference above a comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineConversation:
    """A comment on a line and the answers to it.

    Attributes:
        rows: the end of the difference that the comment is about.
        replaced: the lines that a suggestion would take away.
    """

    first: ReviewComment
    replies: tuple[ReviewComment, ...]
    rows: tuple[Row, ...]
    replaced: tuple[str, ...]

    @property
    def comments(self) -> tuple[ReviewComment, ...]:
        """All of them, oldest first."""
        return (self.first, *self.replies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A review with the conversations that it began."""

    review: PullRequestReview
    conversations: tuple[LineConversation, ...]


Entry: TypeAlias = Comment | Reviewed | IssueEvent


def conversations(store: Store, issue: Issue) -> list[LineConversation]:
    """The conversations on a pull request's lines, in the order in which they began."""
    said = store.review_comments_of(issue)
    return [_conversation(first, said) for first in said if first.in_reply_to is None]


def _conversation(first: ReviewComment, said: Sequence[ReviewComment]) -> LineConversation:
    found = rows(first.diff_hunk)
    wanted = range(first.start_line or first.line, first.line + 1)
    return LineConversation(
        first=first,
        replies=tuple(comment for comment in said if comment.in_reply_to == first.id),
        rows=tuple(found[-SHOWN_ROWS:]),
        replaced=tuple(row.text for row in found if row.new in wanted),
    )


def timeline(store: Store, issue: Issue) -> list[Entry]:
    """Comments, reviews and events; a review that only answers elsewhere is left out."""
    began: dict[int, list[LineConversation]] = {}
    for each in conversations(store, issue):
        began.setdefault(each.first.review_id, []).append(each)
    reviewed = [Reviewed(review=r, conversations=tuple(began.get(r.id, ()))) for r in store.reviews_of(issue)]
    shown = [r for r in reviewed if r.review.body or r.conversations or r.review.state != "COMMENTED"]
    entries: list[Entry] = [*store.comments_of(issue), *shown, *store.history_of(issue)]
    return sorted(entries, key=_moment)


def _moment(entry: Entry) -> tuple[datetime, int]:
    if isinstance(entry, Reviewed):
        return entry.review.submitted_at, entry.review.id
    return entry.created_at, entry.id
