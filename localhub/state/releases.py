"""A release, as the hub keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release.

    Attributes:
        target: the branch or commit that its tag was, or is to be, made at.
        draft: seen only by those who may write, and its tag is not made yet.
        published_at: None for a draft.
    """

    id: int
    repo_id: int
    author_id: int
    tag: str
    target: str
    name: str
    body: str
    draft: bool
    prerelease: bool
    created_at: datetime
    updated_at: datetime
    published_at: datetime | None
