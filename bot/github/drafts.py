"""Drafts for GitHub besides comments: a check run, a review. Pure values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

CheckStatus = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["success", "failure", "neutral", "cancelled", "action_required", "timed_out", "skipped"]
Side = Literal["LEFT", "RIGHT"]

# https://docs.github.com/rest/checks/runs#create-a-check-run
MAX_BUTTONS = 3
MAX_LABEL, MAX_DESCRIPTION, MAX_IDENTIFIER = 20, 40, 20
CHECK_TEXT_LIMIT = 65_535
"""Characters of a check run's summary, and of its text."""
BODY_LIMIT = 65_536
"""Characters of a comment's or a review's body."""
TITLE_LIMIT = 255
"""Characters of a headline."""
ANNOTATION_LIMIT = 16_384
"""Characters of an annotation's message; GitHub takes 64 KB, and a character may be four bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button of a check run; pressing it sends `check_run.requested_action` with the identifier.

    Raises:
        ValueError: a text is longer than GitHub takes (a bug of ours).
    """

    label: str
    description: str
    identifier: str

    def __post_init__(self) -> None:
        """Hold the texts to GitHub's lengths."""
        for text, limit in (
            (self.label, MAX_LABEL),
            (self.description, MAX_DESCRIPTION),
            (self.identifier, MAX_IDENTIFIER),
        ):
            if not 0 < len(text) <= limit:
                raise ValueError(f"{text!r} on a check run's button must have 1 to {limit} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A word about lines of a file.

    Attributes:
        path: relative to the repository's root.
        start_line: the first line, counted from 1.
        end_line: the last line.
        level: how bad it is.
        message: what is the matter.
        title: a headline; may be empty.
    """

    path: str
    start_line: int
    end_line: int
    level: Literal["notice", "warning", "failure"]
    message: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDraft:
    """A check run as it is to stand.

    Attributes:
        name: of the check, shown in the list of checks; the same for every job, so that a new run takes its place.
        head_sha: the commit it stands on.
        external_id: what `check_run` events say it is ours by: `<job id>:<issue|pull>:<number>:<request id or ->`,
            or `<job id>:branch:<name>:<request id or ->`.
        status: whether it is under way.
        conclusion: how it ended; given exactly when `status` is `completed`.
        title: its headline.
        summary: what happened, at most 65,535 characters of Markdown.
        text: details, at most 65,535 characters of Markdown; may be empty.
        annotations: words about lines. GitHub only ever adds to them, so a later draft begins with an earlier one's.
        buttons: at most three. GitHub shows them once the run is `completed`.

    Raises:
        ValueError: GitHub would not take it (a bug of ours).
    """

    name: str
    head_sha: str
    external_id: str
    status: CheckStatus
    title: str
    summary: str
    conclusion: Conclusion | None = None
    text: str = ""
    annotations: tuple[Annotation, ...] = ()
    buttons: tuple[Button, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what GitHub refuses."""
        if (self.status == "completed") != (self.conclusion is not None):
            raise ValueError(f"a check run that is {self.status} cannot have the conclusion {self.conclusion}")
        if len(self.buttons) > MAX_BUTTONS:
            raise ValueError(f"a check run has at most {MAX_BUTTONS} buttons, not {len(self.buttons)}")
        if max(len(self.summary), len(self.text)) > CHECK_TEXT_LIMIT:
            raise ValueError(f"a check run's summary and text have at most {CHECK_TEXT_LIMIT} characters each")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewNote:
    """One comment of a review, on lines of the pull request's diff.

    Attributes:
        path: the file.
        line: the last line it is about, as it is numbered on `side`.
        start_line: the first, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        body: Markdown; may hold a suggestion that can be committed.
    """

    path: str
    line: int
    body: str
    start_line: int | None = None
    side: Side = "RIGHT"

    @property
    def place(self) -> str:
        """Where it is, for people: `src/app.py:3-5`."""
        first = f"{self.start_line}-" if self.start_line not in {None, self.line} else ""
        return f"{self.path}:{first}{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDraft:
    """A review that comments; there is no way to say that it approves or rejects.

    Attributes:
        commit_sha: the head that was looked at.
        body: the words above the comments, Markdown; GitHub wants some.
        notes: comments on lines.
    """

    commit_sha: str
    body: str
    notes: tuple[ReviewNote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDraft:
    """A pull request that is to be opened.

    Attributes:
        base: the branch that it is for.
        draft: whether it is to be opened as a draft, which not every plan has.
    """

    base: str
    title: str
    body: str
    draft: bool

    def said(self, redact: Callable[[str], str]) -> dict[str, Any]:
        """The fields that both APIs name alike, without secrets."""
        return {"title": redact(self.title), "body": redact(self.body), "draft": self.draft}
