"""GitHub's things as values, drafts of what is to be written, and errors; and GitHub's JSON read into them. Pure.

No object of a client library leaves this package: a caller gets `…Facts` of what GitHub has now, and passes a `…Draft`.
A field that GitHub leaves out now and then is tolerated; the lack of any other is a `GitHubError`, whose text names the
fix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bot.domain.errors import BotError

CheckStatus = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["success", "failure", "neutral", "cancelled", "action_required", "timed_out", "skipped"]
Side = Literal["LEFT", "RIGHT"]
Level = Literal["notice", "warning", "failure"]
Shape = TypeVar("Shape")

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


def _text(value: object) -> object:
    return "" if value is None else value


def _number(value: object) -> object:
    return 0 if value is None else value


def _state(value: object) -> object:
    return str(value).lower() if value in {"OPEN", "CLOSED"} else "closed" if value == "MERGED" else value


def _kind(value: object) -> object:
    """Return the kind of a thread from GraphQL's type, or from REST's field that only pull requests have."""
    return value if value in ("issue", "pull") else "issue" if value in (None, "Issue") else "pull"


def _level(value: object) -> object:
    return value if value in get_args(Level) else "failure"


def _names(value: object) -> object:
    """Return the names of labels, which GitHub writes as objects and once in a while as bare names."""
    entries = value if isinstance(value, list | tuple) else ()
    return tuple(each.get("name", "") if isinstance(each, dict) else each for each in entries if each)


def _last_number(value: object) -> object:
    """Return the number at the end of an address; 0 for any other text."""
    number = value.rpartition("/")[2] if isinstance(value, str) else value
    return number if isinstance(number, int) or (isinstance(number, str) and number.isdecimal()) else 0


def _output(value: object) -> object:
    """Return the texts of a check run's output as one."""
    if not isinstance(value, dict):
        return value or ""
    return "\n\n".join(str(value[field]) for field in ("title", "summary", "text") if value.get(field))


Text = Annotated[str, BeforeValidator(_text)]
Number = Annotated[int, BeforeValidator(_number)]
State = Annotated[Literal["open", "closed"], BeforeValidator(_state)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class Facts(BaseModel):
    """A thing as GitHub describes it; other fields of the answer are ignored.

    REST's answers are read by the aliases. GraphQL's queries name the fields as REST does, or as the attributes.
    """

    model_config = ConfigDict(
        frozen=True, validate_by_name=True, validate_by_alias=True, hide_input_in_errors=True, defer_build=True
    )


class Authored(Facts):
    """A thing that an account wrote.

    Attributes:
        author: login; `ghost` for a deleted account, as on GitHub's pages.
        author_id: numeric id; 0 for a deleted account.
    """

    author: str = Field(default="ghost", validation_alias=AliasPath("user", "login"))
    author_id: int = Field(default=0, validation_alias=AliasPath("user", "id"))


class RepoFacts(Facts):
    """A repository now, as opposed to when a delivery was made.

    Attributes:
        id: survives renames.
        full_name: `owner/name`.
        clone_url: the address for git.
        html_url: its page.
        node_id: its id in GraphQL.
    """

    id: int
    full_name: str
    private: bool
    archived: bool = False
    default_branch: str = Field(validation_alias=AliasChoices("default_branch", AliasPath("defaultBranchRef", "name")))
    html_url: str
    clone_url: str = Field(default_factory=lambda data: f"{data['html_url']}.git")
    node_id: Text = ""


class FolderFile(Facts):
    """A file in a folder: its blob's id, and its size in bytes."""

    sha: str
    size: int


class CommitFacts(Facts):
    """The parts of a commit that identify it.

    Attributes:
        message: the whole of it; GitHub may have trimmed it, or signed it off.
    """

    sha: str = Field(validation_alias=AliasChoices("sha", "oid"))
    tree_sha: str = Field(validation_alias=AliasChoices(AliasPath("tree", "sha"), AliasPath("tree", "oid")))
    parents: tuple[str, ...]
    message: str
    html_url: str

    @field_validator("parents", mode="before")
    @classmethod
    def _parent_ids(cls, value: object) -> object:
        entries = value.get("nodes") if isinstance(value, dict) else value
        if not isinstance(entries, list):
            return value
        return tuple(each.get("sha") or each.get("oid") if isinstance(each, dict) else each for each in entries)


class Account(Facts):
    """An account.

    Attributes:
        kind: `User`, `Bot`, `Organization`, or a later kind of GitHub's.
    """

    id: int
    login: str
    kind: str = Field(default="User", validation_alias="type")


class BotIdentity(Facts):
    """The bot's own account; comments by this id are the bot's.

    Attributes:
        app_id: of the App, whose check runs are the bot's; None for a plain token.
    """

    id: int
    login: str
    app_id: int | None = None


class ThreadFacts(Authored):
    """An issue or pull request now.

    Attributes:
        labels: names of its labels.
    """

    kind: Annotated[Literal["issue", "pull"], BeforeValidator(_kind)] = Field(
        default="issue", validation_alias=AliasChoices("__typename", "pull_request")
    )
    number: int
    state: State = Field(validation_alias=AliasChoices("state", "issueState", "pullState"))
    locked: bool = False
    title: str
    body: Text = ""
    labels: Names = Field(default=(), validation_alias=AliasChoices(AliasPath("labels", "nodes"), "labels"))
    html_url: str


class PullFacts(Authored):
    """A pull request's two ends now.

    Attributes:
        head_repo: `owner/name` of the branch's repository; None when that fork was deleted.
        head_repo_id: its id, or None.
        from_fork: whether the branch lives in another repository.
    """

    number: int
    state: State = Field(validation_alias=AliasChoices("state", "pullState"))
    merged: bool = False
    draft: bool = False
    locked: bool = False
    head_ref: str = Field(validation_alias=AliasPath("head", "ref"))
    head_sha: str = Field(validation_alias=AliasPath("head", "sha"))
    head_repo: str | None = Field(
        default=None,
        validation_alias=AliasChoices(AliasPath("head", "repo", "full_name"), AliasPath("head", "repo_name")),
    )
    head_repo_id: int | None = Field(
        default=None, validation_alias=AliasChoices(AliasPath("head", "repo", "id"), AliasPath("head", "repo_id"))
    )
    base_ref: str = Field(validation_alias=AliasPath("base", "ref"))
    base_sha: str = Field(validation_alias=AliasPath("base", "sha"))
    from_fork: bool = Field(validation_alias=AliasPath("base", "repo", "id"))
    html_url: str
    body: Text = ""

    @field_validator("from_fork", mode="before")
    @classmethod
    def _is_from_fork(cls, value: object, info: ValidationInfo) -> bool:
        """Compare the repositories of both ends, where GitHub does not: a bool passes."""
        return value if isinstance(value, bool) else value != info.data.get("head_repo_id")


class PullLink(Facts):
    """A pull request that was opened or found."""

    number: int
    html_url: str
    draft: bool = False


class Snapshot(Facts):
    """A repository and one of its threads, or of its branches, at the same moment.

    Attributes:
        default_head: the head commit of the default branch; None in an empty repository.
        thread: None when there is no such thread, or a branch was requested.
        pull: its two ends, when it is a pull request.
        base_head: the head commit of the pull request's base branch; None when that branch is gone.
        branch_head: the head commit of the requested branch; None when there is none.
    """

    repo: RepoFacts
    default_head: str | None = Field(default=None, validation_alias=AliasPath("defaultBranchRef", "target", "oid"))
    thread: ThreadFacts | None = Field(default=None, validation_alias="issueOrPullRequest")
    pull: PullFacts | None = Field(default=None, validation_alias="issueOrPullRequest")
    base_head: str | None = Field(
        default=None, validation_alias=AliasPath("issueOrPullRequest", "baseRef", "target", "oid")
    )
    branch_head: str | None = Field(default=None, validation_alias=AliasPath("ref", "target", "oid"))

    @field_validator("pull", mode="before")
    @classmethod
    def _without_issue(cls, value: object) -> object:
        return None if isinstance(value, dict) and value.get("__typename") == "Issue" else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place of a comment.

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
        """Require the first comment of a thread about lines, which identifies it."""
        if (self.kind == "review_thread") != bool(self.root):
            raise ValueError(f"a {self.kind} cannot begin with comment {self.root}")


class CommentFacts(Authored):
    """A comment on an issue or pull request.

    Attributes:
        created_at: ISO 8601, UTC.
        updated_at: the same as `created_at` when it was never edited.
    """

    id: int
    body: Text = ""
    created_at: Text = ""
    updated_at: Text = Field(default_factory=lambda data: data["created_at"])
    html_url: str


class ReviewFacts(Authored):
    """The words above a review's comments.

    Attributes:
        state: in GitHub's words, e.g. `COMMENTED` or `CHANGES_REQUESTED`.
        submitted_at: ISO 8601, UTC; empty for a review that is not submitted. GitHub does not say when its words were
            edited: https://docs.github.com/rest/pulls/reviews#list-reviews-for-a-pull-request
        commit_sha: the reviewed head.
    """

    id: int
    body: Text = ""
    state: str
    submitted_at: Text = ""
    commit_sha: Text = Field(default="", validation_alias="commit_id")
    html_url: str


class ReviewCommentFacts(Facts):
    """A comment on lines of a pull request.

    Attributes:
        comment: the fields that every comment has.
        root: the first comment of its thread; its own id for that one.
        path: the file.
        line: the last line, by the present numbers of `side`; None when the comment is about the file, or outdated.
        start_line: the first line, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        hunk: the part of the diff that ends there.
        commit_sha: the commit that it was made on.
    """

    comment: CommentFacts
    root: int
    path: str
    line: int | None = None
    start_line: int | None = None
    side: Side = "RIGHT"
    hunk: Text = Field(default="", validation_alias="diff_hunk")
    commit_sha: Text = Field(default="", validation_alias="commit_id")

    @model_validator(mode="before")
    @classmethod
    def _split(cls, data: object) -> object:
        if not isinstance(data, dict) or "comment" in data:
            return data
        side = {"side": data.get("side") or "RIGHT"}
        return data | side | {"comment": data, "root": data.get("in_reply_to_id") or data.get("id")}


class CheckFacts(Facts):
    """A check run.

    Attributes:
        annotations: their number.
        external_id: as in the draft.
        app_id: of the App that made it.
    """

    id: int
    html_url: Text = ""
    annotations: Number = Field(default=0, validation_alias=AliasPath("output", "annotations_count"))
    external_id: Text = ""
    app_id: int | None = Field(default=None, validation_alias=AliasPath("app", "id"))


class Annotation(Facts):
    """A message about lines of a file.

    Attributes:
        path: relative to the repository's root.
        start_line: the first line, counted from 1.
        end_line: the last line.
        level: its severity.
        message: the problem.
        title: a headline; may be empty.
    """

    path: str
    start_line: int
    end_line: int
    level: Annotated[Level, BeforeValidator(_level)] = Field(validation_alias="annotation_level")
    message: Text = ""
    title: Text = ""


class RedCheck(Facts):
    """A failed check run or commit status.

    Attributes:
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        summary: its explanation, Markdown; may be empty.
        annotations: its first ones.
        html_url: its page; may be empty.
    """

    name: str = Field(validation_alias=AliasChoices("name", "context"))
    conclusion: str = Field(validation_alias=AliasChoices("conclusion", "state"))
    summary: Annotated[str, BeforeValidator(_output)] = Field(
        default="", validation_alias=AliasChoices("output", "description")
    )
    annotations: tuple[Annotation, ...] = ()
    html_url: Text = Field(default="", validation_alias=AliasChoices("html_url", "target_url"))


class CommitStatuses(Facts):
    """The statuses of a commit."""

    statuses: tuple[RedCheck, ...] = ()


class RunFacts(Facts):
    """A workflow run.

    Attributes:
        path: the workflow's file, without the branch that GitHub may put behind it.
        event: its trigger, e.g. `push`.
        number: counts the workflow's runs.
        attempt: from 1.
        conclusion: in GitHub's words; empty while it is under way.
        head_repo_id: the repository of its commit; None when that is gone. A fork may have a branch of the same name,
            so a run is identified by this and by `head_sha`, never by `head_branch`.
    """

    id: int
    workflow_id: int
    name: Text = ""
    conclusion: Text = ""
    head_sha: str
    head_branch: Text = ""
    head_repo_id: int | None = Field(default=None, validation_alias=AliasPath("head_repository", "id"))
    html_url: str
    path: Annotated[Text, AfterValidator(lambda path: path.partition("@")[0])] = ""
    event: Text = ""
    number: Number = Field(default=0, validation_alias="run_number")
    attempt: int = Field(default=1, validation_alias="run_attempt")


class StepFacts(Facts):
    """A step of a workflow's job.

    Attributes:
        conclusion: in GitHub's words; empty while it is under way.
        started_at: ISO 8601, UTC, whole seconds; empty for a step that never began.
        completed_at: the same of its end.
    """

    number: int
    name: str
    conclusion: Text = ""
    started_at: Text = ""
    completed_at: Text = ""


class JobFacts(Facts):
    """A job of a workflow run.

    Attributes:
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words; empty while it is under way.
        labels: of the requested runner.
        check_id: of the check run that shows it, which has its annotations; 0 where GitHub does not say.
        html_url: its page; may be empty.
    """

    id: int
    name: str
    conclusion: Text = ""
    steps: Annotated[tuple[StepFacts, ...], BeforeValidator(lambda steps: steps or ())] = ()
    labels: Names = ()
    check_id: Annotated[int, BeforeValidator(_last_number)] = Field(default=0, validation_alias="check_run_url")
    html_url: Text = ""


class ArtifactFacts(Facts):
    """A file that a workflow run has kept.

    Attributes:
        name: the run's; a stranger may have chosen it.
        size: of its zip file, in bytes.
        expired: whether GitHub has removed it.
        run_id: of the run that kept it; 0 where GitHub does not say.
        head_repo_id: the repository of the run's branch; of a fork's pull request the fork's. None where GitHub does
            not say.
    """

    id: int
    name: str
    size: Number = Field(default=0, validation_alias="size_in_bytes")
    expired: bool = False
    run_id: Number = Field(default=0, validation_alias=AliasPath("workflow_run", "id"))
    head_repo_id: int | None = Field(default=None, validation_alias=AliasPath("workflow_run", "head_repository_id"))


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

    def fields(self, redact: Callable[[str], str]) -> dict[str, Any]:
        """The fields that both APIs name alike, without secrets."""
        return {"title": redact(self.title), "body": redact(self.body), "draft": self.draft}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response of GitHub's API.

    Attributes:
        headers: by their names in lower case.
        data: the parsed body; None for an empty one.
    """

    status: int
    headers: Mapping[str, str]
    data: Any


_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_ACCESS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_ALL_OF_A_JOB = "contents=write,issues=write,pull_requests=write"
_NO_PERMISSION = "resource not accessible"
_MEANT = (_NO_PERMISSION, "archived", "locked", "suspended", "not permitted", "protected", "rule violations", "blocked")
"""What says that asking again in a minute is of no use."""
_ASK = "Report this to the bot's operator."
_BLOCKED = "GitHub has blocked the repository; its owner can ask GitHub's support why."
_UNREADABLE = (
    "Give the command again later. If the error persists, check CODEPILOT_API_URL and the network between the "
    "bot and GitHub."
)
_REMEDIES = (
    (_NO_PERMISSION, "Grant the App this permission in its settings, then accept it in the installation."),
    ("not permitted to create or approve pull requests", "Allow it under Settings, Actions, General."),
    ("archived", "Unarchive the repository first."),
    ("locked", "Unlock the conversation first."),
    ("suspended", "Unsuspend the App's installation."),
    ("protected branch", "Exempt the App from the branch's protection rules, or ask for a pull request."),
    ("rule violations", "Exempt the App from the repository's rulesets."),
    ("rate limit", "Wait until the limit is reset, then give the command again."),
)
_BY_STATUS = {
    401: "Check that the token or the App's private key is still valid.",
    403: "Check which permission the App is missing in its settings.",
    404: "Check that it still exists, and that the App is installed on the repository.",
    408: "Give the command again later.",
    410: "It was deleted, or the feature is turned off for this repository.",
    429: "Wait until the limit is reset, then give the command again.",
}


class GitHubError(BotError):
    """GitHub did not do what it was asked.

    Attributes:
        what: what was asked, e.g. `comment on owner/name#12`.
        status: the HTTP status; 0 when no answer came.
        said: GitHub's own message.
        remedy: what a person can do about it.
        limited: whether it was a rate limit, which GitHub also answers with 403.
        retry_after: seconds until the end of a rate limit.
        answer: the refusal as it arrived; None without one.
    """

    def __init__(
        self,
        what: str,
        status: int,
        said: str,
        remedy: str,
        *,
        limited: bool = False,
        retry_after: float = 0.0,
        answer: Answer | None = None,
    ) -> None:
        reason = f"GitHub answered {status}: {said}" if status else f"no answer from GitHub: {said}"
        super().__init__(f"Could not {what}; {reason.rstrip('.')}. {remedy}")
        self.what = what
        self.status = status
        self.said = said
        self.remedy = remedy
        self.limited = limited
        self.retry_after = retry_after
        self.answer = answer

    @property
    def passing(self) -> bool:
        """Whether asking again later may help."""
        # Below 400 no answer came, or one that nobody can read: a proxy's page, half an answer.
        unanswered = self.status < HTTPStatus.BAD_REQUEST
        return self.limited or unanswered or self.status in _PASSING or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def unsettled(self) -> bool:
        """Whether GitHub may think better of it within minutes: it says 401, 403 or 404 for a hiccup of its own, too.

        Where it names what it lacks, e.g. a permission, it means it.
        """
        return self.status in _ACCESS and not any(words in self.said.lower() for words in _MEANT)

    @property
    def may_be_told_later(self) -> bool:
        """Whether what was refused may be taken one day: when GitHub is back, or the repository is."""
        return self.passing or self.status in _ACCESS | {HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS}

    @property
    def lacks_permission(self) -> bool:
        """Whether the App, or the token, may not do it at all."""
        return self.status == HTTPStatus.FORBIDDEN and _NO_PERMISSION in self.said.lower()

    @property
    def may_be_done(self) -> bool:
        """Whether GitHub may still have done it, and only its answer was lost; a rate limit stops it before."""
        return self.passing and not self.limited


class HeadMovedError(GitHubError):
    """The branch is not where it was expected; nothing was written."""


class FileTooLargeError(BotError):
    """A file of a repository that has more bytes than GitHub gives out with its name.

    Attributes:
        size: how many it has.
    """

    def __init__(self, repo: str, path: str, size: int) -> None:
        super().__init__(f"{repo}: {path}: has {size:,} bytes, which is too large to be read.")
        self.size = size


class CannotExpressError(BotError):
    """GitHub's commit API has no words for this change (modes, links, sizes); a git push has."""


def thread_is_gone(repo: str, number: int) -> GitHubError:
    """There is no such issue or pull request any more."""
    status, said = HTTPStatus.NOT_FOUND, "there is no such issue or pull request"
    return GitHubError(f"read {repo}#{number}", status, said, remedy_for(status, said))


def unreadable(what: str, status: int, why: str) -> GitHubError:
    """The error for an answer that is not what GitHub documents, from GitHub itself or from something in between.

    Args:
        what: what was asked.
        status: the HTTP status of the answer.
        why: what is wrong with it.
    """
    return GitHubError(what, status, why, _UNREADABLE)


def remedy_for(status: int, said: str, *, needs: str = "", in_workflow: bool = False) -> str:
    """What helps against an answer.

    Args:
        status: the HTTP status; 0 when no answer came.
        said: GitHub's message.
        needs: the permission that GitHub would have taken, from `X-Accepted-GitHub-Permissions`, e.g. `checks=write`:
            https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api#resource-not-accessible
        in_workflow: whether the token is a workflow's, whose permissions are in its YAML.
    """
    text = said.lower()
    if in_workflow and _NO_PERMISSION in text:
        return _for_the_job(needs)
    if needs and _NO_PERMISSION in text:
        wanted = " or ".join(f"`{each.strip().replace(',', ' and ').replace('=', ': ')}`" for each in needs.split(";"))
        return f"Grant the App the permission {wanted} in its settings, then accept it in the installation."
    if status == HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS:
        return _BLOCKED
    for words, remedy in _REMEDIES:
        if re.search(rf"\b{words}\b", text):
            return remedy
    if in_workflow and status == HTTPStatus.FORBIDDEN:
        return _for_the_job(needs)
    server = status < HTTPStatus.BAD_REQUEST or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status, "Give the command again later." if server else _ASK)


def _for_the_job(needs: str) -> str:
    """The YAML that gives a workflow's token what it lacks; all that the bot needs where GitHub does not say what."""
    wanted = [
        f"`permissions: {{ {each.strip().replace('_', '-').replace('=', ': ').replace(',', ', ')} }}`"
        for each in (needs or _ALL_OF_A_JOB).split(";")
    ]
    return f"Add this permission to the workflow's job: {' or '.join(wanted)}."


def is_stale(said: str) -> bool:
    """Whether `createCommitOnBranch` says that the branch moved."""
    return "STALE_DATA" in said or "expected branch to point to" in said.lower()


_SHOWN_CHARS = 80
_SHOWN_FIELDS = 3
_OK = 200


def parsed(what: str, text: str, *, status: int = _OK) -> Any:  # noqa: ANN401 - parsed JSON
    """The JSON of an answer that says all went well; None for the empty body of 204.

    Args:
        what: what was asked.
        text: the answer's body.
        status: its HTTP status.

    Raises:
        GitHubError: it is no JSON, or neither an object nor a list.
    """
    if not text.strip():
        if status == _OK:
            raise unreadable(what, status, "an empty answer")
        return None
    beginning = " ".join(text[: 4 * _SHOWN_CHARS].split())[:_SHOWN_CHARS].replace("`", "'")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(what, status, f"not JSON, but `{beginning}`") from error
    if not isinstance(found, dict | list):
        raise unreadable(what, status, f"no object and no list, but `{beginning}`")
    return found


def explained(text: str) -> dict[str, Any]:
    """The JSON object of an answer that says something went wrong; empty for anything else, such as a page of HTML."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def details(errors: object) -> list[str]:
    """What the `errors` of an answer say, each a text or an object, as GitHub's APIs have both."""
    listed = errors if isinstance(errors, list) else []
    said = [each.get("message") or each.get("code") if isinstance(each, Mapping) else each for each in listed]
    return [each for each in said if isinstance(each, str) and each]


@lru_cache(maxsize=128)
def _adapter(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", shape))


def parse(shape: type[Shape], what: str, data: object) -> Shape:
    """Read the data of an answer.

    Args:
        shape: the expected type.
        what: the request, for the error's text.
        data: parsed JSON.

    Raises:
        GitHubError: fields are missing or malformed.
    """
    try:
        return cast("Shape", _adapter(cast("Hashable", shape)).validate_python(data))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)[:_SHOWN_FIELDS]
        fields = ", ".join(f"`{'.'.join(map(str, each['loc'])) or 'data'}`" for each in problems)
        raise unreadable(what, _OK, f"an answer without a valid {fields}") from error
