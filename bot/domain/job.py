"""The job: its command, actor, thread and origin; and its state machine. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Self

from bot.domain.commands import DEFAULT_TRIGGER, Command, Event, RecipeBounds, Remember, StartRecipe, Steering, Talk


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository as named in the delivery.

    Attributes:
        id: survives renames, so caches use it as key.
        private: at the time of the delivery.
    """

    id: int
    full_name: str
    private: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The account that sent the delivery."""

    id: int
    login: str


ThreadKind = Literal["issue", "pull", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """An issue or pull request with its text at the time of the command; or a branch, without text and comments.

    Attributes:
        number: 0 for a branch.
    """

    kind: ThreadKind
    number: int
    title: str
    body: str
    author: str
    branch: str = ""

    def __post_init__(self) -> None:
        if (self.kind == "branch") != bool(self.branch) or (self.branch and self.number):
            raise ValueError(
                f"a thread of the kind {self.kind} cannot have branch {self.branch!r}, number {self.number}"
            )

    @classmethod
    def of_branch(cls, name: str) -> Self:
        return cls(kind="branch", number=0, title="", body="", author="", branch=name)

    @classmethod
    def from_number(cls, kind: Literal["issue", "pull"], number: int) -> Self:
        return cls(kind=kind, number=number, title="", body="", author="")

    @property
    def key(self) -> int:
        """Key of the thread in its repository: the number, or a negative hash of the branch."""
        if self.kind != "branch":
            return self.number
        # 63 bits, which SQLite's integers hold.
        return -1 - (int.from_bytes(hashlib.sha256(self.branch.encode()).digest()[:8], "big") >> 1)

    @property
    def has_comments(self) -> bool:
        return self.kind != "branch"

    @property
    def without_text(self) -> Thread:
        return replace(self, title="", body="", author="")


OriginKind = Literal[
    "comment",
    "review_comment",
    "review",
    "description",
    "label",
    "assignment",
    "button",
    "ci",
    "event",
    "recipe",
    "workflow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRange:
    """The commented lines of a pull request.

    Attributes:
        line: the last line on `side`; None for a file comment or an outdated one.
        side: `RIGHT` after the change, `LEFT` before.
    """

    path: str
    line: int | None
    start_line: int | None
    side: Literal["LEFT", "RIGHT"]
    hunk: str
    commit_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputValue:
    """The value of an expression in a workflow's input; strangers may have written it."""

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnverifiedInputs:
    """The reason that a workflow's inputs are not trusted, so that its job only reads."""

    because: str
    remedy: str
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The GitHub object that the job came from.

    Attributes:
        kind: `ci` is a failed check, `button` one of a check run, `description` the text of a new thread; a `recipe` is
            started by a schedule or workflow, a `workflow` has the command as its input.
        root: the first comment of a review comment's thread, for replies; else 0.
        name: of the failed check, which a stranger may have chosen, or of the workflow or recipe.
        vouched: whether only people with write access can have started it, so that no role is checked.
        values: quoted values in a workflow's prompt.
    """

    kind: OriginKind
    id: int
    at: str = ""
    root: int = 0
    lines: LineRange | None = None
    name: str = ""
    url: str = ""
    conclusion: str = ""
    vouched: bool = False
    values: tuple[InputValue, ...] = ()
    unverified: UnverifiedInputs | None = None


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """Waiting for a user's approval or answer, without a worker."""
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"


LIVE_STATES = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING)
"""States of unfinished jobs."""
ENDED_STATES = frozenset(JobState).difference(LIVE_STATES)

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.STOPPED}),
    # QUEUED when the worker died: another one resumes the job.
    JobState.RUNNING: ENDED_STATES | {JobState.QUEUED, JobState.WAITING},
    # QUEUED after an answer or the timeout: a worker continues the job.
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.STOPPED}),
    **dict.fromkeys(sorted(ENDED_STATES), frozenset()),
}
"""Allowed next states."""

Lane = Literal["work", "steer", "event"]
_IMMEDIATE_COMMANDS = Remember | StartRecipe | Steering | Talk


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A unit of work, complete before it is stored.

    Attributes:
        id: derived from the origin, so that redeliveries yield the same job; used in branch names and logs.
        actor: permissions are decided for this account.
        other_actors: accounts whose permissions count too, e.g. the one that triggered a re-run workflow.
        head_sha: the pull request's head at the time of the command; empty if unknown, and for an issue.
        left_out: the first line of a second command in the same text, which is not done; else empty.
    """

    id: str
    delivery_id: str
    repo: Repo
    thread: Thread
    actor: Actor
    origin: Origin
    command: Command
    installation: int | None
    other_actors: tuple[Actor, ...] = ()
    trigger: str = DEFAULT_TRIGGER
    head_sha: str = ""
    left_out: str = ""
    recipe: RecipeBounds | None = None

    @property
    def is_from_event(self) -> bool:
        """Whether CI or another event started the job, so that nobody expects an answer."""
        return self.origin.kind in {"ci", "event"}

    @property
    def payer(self) -> Actor | None:
        """The account whose spending the run counts as; None if CI, another event or a schedule started it."""
        # The bot itself asks for a scheduled recipe, and a person may repeat it.
        is_scheduled = self.origin.kind == "recipe" and self.actor.login.endswith("[bot]")
        return None if self.is_from_event or is_scheduled else self.actor

    @property
    def lane(self) -> Lane:
        """Work waits for the thread's previous job; steering never waits."""
        if isinstance(self.command, Event):
            return "event"
        return "steer" if isinstance(self.command, _IMMEDIATE_COMMANDS) else "work"
