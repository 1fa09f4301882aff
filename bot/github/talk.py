"""What people and bots have said in a thread, and where an answer to it goes. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.github.drafts import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a comment stands.

    Attributes:
        kind: below an issue or pull request, or in a thread about lines of a pull request.
        number: of the issue or pull request.
        root: for a `review_thread` the id of its first comment, which answers go to; else 0.

    Raises:
        ValueError: a thread about lines without its first comment (a bug of ours).
    """

    kind: Literal["thread", "review_thread"]
    number: int
    root: int = 0

    def __post_init__(self) -> None:
        """A thread about lines is known by its first comment."""
        if (self.kind == "review_thread") != bool(self.root):
            raise ValueError(f"a {self.kind} cannot begin with comment {self.root}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentFacts:
    """A comment on an issue or pull request.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        created_at: ISO 8601, UTC.
        updated_at: the same as `created_at` when it was never edited.
    """

    id: int
    author: str
    author_id: int
    body: str
    created_at: str
    updated_at: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCommentFacts:
    """A comment on lines of a pull request.

    Attributes:
        comment: what every comment has.
        root: the first comment of its thread; its own id for that one.
        review_id: the review it came with; None for a lone comment.
        path: the file.
        line: the last line, as it stands on `side` now; None when the comment is about the file, or outdated.
        start_line: the first line, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        hunk: the part of the diff that ends there.
        commit_sha: the commit that it was made on.
    """

    comment: CommentFacts
    root: int
    review_id: int | None
    path: str
    line: int | None
    start_line: int | None
    side: Side
    hunk: str
    commit_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFacts:
    """The words above a review's comments.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        state: in GitHub's words, e.g. `COMMENTED` or `CHANGES_REQUESTED`.
        submitted_at: ISO 8601, UTC; empty for a review that is not submitted. GitHub does not say when its words were
            edited: https://docs.github.com/rest/pulls/reviews#list-reviews-for-a-pull-request
        commit_sha: the head that was looked at.
    """

    id: int
    author: str
    author_id: int
    body: str
    state: str
    submitted_at: str
    commit_sha: str
    html_url: str
