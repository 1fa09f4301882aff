"""The job: what was asked, by whom, where; and the table of states it walks through. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from bot.intake.commands import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository as the delivery named it.

    Attributes:
        id: GitHub's numeric id; it survives renames, so caches are keyed by it.
        full_name: `owner/name`.
        private: whether it was private when the delivery was made.
    """

    id: int
    full_name: str
    private: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who sent the delivery."""

    id: int
    login: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The issue or pull request, with its words as they stood when the command was given.

    Attributes:
        kind: `issue` or `pull`.
        number: its number in the repository.
        title: snapshot of the title.
        body: snapshot of the body.
        author: login of who opened it.
    """

    kind: Literal["issue", "pull"]
    number: int
    title: str
    body: str
    author: str


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING}),
    # Back to QUEUED when its worker died: another one takes it up again.
    JobState.RUNNING: frozenset({JobState.DONE, JobState.REFUSED, JobState.FAILED, JobState.QUEUED}),
    JobState.DONE: frozenset(),
    JobState.REFUSED: frozenset(),
    JobState.FAILED: frozenset(),
}
"""Which state may follow which; anything else is a bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work, complete before it is stored.

    Attributes:
        id: short and unique, derived from the comment that asked, so that every delivery of it is the same job; it
            names branches and log lines.
        delivery_id: GitHub's delivery GUID, of the first delivery that brought it.
        repo: where.
        thread: the issue or pull request it belongs to.
        actor: who asked; every permission is decided about this person.
        comment_id: the comment that held the command.
        command: what was asked.
        installation: the App installation, or None.
    """

    id: str
    delivery_id: str
    repo: Repo
    thread: Thread
    actor: Actor
    comment_id: int
    command: Command
    installation: int | None
