"""The job: what was asked, by whom, where; and the table of its states. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Self

from bot.domain.commands import DEFAULT_TRIGGER, Command, RecipeBounds, RepoEvent, StartRecipe, Steering, Talk


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


ThreadKind = Literal["issue", "pull", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The issue or pull request, with its words as they stood when the command was given; or a branch, which has none.

    Attributes:
        kind: `issue`, `pull`, or `branch` for a job without a thread: nobody is answered in a comment there.
        number: its number in the repository; 0 for a branch.
        title: snapshot of the title.
        body: snapshot of the body.
        author: login of its author.
        branch: for a branch: its name, without `refs/heads/`; else empty.
    """

    kind: ThreadKind
    number: int
    title: str
    body: str
    author: str
    branch: str = ""

    def __post_init__(self) -> None:
        """Refuse a branch without a name, and a thread with one."""
        if (self.kind == "branch") != bool(self.branch) or (self.branch and self.number):
            raise ValueError(
                f"a thread of the kind {self.kind} cannot have branch {self.branch!r}, number {self.number}"
            )

    @classmethod
    def of_branch(cls, name: str) -> Self:
        """The place of a job without a thread."""
        return cls(kind="branch", number=0, title="", body="", author="", branch=name)

    @classmethod
    def numbered(cls, kind: Literal["issue", "pull"], number: int) -> Self:
        """A thread of which nothing but the number is known."""
        return cls(kind=kind, number=number, title="", body="", author="")

    @property
    def key(self) -> int:
        """What jobs of the same place share in their repository: the number, or for a branch one below zero."""
        if self.kind != "branch":
            return self.number
        # 63 bits, which SQLite's integers hold.
        return -1 - (int.from_bytes(hashlib.sha256(self.branch.encode()).digest()[:8], "big") >> 1)

    @property
    def has_comments(self) -> bool:
        """Whether people can talk there, and so answer."""
        return self.kind != "branch"

    @property
    def wordless(self) -> Thread:
        """The same without its words, for what is about none of them."""
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
class Lines:
    """The lines of a pull request that a review comment is about.

    Attributes:
        path: the file.
        line: the last of the lines, as it stands on `side`; None when the comment is about the file, or outdated.
        start_line: the first of them, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        hunk: the part of the diff that ends there, as GitHub shows it above the comment.
        commit_sha: the commit that the comment was made on.
    """

    path: str
    line: int | None
    start_line: int | None
    side: Literal["LEFT", "RIGHT"]
    hunk: str
    commit_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputValue:
    """The value of an expression in a workflow's input, which people without write access may have written.

    Attributes:
        source: the input and the expression.
        text: the value.
    """

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnverifiedInputs:
    """The reason that a workflow's inputs may be a stranger's words, and that its job only reads.

    Attributes:
        because: the reason, as the end of a sentence.
        remedy: the change that lets the job do more, as a sentence.
        verb: the command that the workflow asks for.
    """

    because: str
    remedy: str
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What on GitHub the job came from.

    Attributes:
        kind: `comment` on an issue or pull request, `review_comment` on lines of a pull request, the words of a
            `review`, the `description` that an issue or pull request was opened with, a `label`, an `assignment`, a
            `button` of a check run, `ci` that went red, another `event`, a `recipe` that a schedule or a workflow run
            started, or the `workflow` file whose input is the command.
        id: GitHub's numeric id of the comment, review, check run or workflow run; 0 where there is none.
        at: when it was made, as GitHub writes it (ISO 8601, UTC); empty where GitHub does not say.
        root: for a review comment: the first comment of its thread, which answers go to; else 0.
        lines: for a review comment: what it is about.
        name: for `ci`: the workflow or the check that failed; a stranger may have chosen it. `id` is 0 for a check.
            For a `workflow` or a `recipe`: what it is called.
        url: for `ci`: its page; may be empty.
        conclusion: for `ci`: in GitHub's words.
        vouched: whether only people with write access can have started it, so that nobody's role is asked for: by a
            `workflow`'s event, or a `recipe` on the default branch.
        values: for a `workflow`: the values in its prompt that are quoted.
        unverified: for a job of a workflow: set if its inputs may be a stranger's words.
    """

    kind: OriginKind
    id: int
    at: str = ""
    root: int = 0
    lines: Lines | None = None
    name: str = ""
    url: str = ""
    conclusion: str = ""
    vouched: bool = False
    values: tuple[InputValue, ...] = ()
    unverified: UnverifiedInputs | None = None


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """For a person to approve or answer; no worker has it."""
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"


_LAST = frozenset({JobState.DONE, JobState.REFUSED, JobState.FAILED, JobState.STOPPED})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.STOPPED}),
    # Back to QUEUED when its worker died: another one takes it up again.
    JobState.RUNNING: _LAST | {JobState.QUEUED, JobState.WAITING},
    # QUEUED when it was answered, or nobody answered in time: a worker tells it.
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.STOPPED}),
    **dict.fromkeys(sorted(_LAST), frozenset()),
}
"""Which state may follow which; anything else is a bug."""

Lane = Literal["work", "steer", "event"]
_STEERS = StartRecipe | Steering | Talk


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
        origin: what on GitHub it came from.
        command: what was asked.
        installation: the App installation, or None.
        others: whose permissions count beside the actor's, e.g. who triggered a workflow that another one re-ran.
        trigger: the word that the command began with.
        head_sha: the pull request's head when the command was given; empty where the delivery does not say, and for an
            issue.
        recipe: the repository's recipe that the command carries out, or None.
    """

    id: str
    delivery_id: str
    repo: Repo
    thread: Thread
    actor: Actor
    origin: Origin
    command: Command
    installation: int | None
    others: tuple[Actor, ...] = ()
    trigger: str = DEFAULT_TRIGGER
    head_sha: str = ""
    recipe: RecipeBounds | None = None

    @property
    def is_unasked(self) -> bool:
        """Whether nobody gave a command: CI went red, or something else happened. Then nobody is owed an answer."""
        return self.origin.kind in {"ci", "event"}

    @property
    def lane(self) -> Lane:
        """Work waits until the thread's job before it has ended; a person's word waits for neither work nor events."""
        if isinstance(self.command, RepoEvent):
            return "event"
        return "steer" if isinstance(self.command, _STEERS) else "work"
