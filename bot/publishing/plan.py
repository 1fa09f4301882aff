"""From an outcome and a change to everything that will be sent, complete before anything is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bot.workspace.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit to make.

    Attributes:
        branch: where it goes.
        expected_head: the branch must stand here, else nothing is written.
        create_branch: whether the branch is made first, at `expected_head`.
        title: the commit's first line, at most 72 characters.
        body: the rest of the message.
        change: what it holds.
    """

    branch: str
    expected_head: str
    create_branch: bool
    title: str
    body: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull request to open from the commit's branch."""

    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Everything that one job sends, besides the comment, which needs what GitHub answers to these.

    Attributes:
        commit: the commit, or None when nothing changed or nothing may be published.
        pull_request: the pull request, or None.
        withheld: what was not published and why, for the comment; empty when nothing was.
    """

    commit: Commit | None
    pull_request: PullRequest | None
    withheld: str = ""
