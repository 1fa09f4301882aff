"""The values that the local hub keeps, frozen; the store replaces one when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
ROLES: tuple[Role, ...] = ("none", "read", "triage", "write", "maintain", "admin")
"""Weakest first."""

ReviewState = Literal["PENDING", "COMMENTED", "APPROVED", "CHANGES_REQUESTED", "DISMISSED"]

Side = Literal["LEFT", "RIGHT"]
"""The old file of a difference, or the new one."""

ReactionKind = Literal["issue", "comment", "review_comment"]
"""The kinds of subjects that take reactions."""

Permissions = Mapping[str, str]
"""Permission name to `read` or `write`, as on GitHub's App settings page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person, an organisation or an App's bot account. `token` is empty for those who cannot sign in."""

    id: int
    login: str
    type: Literal["User", "Organization", "Bot"]
    name: str
    token: str
    created_at: datetime

    @property
    def email(self) -> str:
        """GitHub's private address for commits."""
        return f"{self.id}+{self.login}@users.noreply.github.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A GitHub App: its key, webhook and permissions."""

    id: int
    slug: str
    owner: str
    bot: User
    hook_id: int
    private_key_pem: str = field(repr=False)
    public_key_pem: str = field(repr=False)
    webhook_url: str
    webhook_secret: str = field(repr=False)
    permissions: Permissions
    events: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An App's presence on one account, for some of its repositories."""

    id: int
    app_id: int
    account: str
    repo_ids: tuple[int, ...]
    permissions: Permissions
    created_at: datetime
    suspended_at: datetime | None = None
    suspended_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInCode:
    """A code that an App exchanges for a user's token; `challenge` is the hash of the verifier (PKCE)."""

    app_id: int
    user_id: int
    challenge: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToken:
    """A token with which an App acts for a person."""

    app_id: int
    user_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationToken:
    """A short-lived token of an installation, perhaps narrower than the installation itself."""

    value: str = field(repr=False)
    installation_id: int
    repo_ids: tuple[int, ...]
    permissions: Permissions
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository; `path` is its bare git repository."""

    id: int
    owner: str
    name: str
    path: Path
    private: bool
    default_branch: str
    description: str
    fork_of: int | None
    created_at: datetime
    pushed_at: datetime
    archived: bool = False
    homepage: str = ""
    topics: tuple[str, ...] = ()
    has_issues: bool = True

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """Rules of the branches that a pattern matches.

    Attributes:
        branches: as for `fnmatch`.
        rules: as in the REST API.
        bypass: the logins of those whom they do not bind.
        classic: whether it is a protection of the older kind, which only the GraphQL API shows to writers.
    """

    id: int
    repo_id: int
    source: str
    branches: str
    rules: tuple[Mapping[str, Any], ...]
    bypass: frozenset[str] = frozenset()
    classic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label of a repository; `color` is six hexadecimal digits."""

    id: int
    name: str
    color: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A milestone of a repository."""

    id: int
    repo_id: int
    number: int
    title: str
    description: str | None
    creator_id: int
    created_at: datetime
    updated_at: datetime
    state: Literal["open", "closed"] = "open"
    due_on: datetime | None = None
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueType:
    """A type of an organisation's issues."""

    id: int
    owner: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueField:
    """A field of an organisation's issues; `options` are the ids and names of a selection's values."""

    id: int
    owner: str
    name: str
    data_type: Literal["text", "date", "single_select", "multi_select", "number"]
    options: tuple[tuple[int, str], ...]
    created_at: datetime


FieldValue = str | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscussionCategory:
    """A category of a repository's discussions."""

    id: int
    repo_id: int
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Discussion:
    """A discussion; it shares the row of numbers with issues."""

    id: int
    repo_id: int
    number: int
    category_id: int
    author_id: int
    title: str
    body: str
    created_at: datetime
    locked: bool = False
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscussionComment:
    """A comment on a discussion."""

    id: int
    repo_id: int
    number: int
    author_id: int
    body: str
    created_at: datetime
    parent_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """The part of a pull request beyond an issue. `base_sha` is the base branch's commit at the last `sync`."""

    id: int
    head_repo_id: int
    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str
    draft: bool
    maintainer_can_modify: bool = False
    reviewers: tuple[int, ...] = ()
    merged_at: datetime | None = None
    merged_by: int | None = None
    merge_commit_sha: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An issue, or a pull request when `pull` is there; both share one row of numbers.

    Attributes:
        fields: the ids of the organisation's fields that are set, with their values.
        duplicate_of: the id of the issue that it was closed as a duplicate of.
    """

    id: int
    repo_id: int
    number: int
    author_id: int
    title: str
    body: str | None
    created_at: datetime
    updated_at: datetime
    state: Literal["open", "closed"] = "open"
    state_reason: str | None = None
    locked: bool = False
    labels: tuple[str, ...] = ()
    assignees: tuple[int, ...] = ()
    closed_at: datetime | None = None
    closed_by: int | None = None
    app_id: int | None = None
    pull: Pull | None = None
    body_edited_at: datetime | None = None
    milestone_id: int | None = None
    lock_reason: str | None = None
    type_id: int | None = None
    fields: tuple[tuple[int, FieldValue], ...] = ()
    parent_id: int | None = None
    duplicate_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComment:
    """A comment on a commit, or on a line of its difference."""

    id: int
    repo_id: int
    sha: str
    author_id: int
    body: str
    path: str | None
    position: int | None
    line: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment in a thread."""

    id: int
    repo_id: int
    number: int
    author_id: int
    body: str
    created_at: datetime
    updated_at: datetime
    app_id: int | None = None
    editor_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestReview:
    """A review of a pull request as a whole; each comment on a line belongs to one.

    Attributes:
        state: of a `PENDING` one and its comments only its author knows.
        body: empty for the review that GitHub makes around a single comment.
        commit_sha: the head that was looked at.
        submitted_at: of a pending one, when it was begun.
    """

    id: int
    repo_id: int
    number: int
    author_id: int
    state: ReviewState
    body: str
    commit_sha: str
    submitted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewComment:
    """A comment on a line of a pull request's difference, or on the lines from `start_line` to `line`.

    Attributes:
        line: None for a comment on the whole file.
        position: the row of the file's difference, counted from its first hunk's header.
        in_reply_to: the comment that began the conversation.
    """

    id: int
    review_id: int
    repo_id: int
    number: int
    author_id: int
    body: str
    path: str
    commit_sha: str
    line: int | None
    side: Side
    start_line: int | None
    start_side: Side | None
    position: int
    diff_hunk: str
    in_reply_to: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueEvent:
    """An event of a thread's history, such as a label or a change of state.

    Attributes:
        event: GitHub's word, e.g. `labeled`, `assigned`, `closed`, `renamed`, `locked`.
        label: the label that came or went.
        assignee_id: who was assigned or unassigned.
        renamed: the old title and the new one.
        milestone: the title of the milestone that came or went.
    """

    id: int
    repo_id: int
    number: int
    event: str
    actor_id: int
    created_at: datetime
    label: Label | None = None
    assignee_id: int | None = None
    renamed: tuple[str, str] | None = None
    milestone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A change of a branch, by a push or by a request."""

    id: int
    repo_id: int
    ref: str
    before: str
    after: str
    kind: str
    actor_id: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A reaction to an issue or a comment, by its kind and id."""

    id: int
    kind: ReactionKind
    subject_id: int
    user_id: int
    content: str
    created_at: datetime


def reaction_kind(subject: Issue | Comment | ReviewComment) -> ReactionKind:
    """Return the name of a reaction's subject."""
    match subject:
        case Issue():
            return "issue"
        case Comment():
            return "comment"
        case ReviewComment():
            return "review_comment"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStatus:
    """A commit status; newer ones of the same context hide older ones."""

    id: int
    repo_id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator_id: int
    created_at: datetime


ACTIONS_ID = 15368
"""The App GitHub Actions: the check runs of a workflow's jobs are its."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check run of an App on a commit; its `actions` are the buttons, each with label, description and identifier."""

    id: int
    suite_id: int
    repo_id: int
    app_id: int
    name: str
    head_sha: str
    status: str
    conclusion: str | None
    started_at: datetime
    completed_at: datetime | None
    details_url: str | None
    external_id: str
    title: str | None
    summary: str | None
    text: str | None
    annotations: tuple[Mapping[str, object], ...] = ()
    actions: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """One attempt to deliver a webhook. `status_code` is 0 while it is under way or when nobody answered.

    Attributes:
        guid: the event's `X-GitHub-Delivery`; a redelivery keeps it.
        status: `OK`, `pending`, or what went wrong, as GitHub words it.
        duration: seconds until the answer.
        body: the exact bytes that were signed and sent.
    """

    id: int
    guid: str
    app_id: int
    event: str
    action: str | None
    installation_id: int | None
    repository_id: int | None
    delivered_at: datetime
    redelivery: bool
    url: str
    request_headers: Mapping[str, str]
    body: bytes = field(repr=False)
    status: str = "pending"
    status_code: int = 0
    duration: float = 0.0
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response_body: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow file of a repository, e.g. `.github/workflows/ci.yml`."""

    id: int
    repo_id: int
    name: str
    path: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun:
    """A finished run of a workflow; nothing runs here, it is only announced.

    Attributes:
        conclusion: of the newest attempt that has ended.
        attempt: the newest attempt, from 1.
        earlier: how the attempts before it ended.
        is_queued: whether the newest attempt was asked for and has not ended.
        head_repo_id: where the commit came from; a fork's for a fork's pull request.
        actor_id: who caused the run.
        triggering_actor_id: who started this attempt of it.
        inputs: those of a `workflow_dispatch`.
    """

    id: int
    repo_id: int
    workflow_id: int
    suite_id: int
    run_number: int
    event: str
    head_branch: str
    head_sha: str
    head_repo_id: int
    conclusion: str
    actor_id: int
    triggering_actor_id: int
    created_at: datetime
    attempt: int = 1
    earlier: tuple[str, ...] = ()
    is_queued: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """One step of a workflow's job."""

    name: str
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowJob:
    """A finished job of a workflow's run.

    Attributes:
        log: what its steps wrote, as GitHub keeps it; None once it expired.
        attempt: the attempt of the run that it belongs to.
        annotations: as a check run's.
    """

    id: int
    repo_id: int
    run_id: int
    name: str
    conclusion: str
    created_at: datetime
    steps: tuple[WorkflowStep, ...] = ()
    log: str | None = field(default="", repr=False)
    attempt: int = 1
    annotations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Files that a workflow's run kept.

    Attributes:
        run_id: the run; it need not be one that the hub knows.
        head_repo_id: the repository with the branch that the run was for.
        content: a zip file.
    """

    id: int
    repo_id: int
    run_id: int
    head_repo_id: int
    name: str
    content: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A picture that somebody attached; who may see the repository may see it.

    Attributes:
        asset: the UUID in its address.
        media_type: as it was uploaded.
    """

    id: int
    asset: str
    repo_id: int
    author_id: int
    media_type: str
    content: bytes = field(repr=False)


LIMIT = 5000
ANONYMOUS_LIMIT = 60
WINDOW = 3600


class RateCounter:
    """Requests by viewer and resource in the current hour."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str, int], int] = {}

    def count(self, key: str, now: datetime, resource: str) -> None:
        """Count one request. An answer of 304 costs nothing, nor does asking for the limit."""
        place = (key, resource, _window(now))
        self._used[place] = self._used.get(place, 0) + 1

    def remaining(self, key: str, now: datetime, resource: str) -> dict[str, int]:
        """The requests left in this hour: `rate-limit`."""
        window = _window(now)
        used, limit = self._used.get((key, resource, window), 0), LIMIT if key else ANONYMOUS_LIMIT
        return {"limit": limit, "used": used, "remaining": max(limit - used, 0), "reset": (window + 1) * WINDOW}

    def headers(self, key: str, now: datetime, resource: str) -> dict[str, str]:
        """The `X-RateLimit-…` headers."""
        told = {
            f"X-RateLimit-{name.capitalize()}": str(value) for name, value in self.remaining(key, now, resource).items()
        }
        return told | {"X-RateLimit-Resource": resource}


def _window(now: datetime) -> int:
    return int(now.timestamp()) // WINDOW
