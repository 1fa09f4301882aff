"""GitHub's things as values, drafts of what is to be written, and errors; and GitHub's JSON read into them. Pure.

No object of a client library leaves this package: a caller gets `…Facts` of what GitHub has now, and passes a `…Draft`.
A field that GitHub leaves out now and then is tolerated; the lack of any other is a `GitHubError`, whose text names the
fix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Never, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.domain.access import Role
from bot.domain.errors import BotError

Json = Mapping[str, Any]
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


class Facts(BaseModel):
    """A thing as GitHub describes it; other fields of the answer are ignored."""

    model_config = ConfigDict(frozen=True, validate_by_name=True, validate_by_alias=True, hide_input_in_errors=True)

    @classmethod
    def parse(cls, what: str, data: object) -> Self:
        """Read an answer.

        Raises:
            GitHubError: fields are missing or malformed.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            fields = ", ".join(f"`{'.'.join(map(str, each['loc']))}`" for each in problems)
            raise unreadable(what, _OK, f"an answer without a valid {fields}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFacts:
    """A repository now, as opposed to when a delivery was made.

    Attributes:
        id: survives renames.
        full_name: `owner/name`.
        clone_url: what git fetches from and pushes to.
        html_url: its page.
        node_id: what GraphQL calls it.
    """

    id: int
    full_name: str
    private: bool
    archived: bool
    default_branch: str
    clone_url: str
    html_url: str
    node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFile:
    """A file in a folder.

    Attributes:
        sha: its blob's id.
        size: in bytes.
    """

    sha: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """A commit, as far as is needed to know it again.

    Attributes:
        message: the whole of it; GitHub may have trimmed it, or signed it off.
    """

    sha: str
    tree_sha: str
    parents: tuple[str, ...]
    message: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account.

    Attributes:
        kind: `User`, `Bot`, `Organization`, or whatever else GitHub comes to know.
    """

    id: int
    login: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    """Whom GitHub takes us for; comments by this id are ours.

    Attributes:
        app_id: of the App that we are, whose check runs are ours; None when we act with a plain token.
    """

    id: int
    login: str
    app_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """An issue or pull request now.

    Attributes:
        author: login of its author; `ghost` for a deleted account.
        author_id: the author's numeric id; 0 for a deleted account.
        labels: names of its labels.
    """

    kind: Literal["issue", "pull"]
    number: int
    state: Literal["open", "closed"]
    locked: bool
    title: str
    body: str
    author: str
    author_id: int
    labels: tuple[str, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFacts:
    """A pull request's two ends now.

    Attributes:
        author: login of its author; `ghost` for a deleted account.
        author_id: the author's numeric id; 0 for a deleted account.
        head_repo: `owner/name` of where the branch lives; None when that fork was deleted.
        head_repo_id: its id, or None.
        from_fork: whether the branch lives in another repository.
        body: its description; empty where it was not asked for.
    """

    number: int
    state: Literal["open", "closed"]
    merged: bool
    draft: bool
    locked: bool
    author: str
    author_id: int
    head_ref: str
    head_sha: str
    head_repo: str | None
    head_repo_id: int | None
    base_ref: str
    base_sha: str
    from_fork: bool
    html_url: str
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLink:
    """A pull request that was opened or found."""

    number: int
    html_url: str
    draft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A repository and one of its threads, or of its branches, at the same moment.

    Attributes:
        default_head: the commit that the default branch stands at; None in an empty repository.
        thread: None when there is no such thread, or a branch was asked for.
        pull: its two ends, when it is a pull request.
        base_head: the commit that the pull request's base branch stands at; None when that branch is gone.
        branch_head: the commit that the branch stands at that was asked for; None when there is none.
    """

    repo: RepoFacts
    default_head: str | None
    thread: ThreadFacts | None = None
    pull: PullFacts | None = None
    base_head: str | None = None
    branch_head: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a comment stands.

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
        """A thread about lines is known by its first comment."""
        if (self.kind == "review_thread") != bool(self.root):
            raise ValueError(f"a {self.kind} cannot begin with comment {self.root}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentFacts:
    """A comment on an issue or pull request.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        created_at: ISO 8601, UTC.
        updated_at: the same as `created_at` when it was never edited.
    """

    id: int
    author: str
    author_id: int
    body: str
    created_at: str
    updated_at: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFacts:
    """The words above a review's comments.

    Attributes:
        author: login; `ghost` for a deleted account.
        author_id: numeric id; 0 for a deleted account.
        state: in GitHub's words, e.g. `COMMENTED` or `CHANGES_REQUESTED`.
        submitted_at: ISO 8601, UTC; empty for a review that is not submitted. GitHub does not say when its words were
            edited: https://docs.github.com/rest/pulls/reviews#list-reviews-for-a-pull-request
        commit_sha: the head that was looked at.
    """

    id: int
    author: str
    author_id: int
    body: str
    state: str
    submitted_at: str
    commit_sha: str
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCommentFacts:
    """A comment on lines of a pull request.

    Attributes:
        comment: what every comment has.
        root: the first comment of its thread; its own id for that one.
        path: the file.
        line: the last line, as it stands on `side` now; None when the comment is about the file, or outdated.
        start_line: the first line, or None for one line.
        side: `RIGHT` for the file after the change, `LEFT` for before.
        hunk: the part of the diff that ends there.
        commit_sha: the commit that it was made on.
    """

    comment: CommentFacts
    root: int
    path: str
    line: int | None
    start_line: int | None
    side: Side
    hunk: str
    commit_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """A check run of ours.

    Attributes:
        annotations: how many it has.
    """

    id: int
    html_url: str
    annotations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedCheck:
    """A check run or a commit status that went wrong.

    Attributes:
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        summary: what it says about it, Markdown; may be empty.
        annotations: its first words about lines.
        html_url: its page; may be empty.
    """

    name: str
    conclusion: str
    summary: str
    annotations: tuple[Annotation, ...]
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A workflow run.

    Attributes:
        workflow_id: of the workflow that it is a run of.
        path: the workflow's file, without the branch that GitHub may put behind it.
        event: what it ran for, e.g. `push`.
        number: counts the workflow's runs.
        attempt: which attempt of it, from 1.
        conclusion: in GitHub's words; empty while it is under way.
        head_repo_id: the repository that its commit lives in; None when that is gone. A fork may have a branch of the
            same name, so a run is known by this and by `head_sha`, never by `head_branch`.
    """

    id: int
    workflow_id: int
    name: str
    conclusion: str
    head_sha: str
    head_branch: str
    head_repo_id: int | None
    html_url: str
    path: str = ""
    event: str = ""
    number: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job of a workflow run.

    Attributes:
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words; empty while it is under way.
        labels: of the runner that it asked for.
        check_id: of the check run that shows it, which has its annotations; 0 where GitHub does not say.
        html_url: its page; may be empty.
    """

    id: int
    name: str
    conclusion: str
    steps: tuple[StepFacts, ...]
    labels: tuple[str, ...]
    check_id: int
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step of a workflow's job.

    Attributes:
        conclusion: in GitHub's words; empty while it is under way.
        started_at: ISO 8601, UTC, whole seconds; empty for a step that never began.
        completed_at: the same of its end.
    """

    number: int
    name: str
    conclusion: str
    started_at: str
    completed_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """A file that a workflow run has kept.

    Attributes:
        id: GitHub's number of it.
        name: what the run called it; a stranger may have chosen that.
        size: of its zip file, in bytes.
        expired: whether GitHub has removed it.
        run_id: of the run that kept it; 0 where GitHub does not say.
        head_repo_id: the repository that the run's branch is in; of a fork's pull request the fork's. None where
            GitHub does not say.
    """

    id: int
    name: str
    size: int
    expired: bool
    run_id: int
    head_repo_id: int | None


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


_LEVELS: dict[str, Literal["notice", "warning", "failure"]] = {"notice": "notice", "warning": "warning"}


def repo(data: Json) -> RepoFacts:
    """A repository."""
    return RepoFacts(
        id=int(data["id"]),
        full_name=str(data["full_name"]),
        private=bool(data["private"]),
        archived=bool(data.get("archived", False)),
        default_branch=str(data["default_branch"]),
        clone_url=str(data["clone_url"]),
        html_url=str(data["html_url"]),
        node_id=str(data.get("node_id") or ""),
    )


def commit(data: Json) -> CommitFacts:
    """A commit of the git database API."""
    return CommitFacts(
        sha=str(data["sha"]),
        tree_sha=str(data["tree"]["sha"]),
        parents=tuple(str(each["sha"]) for each in data["parents"]),
        message=str(data["message"]),
        html_url=str(data["html_url"]),
    )


def account(data: Json) -> Account:
    """An account."""
    return Account(id=int(data["id"]), login=str(data["login"]), kind=str(data.get("type") or "User"))


def identity(data: Json, *, app_id: int | None = None) -> BotIdentity:
    """Our own account."""
    return BotIdentity(id=int(data["id"]), login=str(data["login"]), app_id=app_id)


def role(data: Json, known: Sequence[str]) -> Role:
    """The answer of the collaborator-permission API.

    `role_name` may be an organisation's own role; then `permission` names the basic one it builds on:
    https://docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """
    for field in ("role_name", "permission"):
        if data.get(field) in known:
            return cast("Role", data[field])
    return "none"


def thread(data: Json) -> ThreadFacts:
    """An issue, which may be a pull request."""
    return ThreadFacts(
        kind="pull" if "pull_request" in data else "issue",
        number=int(data["number"]),
        state="closed" if data["state"] == "closed" else "open",
        locked=bool(data.get("locked", False)),
        title=str(data["title"]),
        body=str(data.get("body") or ""),
        **_author(data),
        labels=label_names(data.get("labels", [])),
        html_url=str(data["html_url"]),
    )


def pull(data: Json) -> PullFacts:
    """A pull request in full."""
    head, base = data["head"], data["base"]
    head_repo = head.get("repo")
    return PullFacts(
        number=int(data["number"]),
        state="closed" if data["state"] == "closed" else "open",
        merged=bool(data.get("merged", False)),
        draft=bool(data.get("draft", False)),
        locked=bool(data.get("locked", False)),
        **_author(data),
        head_ref=str(head["ref"]),
        head_sha=str(head["sha"]),
        head_repo=str(head_repo["full_name"]) if head_repo else None,
        head_repo_id=int(head_repo["id"]) if head_repo else None,
        base_ref=str(base["ref"]),
        base_sha=str(base["sha"]),
        from_fork=not head_repo or head_repo["id"] != base["repo"]["id"],
        html_url=str(data["html_url"]),
        body=str(data.get("body") or ""),
    )


def pull_link(data: Json) -> PullLink:
    """Where a pull request is."""
    return PullLink(number=int(data["number"]), html_url=str(data["html_url"]), draft=bool(data.get("draft")))


def comment(data: Json) -> CommentFacts:
    """A comment of an issue, or on lines."""
    created = str(data.get("created_at") or "")
    return CommentFacts(
        id=int(data["id"]),
        **_author(data),
        body=str(data.get("body") or ""),
        created_at=created,
        updated_at=str(data.get("updated_at") or created),
        html_url=str(data["html_url"]),
    )


def review(data: Json) -> ReviewFacts:
    """A review."""
    return ReviewFacts(
        id=int(data["id"]),
        **_author(data),
        body=str(data.get("body") or ""),
        state=str(data["state"]),
        submitted_at=str(data.get("submitted_at") or ""),
        commit_sha=str(data.get("commit_id") or ""),
        html_url=str(data["html_url"]),
    )


def review_comment(data: Json) -> ReviewCommentFacts:
    """A comment on lines of a pull request."""
    return ReviewCommentFacts(
        comment=comment(data),
        root=int(data.get("in_reply_to_id") or data["id"]),
        path=str(data["path"]),
        line=_number(data.get("line")),
        start_line=_number(data.get("start_line")),
        side="LEFT" if data.get("side") == "LEFT" else "RIGHT",
        hunk=str(data.get("diff_hunk") or ""),
        commit_sha=str(data.get("commit_id") or ""),
    )


def check(data: Json) -> CheckFacts:
    """A check run."""
    output = data.get("output") or {}
    return CheckFacts(
        id=int(data["id"]),
        html_url=str(data.get("html_url") or ""),
        annotations=int(output.get("annotations_count") or 0),
    )


def red_check(data: Json, annotations: tuple[Annotation, ...]) -> RedCheck:
    """A check run that went wrong."""
    output = data.get("output") or {}
    return RedCheck(
        name=str(data["name"]),
        conclusion=str(data["conclusion"]),
        summary="\n\n".join(
            str(part) for part in (output.get(field) for field in ("title", "summary", "text")) if part
        ),
        annotations=annotations,
        html_url=str(data.get("html_url") or ""),
    )


def red_status(data: Json) -> RedCheck:
    """A commit status that went wrong."""
    return RedCheck(
        name=str(data["context"]),
        conclusion=str(data["state"]),
        summary=str(data.get("description") or ""),
        annotations=(),
        html_url=str(data.get("target_url") or ""),
    )


def annotation(data: Json) -> Annotation:
    """A check run's word about lines."""
    start = int(data.get("start_line") or 1)
    return Annotation(
        path=str(data["path"]),
        start_line=start,
        end_line=int(data.get("end_line") or start),
        level=_LEVELS.get(str(data.get("annotation_level")), "failure"),
        message=str(data.get("message") or ""),
        title=str(data.get("title") or ""),
    )


def run(data: Json) -> RunFacts:
    """A workflow run."""
    head = data.get("head_repository")
    return RunFacts(
        id=int(data["id"]),
        workflow_id=int(data["workflow_id"]),
        name=str(data.get("name") or ""),
        conclusion=str(data.get("conclusion") or ""),
        head_sha=str(data["head_sha"]),
        head_branch=str(data.get("head_branch") or ""),
        head_repo_id=int(head["id"]) if head else None,
        html_url=str(data["html_url"]),
        path=str(data.get("path") or "").partition("@")[0],
        event=str(data.get("event") or ""),
        number=int(data.get("run_number") or 0),
        attempt=int(data.get("run_attempt") or 1),
    )


def workflow_job(data: Json) -> JobFacts:
    """A job of a workflow run."""
    check_id = str(data.get("check_run_url") or "").rpartition("/")[2]
    return JobFacts(
        id=int(data["id"]),
        name=str(data["name"]),
        conclusion=str(data.get("conclusion") or ""),
        steps=tuple(map(_step, data.get("steps") or ())),
        labels=label_names(data.get("labels") or ()),
        check_id=int(check_id) if check_id.isdecimal() else 0,
        html_url=str(data.get("html_url") or ""),
    )


def _step(data: Json) -> StepFacts:
    return StepFacts(
        number=int(data["number"]),
        name=str(data["name"]),
        conclusion=str(data.get("conclusion") or ""),
        started_at=str(data.get("started_at") or ""),
        completed_at=str(data.get("completed_at") or ""),
    )


def artifact(data: Json) -> ArtifactFacts:
    """An artifact of a workflow run."""
    of_run = data.get("workflow_run") or {}
    return ArtifactFacts(
        id=int(data["id"]),
        name=str(data["name"]),
        size=int(data.get("size_in_bytes") or 0),
        expired=bool(data.get("expired")),
        run_id=int(of_run.get("id") or 0),
        head_repo_id=of_run.get("head_repository_id"),
    )


def label_names(data: Sequence[str | Json]) -> tuple[str, ...]:
    """Names of labels, which GitHub writes as objects and once in a while as bare names."""
    return tuple(each if isinstance(each, str) else str(each.get("name", "")) for each in data)


def account_id(data: Json) -> int:
    """The numeric id of the account that a thing is of; 0 for a deleted account."""
    return int((data.get("user") or {}).get("id", 0))


def _author(data: Json) -> dict[str, Any]:
    """The author's login and numeric id; a deleted account is called `ghost`, as on GitHub's pages."""
    return {"author": str((data.get("user") or {}).get("login", "ghost")), "author_id": account_id(data)}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


_SHOWN_CHARS = 80
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
        found = json.loads(text, object_hook=lambda fields: _Fields(what, fields))
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


class _Fields(dict[str, Any]):
    """A JSON object; asking for a field that it lacks is an error of GitHub's, not a bug of ours."""

    __slots__ = ("_what",)

    def __init__(self, what: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._what = what

    def __missing__(self, name: str) -> Never:
        raise unreadable(self._what, _OK, f"an answer without `{name}`")
