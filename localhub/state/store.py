"""Everything the local hub remembers besides git: tables of frozen values in memory."""

from __future__ import annotations

import base64
import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import jwt

from localhub.state.model import (
    Activity,
    App,
    Artifact,
    CheckRun,
    Comment,
    CommitComment,
    CommitStatus,
    Discussion,
    DiscussionCategory,
    DiscussionComment,
    Installation,
    InstallationToken,
    Issue,
    IssueEvent,
    IssueField,
    IssueType,
    Label,
    Milestone,
    PullRequestReview,
    RateCounter,
    Reaction,
    Release,
    Repo,
    ReviewComment,
    Role,
    Ruleset,
    SignInCode,
    Upload,
    User,
    UserToken,
    WebhookDelivery,
    Workflow,
    WorkflowJob,
    WorkflowRun,
    reaction_kind,
)


class HasId(Protocol):
    """Anything with a number of its own."""

    @property
    def id(self) -> int:
        """Unique within its table."""


V = TypeVar("V", bound=HasId)


class Table(Generic[V]):
    """Values by id, in the order in which they were first put."""

    def __init__(self) -> None:
        self._rows: dict[int, V] = {}

    def put(self, value: V) -> V:
        """Add the value, or replace the one with its id; returns it."""
        self._rows[value.id] = value
        return value

    def get(self, key: int) -> V | None:
        """The value with this id, or None."""
        return self._rows.get(key)

    def __getitem__(self, key: int) -> V:
        return self._rows[key]

    def __iter__(self) -> Iterator[V]:
        return iter(tuple(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def remove(self, key: int) -> None:
        """Forget the value with this id."""
        del self._rows[key]


@dataclass(slots=True)
class Store:
    """The tables, and the few facts that are not values with an id.

    Attributes:
        roles: what a collaborator was given, by repository id and user id.
        labels: by repository id and lower-case name.
        minimized: why a comment is hidden, by its global id.
        resolved: who resolved a conversation on lines, by its first comment's id.
        heads: branches as last announced to the world, by repository id; git itself is the truth.
        signed: commits that the hub made and vouches for.
        signing_key: signs the addresses of attachments.
        conversions: the codes for Apps that were made of a manifest, and their ids; each works once.
        former_names: repository ids by lower-case `owner/name` under which they were known before.
    """

    users: Table[User] = field(default_factory=Table)
    apps: Table[App] = field(default_factory=Table)
    installations: Table[Installation] = field(default_factory=Table)
    repos: Table[Repo] = field(default_factory=Table)
    rulesets: Table[Ruleset] = field(default_factory=Table)
    issues: Table[Issue] = field(default_factory=Table)
    milestones: Table[Milestone] = field(default_factory=Table)
    issue_types: Table[IssueType] = field(default_factory=Table)
    issue_fields: Table[IssueField] = field(default_factory=Table)
    discussion_categories: Table[DiscussionCategory] = field(default_factory=Table)
    discussions: Table[Discussion] = field(default_factory=Table)
    discussion_comments: Table[DiscussionComment] = field(default_factory=Table)
    comments: Table[Comment] = field(default_factory=Table)
    commit_comments: Table[CommitComment] = field(default_factory=Table)
    history: Table[IssueEvent] = field(default_factory=Table)
    activities: Table[Activity] = field(default_factory=Table)
    reviews: Table[PullRequestReview] = field(default_factory=Table)
    review_comments: Table[ReviewComment] = field(default_factory=Table)
    reactions: Table[Reaction] = field(default_factory=Table)
    statuses: Table[CommitStatus] = field(default_factory=Table)
    check_runs: Table[CheckRun] = field(default_factory=Table)
    workflows: Table[Workflow] = field(default_factory=Table)
    workflow_runs: Table[WorkflowRun] = field(default_factory=Table)
    workflow_jobs: Table[WorkflowJob] = field(default_factory=Table)
    artifacts: Table[Artifact] = field(default_factory=Table)
    releases: Table[Release] = field(default_factory=Table)
    deliveries: Table[WebhookDelivery] = field(default_factory=Table)
    uploads: Table[Upload] = field(default_factory=Table)
    tokens: dict[str, InstallationToken] = field(default_factory=dict)
    roles: dict[tuple[int, int], Role] = field(default_factory=dict)
    labels: dict[tuple[int, str], Label] = field(default_factory=dict)
    minimized: dict[str, str] = field(default_factory=dict)
    resolved: dict[int, int] = field(default_factory=dict)
    heads: dict[int, dict[str, str]] = field(default_factory=dict)
    signed: set[str] = field(default_factory=set)
    former_names: dict[str, int] = field(default_factory=dict)
    conversions: dict[str, int] = field(default_factory=dict, repr=False)
    callbacks: dict[int, str] = field(default_factory=dict)
    client_secrets: dict[int, str] = field(default_factory=dict, repr=False)
    sign_in_codes: dict[str, SignInCode] = field(default_factory=dict, repr=False)
    user_tokens: dict[str, UserToken] = field(default_factory=dict, repr=False)
    signing_key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    first_id: InitVar[int] = 1001
    _ids: Iterator[int] = field(init=False)

    def __post_init__(self, first_id: int) -> None:
        self._ids = itertools.count(first_id)

    def new_id(self) -> int:
        """A number never given before; all tables share one row, so mixed-up ids are noticed."""
        return next(self._ids)

    def user(self, login: str) -> User | None:
        """The account with this login, in any case."""
        wanted = login.lower()
        return next((user for user in self.users if user.login.lower() == wanted), None)

    def repo(self, full_name: str) -> Repo | None:
        """The repository `owner/name`, in any case."""
        wanted = full_name.lower()
        return next((repo for repo in self.repos if repo.full_name.lower() == wanted), None)

    def moved_repo(self, full_name: str) -> Repo | None:
        """The repository that had this name before, unless another one has it now."""
        number = self.former_names.get(full_name.lower())
        return None if number is None or self.repo(full_name) is not None else self.repos.get(number)

    def issue(self, repo: Repo, number: int) -> Issue | None:
        """The issue or pull request with this number."""
        return next((issue for issue in self.issues_of(repo) if issue.number == number), None)

    def issues_of(self, repo: Repo) -> list[Issue]:
        """All issues and pull requests, oldest first."""
        return [issue for issue in self.issues if issue.repo_id == repo.id]

    def thread_of(self, value: Comment | ReviewComment | PullRequestReview) -> Issue:
        """The issue or pull request that a comment or review belongs to.

        Raises:
            LookupError: it is not there.
        """
        repo = self.repos[value.repo_id]
        issue = self.issue(repo, value.number)
        if issue is None:
            raise LookupError(
                f"{type(value).__name__} {value.id} belongs to #{value.number} of {repo.full_name}, which is not there"
            )
        return issue

    def milestones_of(self, repo: Repo) -> list[Milestone]:
        """A repository's milestones, oldest first."""
        return [milestone for milestone in self.milestones if milestone.repo_id == repo.id]

    def types_of(self, repo: Repo) -> list[IssueType]:
        """The types of a repository's issues, which are its organisation's."""
        return [each for each in self.issue_types if each.owner.lower() == repo.owner.lower()]

    def fields_of(self, owner: str) -> list[IssueField]:
        """The fields of an organisation's issues."""
        return [each for each in self.issue_fields if each.owner.lower() == owner.lower()]

    def sub_issues_of(self, issue: Issue) -> list[Issue]:
        """An issue's sub-issues, oldest first."""
        return [each for each in self.issues if each.parent_id == issue.id]

    def categories_of(self, repo: Repo) -> list[DiscussionCategory]:
        """The categories of a repository's discussions; none where discussions are turned off."""
        return [each for each in self.discussion_categories if each.repo_id == repo.id]

    def discussions_of(self, repo: Repo) -> list[Discussion]:
        """A repository's discussions, oldest first."""
        return [each for each in self.discussions if each.repo_id == repo.id]

    def discussion_comments_of(self, discussion: Discussion) -> list[DiscussionComment]:
        """The comments on a discussion with their answers, oldest first."""
        place = (discussion.repo_id, discussion.number)
        return [each for each in self.discussion_comments if (each.repo_id, each.number) == place]

    def comments_of(self, issue: Issue) -> list[Comment]:
        """A thread's comments, oldest first."""
        return [c for c in self.comments if c.repo_id == issue.repo_id and c.number == issue.number]

    def reviews_of(self, issue: Issue) -> list[PullRequestReview]:
        """A pull request's reviews, oldest first, without the pending ones."""
        return [r for r in self._reviews_of(issue) if r.state != "PENDING"]

    def pending_review_of(self, issue: Issue, author: User) -> PullRequestReview | None:
        """The review that somebody has begun and not submitted."""
        own = (r for r in self._reviews_of(issue) if r.author_id == author.id)
        return next((r for r in own if r.state == "PENDING"), None)

    def _reviews_of(self, issue: Issue) -> Iterator[PullRequestReview]:
        return (r for r in self.reviews if r.repo_id == issue.repo_id and r.number == issue.number)

    def review_comments_of(self, issue: Issue) -> list[ReviewComment]:
        """A pull request's comments on lines, oldest first, without those of pending reviews."""
        shown = {review.id for review in self.reviews_of(issue)}
        return [c for c in self.review_comments if c.review_id in shown]

    def is_pending(self, comment: ReviewComment) -> bool:
        """Whether a comment belongs to a review that is not submitted, of which only its author knows."""
        return self.reviews[comment.review_id].state == "PENDING"

    def reactions_to(self, subject: Issue | Comment | ReviewComment) -> list[Reaction]:
        """Reactions to an issue or comment, oldest first."""
        kind = reaction_kind(subject)
        return [r for r in self.reactions if (r.kind, r.subject_id) == (kind, subject.id)]

    def history_of(self, issue: Issue) -> list[IssueEvent]:
        """The events of a thread, oldest first."""
        return [e for e in self.history if e.repo_id == issue.repo_id and e.number == issue.number]

    def client_secret(self, app: App) -> str:
        """The secret by which an App's site is known, made when it is asked for first."""
        return self.client_secrets.setdefault(app.id, secrets.token_hex(20))

    def app_of(self, user: User) -> App | None:
        """The App whose bot account this is."""
        return next((app for app in self.apps if app.bot.id == user.id), None)

    def installation_for(self, app: App, repo: Repo) -> Installation | None:
        """The App's installation that covers the repository."""
        return next((i for i in self.installations if i.app_id == app.id and repo.id in i.repo_ids), None)


Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Site:
    """The hub's inner state. Hold `lock` to read or change it.

    Attributes:
        url: the root of every address, without a slash at its end; known once the socket listens.
        directory: where the bare repositories lie.
        now: the clock.
        send: puts a recorded delivery on its way; returns at once.
        merge_checks: base and head of each pull request whose mergeability was asked for, by the pull request's id.
    """

    directory: Path
    now: Callable[[], datetime]
    send: Callable[[WebhookDelivery], None]
    url: str = ""
    store: Store = field(default_factory=Store)
    lock: threading.RLock = field(default_factory=threading.RLock)
    rates: RateCounter = field(default_factory=RateCounter)
    merge_checks: dict[int, tuple[str, str]] = field(default_factory=dict)
    seen_payload: Callable[[str, Mapping[str, Any]], None] | None = None

    @property
    def api_url(self) -> str:
        """The root of REST, in the shape of GitHub Enterprise."""
        return f"{self.url}/api/v3"

    def api(self, *parts: str | int) -> str:
        """An address in the API."""
        return "/".join([self.api_url, *(quote(str(part)) for part in parts)])

    def repo_api(self, repo: Repo, *parts: str | int) -> str:
        """A repository's address in the API, or one below it."""
        return self.api("repos", repo.owner, repo.name, *parts)

    def html(self, *parts: str | int) -> str:
        """An address of a page."""
        return "/".join([self.url, *(quote(str(part)) for part in parts)])

    def repo_html(self, repo: Repo, *parts: str | int) -> str:
        """A repository's page, or one below it."""
        return self.html(repo.owner, repo.name, *parts)


def node_id(kind: str, number: int | str) -> str:
    """The opaque global id that GraphQL uses."""
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def iso(moment: datetime) -> str:
    """A time as GitHub writes it: UTC, whole seconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(moment: datetime | None) -> str | None:
    """A time as GitHub writes it, or None for a time that has not come yet."""
    return None if moment is None else iso(moment)


SIGNED_URL_LIFE = timedelta(minutes=5)


def signed_url(site: Site, path: str) -> str:
    """The address of a path with a signature that is good for five minutes."""
    claims = {"path": path, "exp": int((site.now() + SIGNED_URL_LIFE).timestamp())}
    return f"{site.url}{path}?jwt={jwt.encode(claims, site.store.signing_key, algorithm='HS256')}"


def is_signed(site: Site, path: str, signature: str) -> bool:
    """Whether a signature is of this path, and still good."""
    try:
        claims = jwt.decode(signature, site.store.signing_key, algorithms=["HS256"], options={"verify_exp": False})
    except jwt.InvalidTokenError:
        return False
    return bool(claims["path"] == path and claims["exp"] > site.now().timestamp())


def storage_url(site: Site, path: str) -> str:
    """The signed address of a file, on the host that stands for GitHub's storage."""
    return on_storage_host(signed_url(site, path))


def on_storage_host(address: str) -> str:
    """The address under this machine's other name, which a certificate of the hub's does not cover."""
    return address.replace("http://127.0.0.1:", "http://localhost:", 1)
