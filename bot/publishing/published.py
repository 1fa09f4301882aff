"""The record of what a job has sent to GitHub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bot.github import PullLink

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRef:
    """A commit on a branch."""

    sha: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What has been sent.

    Attributes:
        commit: the commit.
        pull: the pull request that it is in.
        onto: the commit onto which the change was replayed last.
        review_requested: whether a review was sent, of which GitHub has not told the page yet.
        review_url: the page of the review.
    """

    commit: CommitRef | None = None
    pull: PullLink | None = None
    onto: str | None = None
    review_requested: bool = False
    review_url: str | None = None


class RecordPart(Protocol[T]):
    """A part of what is recorded of one job, kept over restarts."""

    async def read(self) -> T:
        """What is recorded now."""
        ...

    async def update(self, change: Callable[[T], T]) -> T:
        """Record what the pure `change` makes of it; it is on disk when this returns."""
        ...
