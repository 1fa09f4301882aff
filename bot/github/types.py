"""GitHub's objects (`…Facts`), drafts of objects to write (`…Draft`), errors, and the parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from typing_extensions import override

from bot.domain.branch_rules import find_rule
from bot.domain.difference import Side
from bot.domain.errors import NO_PERMISSION, BotError, Certainty, certainty_of
from bot.domain.job import Actor

CheckStatus = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["success", "failure", "neutral", "cancelled", "action_required", "timed_out", "skipped"]
Level = Literal["notice", "warning", "failure"]
Shape = TypeVar("Shape")

# https://docs.github.com/rest/checks/runs#create-a-check-run
MAX_BUTTONS = 3
MAX_LABEL, MAX_DESCRIPTION, MAX_IDENTIFIER = 20, 40, 20
CHECK_TEXT_LIMIT = 65_535
"""Characters of a check run's summary, and of its text."""
BODY_LIMIT = 65_536
"""Characters of a comment or review body."""
TITLE_LIMIT = 255
"""Characters of a title."""
ANNOTATION_LIMIT = 16_384
"""Characters of an annotation's message; GitHub's limit is 64 KB."""


def _text(value: object) -> object:
    return "" if value is None else value


def _number(value: object) -> object:
    return 0 if value is None else value


def _state(value: object) -> object:
    return str(value).lower() if value in {"OPEN", "CLOSED"} else "closed" if value == "MERGED" else value


def _kind(value: object) -> object:
    return value if value in ("issue", "pull") else "issue" if value in (None, "Issue") else "pull"


def _level(value: object) -> object:
    return value if value in get_args(Level) else "failure"


def _user(value: object) -> object:
    if isinstance(value, dict):
        return {"id": value.get("id") or 0, "login": value.get("login", "ghost")}
    return value or Actor(id=0, login="ghost")


def _people(value: object) -> object:
    return tuple(_user(account) for account in value) if isinstance(value, list | tuple) else ()


def _labeller(value: object) -> object:
    """Return an account with the suffix that GraphQL leaves out of an App's login."""
    if not isinstance(value, dict) or "__typename" not in value:
        return value
    suffix = "[bot]" if value["__typename"] == "Bot" else ""
    return {"id": value.get("id") or 0, "login": f"{value.get('login', '')}{suffix}"}


def _names(value: object) -> object:
    entries = value if isinstance(value, list | tuple) else ()
    return tuple(label.get("name", "") if isinstance(label, dict) else label for label in entries if label)


def _last_number(value: object) -> object:
    number = value.rpartition("/")[2] if isinstance(value, str) else value
    return number if isinstance(number, int) or (isinstance(number, str) and number.isdecimal()) else 0


def _output(value: object) -> object:
    if not isinstance(value, dict):
        return value or ""
    return "\n\n".join(str(value[field]) for field in ("title", "summary", "text") if value.get(field))


Text = Annotated[str, BeforeValidator(_text)]
Number = Annotated[int, BeforeValidator(_number)]
State = Annotated[Literal["open", "closed"], BeforeValidator(_state)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
People = Annotated[tuple[Actor, ...], BeforeValidator(_people)]


class Facts(BaseModel):
    """An object of GitHub's API; unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True, validate_by_name=True, validate_by_alias=True, hide_input_in_errors=True, defer_build=True
    )


class Authored(Facts):
    """An object with an author; a deleted account has the login `ghost` and the id 0."""

    author: Annotated[Actor, BeforeValidator(_user)] = Field(
        default=None, validate_default=True, validation_alias="user"
    )


class RepoFacts(Facts):
    id: int
    full_name: str
    private: bool
    archived: bool = False
    default_branch: str = Field(validation_alias=AliasChoices("default_branch", AliasPath("defaultBranchRef", "name")))
    html_url: str
    clone_url: str = Field(default_factory=lambda data: f"{data['html_url']}.git")
    node_id: Text = ""


class FolderFile(Facts):
    sha: str
    size: int
    type: str = "file"


class CommitFacts(Facts):
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
        return tuple(
            parent.get("sha") or parent.get("oid") if isinstance(parent, dict) else parent for parent in entries
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity(Actor):
    """The bot's account; `app_id` is None with a plain token."""

    app_id: int | None = None


class ThreadFacts(Authored):
    """An issue or pull request, as the API of issues has both."""

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


class LabelFacts(Facts):
    name: str
    description: Text = ""


class PullFacts(ThreadFacts):
    """A pull request; `head_repo` and `head_repo_id` are None for a deleted fork, `mergeable` while it is computed."""

    kind: Literal["issue", "pull"] = "pull"
    merged: bool = False
    mergeable: bool | None = None
    draft: bool = False
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

    @field_validator("from_fork", mode="before")
    @classmethod
    def _is_from_fork(cls, value: object, info: ValidationInfo) -> bool:
        return value if isinstance(value, bool) else value != info.data.get("head_repo_id")


class TargetFacts(ThreadFacts):
    """A thread that an action changes; `draft` and `merged` are a pull request's."""

    draft: bool = False
    merged: bool = False
    assignees: People = Field(default=(), validation_alias=AliasPath("assignees", "nodes"))


class DiscussionFacts(Authored):
    """A discussion or a comment on one; a comment has no number."""

    node_id: str
    number: int = 0
    body: Text = ""
    html_url: str
    locked: bool = False


class IssueField(Facts):
    """A field of an organization's issues; `options` are a selection's names.

    https://docs.github.com/rest/orgs/issue-fields
    """

    id: int
    name: str
    data_type: str
    options: Names = ()

    def parse_value(self, text: str) -> str | float | list[str]:
        """Return a value in the form that GitHub takes for the type of the field."""
        if self.data_type == "number" and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
            return float(text) if "." in text else int(text)
        return [text] if self.data_type == "multi_select" else text


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoState:
    """The state of a repository at one moment, as far as a caller asked for it.

    Attributes:
        threads: existing issues and pull requests by number.
        labels: existing ones of the requested labels.
        milestones: titles of the open ones.
        categories: names of the categories for discussions.
        types: names of the enabled issue types.
        assignable: requested accounts that can be assigned, or asked for a review.
        branches: existing ones of the requested branches, and whether a rule protects each.
    """

    threads: Mapping[int, TargetFacts] = field(default_factory=dict)
    discussions: Mapping[int, DiscussionFacts] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    milestones: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    fields: tuple[IssueField, ...] = ()
    assignable: frozenset[str] = frozenset()
    branches: Mapping[str, bool] = field(default_factory=dict)


class PullLink(Facts):
    number: int
    html_url: str
    draft: bool = False


class Snapshot(Facts):
    """A repository and one of its threads or branches at one moment."""

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


class LabelSetting(Facts):
    """One time that a label was set; `actor` is None for a deleted account."""

    name: str = Field(validation_alias=AliasPath("label", "name"))
    actor: Annotated[Actor | None, BeforeValidator(_labeller)] = None
    at: AwareDatetime = Field(validation_alias="createdAt")


class _Rename(Facts):
    at: AwareDatetime = Field(validation_alias="createdAt")


class LabelHistory(Facts):
    """The settings of a thread's labels; for an issue also its text, and the times of its last changes."""

    settings: tuple[LabelSetting, ...] = Field(validation_alias=AliasPath("settings", "nodes"))
    title: str = ""
    body: Text = ""
    edited_at: AwareDatetime | None = Field(default=None, validation_alias="lastEditedAt")
    renames: tuple[_Rename, ...] = Field(default=(), validation_alias=AliasPath("renames", "nodes"))

    def last_setting(self, name: str) -> LabelSetting | None:
        named = (setting for setting in self.settings if setting.name.casefold() == name.casefold())
        return max(named, key=lambda setting: setting.at, default=None)

    def is_text_older_than(self, moment: datetime) -> bool:
        """Whether the text is from before a moment; a change in its very second may be from after it."""
        changes = [rename.at for rename in self.renames] + ([self.edited_at] if self.edited_at else [])
        return all(change < moment for change in changes)


class PushFacts(Facts):
    """A change of a branch, at the time that GitHub received it."""

    ref: str
    after: str
    at: AwareDatetime = Field(validation_alias="timestamp")


def head_at(pushes: Sequence[PushFacts], moment: datetime, head: str, own: Mapping[str, str] | None = None) -> str:
    """Return the commit of a branch at a moment, or the present one if only `own` commits followed, each on the last.

    The result is empty unless the pushes prove it.

    Times have whole seconds, so the order of a second is unknown.

    Args:
        pushes: the branch's newest ones.
        moment: before the present.
        head: the present commit; if the newest push did not bring it, the list is not up to date.
        own: first parents of commits that the bot published; anybody may push such a commit again, on other ones.
    """
    commits: dict[datetime, set[str]] = {}
    for push in pushes:
        commits.setdefault(push.at, set()).add(push.after)
    last = max((at for at in commits if at <= moment), default=None)
    if last is None or last == moment or head not in commits[max(commits)]:
        return ""
    [*others, commit] = commits[last]
    followed = commit
    for at in sorted(at for at in commits if at > moment):
        [*more, sha] = commits[at]
        if more or (own or {}).get(sha) != followed:
            return "" if others else commit
        followed = sha
    return "" if others else followed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentTarget:
    """The thread of a comment; `root` is the first comment's id for a `review_thread`, else 0.

    Raises:
        ValueError: `root` does not match the kind.
    """

    kind: Literal["thread", "review_thread"]
    number: int
    root: int = 0

    def __post_init__(self) -> None:
        if (self.kind == "review_thread") != bool(self.root):
            raise ValueError(f"a {self.kind} cannot begin with comment {self.root}")


class CommentEdit(Facts):
    """A comment's newest text.

    Attributes:
        editor_id: of the last editor; 0 without one.
    """

    body: Text = ""
    author_id: int = Field(default=0, validation_alias=AliasPath("author", "id"))
    editor_id: int = Field(default=0, validation_alias=AliasPath("editor", "id"))


class CommentFacts(Authored):
    id: int
    node_id: Text = ""
    body: Text = ""
    created_at: Text = ""
    updated_at: Text = Field(default_factory=lambda data: data["created_at"])
    html_url: str


class ReviewFacts(CommentFacts):
    """A review; `created_at` is empty while pending. GitHub does not report edits."""

    created_at: Text = Field(default="", validation_alias="submitted_at")
    state: str
    commit_sha: Text = Field(default="", validation_alias="commit_id")


class ReviewCommentFacts(CommentFacts):
    """A comment on lines of a pull request.

    Attributes:
        root: id of the thread's first comment.
        line: the last line; None for a comment on the file, or outdated.
    """

    root: int = Field(default=0, validate_default=True, validation_alias="in_reply_to_id")
    path: str
    line: int | None = None
    hunk: Text = Field(default="", validation_alias="diff_hunk")

    @field_validator("root", mode="before")
    @classmethod
    def _first_id(cls, value: object, info: ValidationInfo) -> object:
        return value or info.data.get("id")


class PullFile(Facts):
    """A file of a pull request's difference; GitHub leaves out the patch of binary and of large ones."""

    path: str = Field(validation_alias="filename")
    patch: Text = ""


class Annotation(Facts):
    path: str
    start_line: int
    end_line: int
    level: Annotated[Level, BeforeValidator(_level)] = Field(validation_alias="annotation_level")
    message: Text = ""
    title: Text = ""


class CheckFacts(Facts):
    """A check run or commit status; `conclusion` is empty while it runs.

    Attributes:
        annotations: the first ones, if requested.
    """

    id: int
    name: str = Field(validation_alias=AliasChoices("name", "context"))
    conclusion: Text = Field(default="", validation_alias=AliasChoices("conclusion", "state"))
    summary: Annotated[str, BeforeValidator(_output)] = Field(
        default="", validation_alias=AliasChoices("output", "description")
    )
    html_url: Text = Field(default="", validation_alias=AliasChoices("html_url", "target_url"))
    annotations_count: Number = Field(default=0, validation_alias=AliasPath("output", "annotations_count"))
    annotations: tuple[Annotation, ...] = ()
    external_id: Text = ""
    app_id: int | None = Field(default=None, validation_alias=AliasPath("app", "id"))


class CommitStatuses(Facts):
    statuses: tuple[CheckFacts, ...] = ()


class RunFacts(Facts):
    """A workflow run; `conclusion` is empty while running.

    Identify a run by `head_repo_id` and `head_sha`: a fork can have the same `head_branch`.
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
    number: int
    name: str
    conclusion: Text = ""
    started_at: Text = ""
    completed_at: Text = ""

    @property
    def failed(self) -> bool:
        return self.conclusion in {"failure", "timed_out", "cancelled"}


class JobFacts(Facts):
    id: int
    name: str
    conclusion: Text = ""
    steps: Annotated[tuple[StepFacts, ...], BeforeValidator(lambda steps: steps or ())] = ()
    labels: Names = ()
    check_id: Annotated[int, BeforeValidator(_last_number)] = Field(default=0, validation_alias="check_run_url")
    html_url: Text = ""


class ArtifactFacts(Facts):
    """An artifact of a workflow run; `name` is untrusted, `size` the zip file's."""

    id: int
    name: str
    size: Number = Field(default=0, validation_alias="size_in_bytes")
    expired: bool = False
    run_id: Number = Field(default=0, validation_alias=AliasPath("workflow_run", "id"))
    head_repo_id: int | None = Field(default=None, validation_alias=AliasPath("workflow_run", "head_repository_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDraft:
    """A check run to create or update.

    Attributes:
        external_id: `<job id>:<issue|pull>:<number>:<request id or ->` or `<job id>:branch:<name>:<request id or ->`.
        annotations: GitHub only appends, so a later draft begins with an earlier one's.
        buttons: visible once `completed`.

    Raises:
        ValueError: GitHub would refuse it.
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
        if (self.status == "completed") != (self.conclusion is not None):
            raise ValueError(f"a check run that is {self.status} cannot have the conclusion {self.conclusion}")
        if len(self.buttons) > MAX_BUTTONS:
            raise ValueError(f"a check run has at most {MAX_BUTTONS} buttons, not {len(self.buttons)}")
        if max(len(self.summary), len(self.text)) > CHECK_TEXT_LIMIT:
            raise ValueError(f"a check run's summary and text have at most {CHECK_TEXT_LIMIT} characters each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button of a check run.

    Raises:
        ValueError: a text exceeds GitHub's limit.
    """

    label: str
    description: str
    identifier: str

    def __post_init__(self) -> None:
        for text, limit in (
            (self.label, MAX_LABEL),
            (self.description, MAX_DESCRIPTION),
            (self.identifier, MAX_IDENTIFIER),
        ):
            if not 0 < len(text) <= limit:
                raise ValueError(f"{text!r} on a check run's button must have 1 to {limit} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDraft:
    commit_sha: str
    body: str
    notes: tuple[ReviewNote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewNote:
    path: str
    line: int
    body: str
    start_line: int | None = None
    side: Side = "RIGHT"

    @property
    def span(self) -> tuple[str, Side, int, int]:
        return self.path, self.side, self.start_line or self.line, self.line

    @property
    def place(self) -> str:
        first = f"{self.start_line}-" if self.start_line not in {None, self.line} else ""
        return f"{self.path}:{first}{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDraft:
    base: str
    title: str
    body: str
    draft: bool

    def fields(self, redact: Callable[[str], str]) -> dict[str, Any]:
        return {"title": redact(self.title), "body": redact(self.body), "draft": self.draft}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: Any


APP_REMOVED = (
    "The App is no longer installed there, or no longer exists. Install it again if it is to work there, and check "
    "CODEPILOT_APP_ID."
)
_ACCESS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_ALL_OF_A_JOB = "contents=write,issues=write,pull_requests=write"
_ASK = "Report this to the bot's operator."
_BLOCKED = "GitHub has blocked the repository; its owner can ask GitHub's support why."
_UNREADABLE = (
    "Give the command again later. If the error persists, check CODEPILOT_API_URL and the network between the "
    "bot and GitHub."
)
_REMEDIES = (
    (NO_PERMISSION, "Grant the App this permission in its settings, then accept it in the installation."),
    ("not permitted to create or approve pull requests", "Allow it under Settings, Actions, General."),
    ("archived", "Unarchive the repository first."),
    ("locked", "Unlock the conversation first."),
    ("suspended", "Unsuspend the App's installation."),
    ("protected branch", "Exempt the App from the branch's protection rules, or ask for a pull request."),
    ("rule violations", "Exempt the App from the repository's rulesets."),
    ("rate limit", "Wait until the limit is reset, then give the command again."),
)
_BY_STATUS = {
    401: "Check that the token or the App's private key is still valid; `codepilot doctor` tests the key.",
    403: "Check which permission the App is missing in its settings.",
    404: "Check that it still exists, and that the App is installed on the repository.",
    408: "Give the command again later.",
    410: "It was deleted, or the feature is turned off for this repository.",
    429: "Wait until the limit is reset, then give the command again.",
}


class GitHubError(BotError):
    """A request failed.

    Attributes:
        action: e.g. `comment on owner/name#12`.
        status: HTTP status; 0 without an answer.
        retry_after: seconds.
    """

    def __init__(
        self,
        action: str,
        status: int,
        message: str,
        remedy: str,
        *,
        limited: bool = False,
        retry_after: float = 0.0,
        answer: Answer | None = None,
    ) -> None:
        reason = f"GitHub answered {status}: {message}" if status else f"no answer from GitHub: {message}"
        super().__init__(f"Could not {action}; {reason.rstrip('.')}. {remedy}")
        self.action = action
        self.status = status
        self.message = message
        self.remedy = remedy
        self.limited = limited
        self.retry_after = retry_after
        self.answer = answer

    @property
    def certainty(self) -> Certainty:
        return "passing" if self.limited else certainty_of(self.status, self.message)

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed."""
        return self.certainty == "passing"

    @property
    def can_report_later(self) -> bool:
        """Whether a report may succeed hours later: people also unlock threads and unsuspend Apps by then."""
        is_refused = self.status in _ACCESS | {HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS}
        return (self.is_transient or is_refused) and not self.lacks_permission

    @property
    def lacks_permission(self) -> bool:
        return self.status == HTTPStatus.FORBIDDEN and NO_PERMISSION in self.message.lower()

    @property
    def may_have_succeeded(self) -> bool:
        """Whether GitHub may have performed the request."""
        return self.is_transient and not self.limited


class AppRemovedError(GitHubError):
    """The App is no longer installed, or was deleted. Nothing can be reported there, now or later."""

    @property
    @override
    def certainty(self) -> Certainty:
        return "definite"

    @property
    @override
    def can_report_later(self) -> bool:
        return False


class ChangeDroppedError(GitHubError):
    """GitHub accepted a request, but did not make its change, as it does for a token that may not make it."""

    @property
    @override
    def certainty(self) -> Certainty:
        return "definite"


class HeadMovedError(GitHubError):
    """The branch is not at the expected commit; nothing was written."""


class FileTooLargeError(BotError):
    def __init__(self, repo: str, path: str, size: int) -> None:
        super().__init__(f"{repo}: {path}: has {size:,} bytes, which is too large to be read.")
        self.size = size


class CannotExpressError(BotError):
    """GitHub's commit API does not support the change; git push does."""


def thread_not_found(repo: str, number: int) -> GitHubError:
    status, message = HTTPStatus.NOT_FOUND, "there is no such issue or pull request"
    return GitHubError(f"read {repo}#{number}", status, message, remedy_for(status, message))


def unreadable_answer(action: str, status: int, reason: str) -> GitHubError:
    """Return the error for an undocumented answer, perhaps from a proxy."""
    return GitHubError(action, status, reason, _UNREADABLE)


def remedy_for(status: int, message: str, *, needs: str = "", in_workflow: bool = False) -> str:
    """Return advice for a failed request.

    Args:
        status: HTTP status; 0 without an answer.
        message: GitHub's.
        needs: `X-Accepted-GitHub-Permissions`, e.g. `checks=write`.
        in_workflow: whether the token is a workflow's.
    """
    text = message.lower()
    if in_workflow and NO_PERMISSION in text:
        return _workflow_remedy(needs)
    if needs and NO_PERMISSION in text:
        permissions = " or ".join(
            f"`{permission.strip().replace(',', ' and ').replace('=', ': ')}`" for permission in needs.split(";")
        )
        return f"Grant the App the permission {permissions} in its settings, then accept it in the installation."
    if status == HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS:
        return _BLOCKED
    rule = find_rule(message)
    remedies = (remedy for words, remedy in _REMEDIES if re.search(rf"\b{words}\b", text))
    if remedy := rule.remedy if rule is not None else next(remedies, ""):
        return remedy
    if in_workflow and status == HTTPStatus.FORBIDDEN:
        return _workflow_remedy(needs)
    server = status < HTTPStatus.BAD_REQUEST or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status, "Give the command again later." if server else _ASK)


def _workflow_remedy(needs: str) -> str:
    permissions = [
        f"`permissions: {{ {permission.strip().replace('_', '-').replace('=', ': ').replace(',', ', ')} }}`"
        for permission in (needs or _ALL_OF_A_JOB).split(";")
    ]
    return f"Add this permission to the workflow's job: {' or '.join(permissions)}."


def is_stale(message: str) -> bool:
    """Whether `createCommitOnBranch` reports a moved branch."""
    return "STALE_DATA" in message or "expected branch to point to" in message.lower()


_SHOWN_CHARS = 80
_SHOWN_FIELDS = 3
_OK = 200


def parse_json(action: str, text: str, *, status: int = _OK, quotable: bool = True) -> Any:  # noqa: ANN401 - parsed JSON
    """Return the JSON of a successful answer; None for an empty 204.

    Args:
        action: for the error.
        text: the answer.
        status: HTTP status.
        quotable: whether an error can show the beginning of the answer.

    Raises:
        GitHubError: it is not an object or list.
    """
    if not text.strip():
        if status == _OK:
            raise unreadable_answer(action, status, "an empty answer")
        return None
    beginning = " ".join(text[: 4 * _SHOWN_CHARS].split())[:_SHOWN_CHARS].replace("`", "'")
    quote = f", but `{beginning}`" if quotable else ""
    try:
        data = _load_json(text)
    except (ValueError, RecursionError) as error:
        raise unreadable_answer(action, status, f"not JSON{quote}") from error
    if not isinstance(data, dict | list):
        raise unreadable_answer(action, status, f"no object and no list{quote}")
    return data


def _load_json(text: str) -> Any:  # noqa: ANN401 - parsed JSON
    data = json.loads(text)
    if "\\ud" in text or "\\uD" in text:  # half a surrogate pair is in no file, address or comment
        json.dumps(data, ensure_ascii=False).encode()
    return data


def parse_json_object(text: str) -> dict[str, Any]:
    try:
        data = _load_json(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def error_messages(errors: object) -> list[str]:
    listed = errors if isinstance(errors, list) else []
    messages = [entry.get("message") or entry.get("code") if isinstance(entry, Mapping) else entry for entry in listed]
    return [entry for entry in messages if isinstance(entry, str) and entry]


@lru_cache(maxsize=128)
def _adapter(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", shape))


def parse(shape: type[Shape], action: str, data: object) -> Shape:
    """Validate an answer.

    Raises:
        GitHubError: fields are missing or malformed.
    """
    try:
        return cast("Shape", _adapter(cast("Hashable", shape)).validate_python(data))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)[:_SHOWN_FIELDS]
        fields = ", ".join(f"`{'.'.join(map(str, problem['loc'])) or 'data'}`" for problem in problems)
        raise unreadable_answer(action, _OK, f"an answer without a valid {fields}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # From a validator that expects another type; pydantic converts only a ValueError.
        raise unreadable_answer(action, _OK, f"an answer of another form ({type(error).__name__})") from error
