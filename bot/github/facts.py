"""What GitHub knows, as values of ours; no client library's object leaves this room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFacts:
    """A repository now, as opposed to when a delivery was made.

    Attributes:
        id: survives renames.
        full_name: `owner/name`.
        clone_url: what git fetches from and pushes to.
        html_url: its page.
    """

    id: int
    full_name: str
    private: bool
    archived: bool
    default_branch: str
    clone_url: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """An issue or pull request now.

    Attributes:
        labels: names of its labels.
    """

    kind: Literal["issue", "pull"]
    number: int
    state: Literal["open", "closed"]
    locked: bool
    title: str
    body: str
    author: str
    labels: tuple[str, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFacts:
    """A pull request's two ends now.

    Attributes:
        head_repo: `owner/name` of where the branch lives; None when that fork was deleted.
        head_repo_id: its id, or None.
        from_fork: whether the branch lives in another repository.
    """

    number: int
    state: Literal["open", "closed"]
    merged: bool
    draft: bool
    locked: bool
    head_ref: str
    head_sha: str
    head_repo: str | None
    head_repo_id: int | None
    base_ref: str
    base_sha: str
    from_fork: bool
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentFacts:
    """A comment on an issue or pull request."""

    id: int
    author_id: int
    body: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """A commit, as far as is needed to know it again."""

    sha: str
    tree_sha: str
    parents: tuple[str, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLink:
    """A pull request that was opened or found."""

    number: int
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    """Whom GitHub takes us for; comments by this id are ours."""

    id: int
    login: str
