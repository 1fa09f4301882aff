"""The state of a GitHub in memory, with the actions of people; `FakeGitHub` is its client.

Methods have the names and arguments of `LocalHub`'s, so that a test can move from one to the other.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import itertools
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from bot.domain.access import Role
from bot.domain.difference import Side
from bot.github.connection import AppSession
from bot.github.types import GitHubError
from localhub import APP_PERMISSIONS, EndedJob, NewComment, UnplacedError
from localhub.api.auth import HubError, invalid
from localhub.api.rules import NewCommit, refusal_of_push
from localhub.git import diff as git_diff
from localhub.state.model import ACTIONS_ID, Ruleset

FIRST_COMMIT_TIME = 1_790_000_000
_FUNCTION_CHARS = 80


def object_id(kind: str, content: bytes) -> str:
    """Return the id that git gives an object."""
    return hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(content), content), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class FakeFile:
    """A file of a commit; a link's content is its target, a submodule's its commit id."""

    mode: str
    content: bytes = field(repr=False)

    @cached_property
    def sha(self) -> str:
        return self.content.decode() if self.mode == "160000" else object_id("blob", self.content)


def tree_id(files: Mapping[str, FakeFile]) -> str:
    """Return git's id of the tree with these files."""
    entries: dict[str, tuple[str, str]] = {}
    folders: dict[str, dict[str, FakeFile]] = {}
    for path, file in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(name, {})[rest] = file
        else:
            entries[name] = file.mode, file.sha
    entries |= {name: ("40000", tree_id(inside)) for name, inside in folders.items()}
    rows = sorted((f"{name}/" if mode == "40000" else name, mode, sha) for name, (mode, sha) in entries.items())
    lines = (f"{mode} {name.rstrip('/')}".encode() + b"\0" + bytes.fromhex(sha) for name, mode, sha in rows)
    return object_id("tree", b"".join(lines))


@dataclass(frozen=True)
class FakeCommit:
    """A commit with all of its files; `author` is a login."""

    sha: str
    tree: Mapping[str, FakeFile] = field(repr=False)
    parents: tuple[str, ...]
    message: str
    author: str

    @cached_property
    def tree_sha(self) -> str:
        return tree_id(self.tree)


@dataclass(slots=True)
class FakeUser:
    """An account; `role` is the one in repositories that give it none."""

    id: int
    login: str
    type: Literal["User", "Organization", "Bot"] = "User"


@dataclass(slots=True)
class FakeApp:
    id: int
    slug: str
    bot: FakeUser
    permissions: dict[str, str]


@dataclass(slots=True)
class FakeComment:
    id: int
    author_id: int
    body: str
    created_at: datetime
    updated_at: datetime
    reactions: list[tuple[int, str]] = field(default_factory=list)
    editor_id: int | None = None


@dataclass(slots=True)
class FakeLineComment(FakeComment):
    """A comment on a line; `root` is the id of its thread's first comment."""

    root: int = 0
    path: str = ""
    line: int | None = None
    start_line: int | None = None
    side: Side = "RIGHT"
    hunk: str = ""
    commit_sha: str = ""


@dataclass(slots=True)
class FakeField:
    """A field of an organization's issues; `options` are a selection's values with their ids."""

    id: int
    name: str
    data_type: str
    options: list[tuple[int, str]]


@dataclass(slots=True)
class FakeDiscussion:
    """A discussion."""

    id: int
    number: int
    author_id: int
    category: str
    title: str
    body: str
    locked: bool = False
    comments: list[FakeComment] = field(default_factory=list)


@dataclass(slots=True)
class FakeReview:
    id: int
    author_id: int
    body: str
    state: str
    commit_sha: str
    submitted_at: datetime


@dataclass(slots=True)
class FakePull:
    """The part of a pull request beyond an issue; `head_repo` is None for a deleted fork."""

    head_repo: FakeRepo | None
    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str
    draft: bool = False
    merged: bool = False
    merge_check: tuple[str, str] | None = None
    reviewers: list[int] = field(default_factory=list)
    reviews: list[FakeReview] = field(default_factory=list)
    line_comments: list[FakeLineComment] = field(default_factory=list)


@dataclass(slots=True)
class FakeThread:
    """An issue, or a pull request when `pull` is set.

    Attributes:
        settings: names of labels with the account that set each, and when.
        fields: values of the organization's fields by name.
        parent: number of the issue that it is a sub-issue of; 0 without one.
        duplicate_of: id of the issue that it duplicates; 0 without one.
    """

    id: int
    number: int
    author_id: int
    title: str
    body: str | None
    state: Literal["open", "closed"] = "open"
    locked: bool = False
    labels: list[str] = field(default_factory=list)
    comments: list[FakeComment] = field(default_factory=list)
    reactions: list[tuple[int, str]] = field(default_factory=list)
    pull: FakePull | None = None
    settings: list[tuple[str, int, datetime]] = field(default_factory=list)
    renamed_at: datetime | None = None
    edited_at: datetime | None = None
    state_reason: str | None = None
    assignees: list[int] = field(default_factory=list)
    milestone: str = ""
    type: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    parent: int = 0
    duplicate_of: int = 0


@dataclass(slots=True)
class FakeCheck:
    """A check run; `annotations` and `actions` are as in the request that set them."""

    id: int
    app_id: int
    name: str
    head_sha: str
    status: str = "queued"
    conclusion: str | None = None
    external_id: str = ""
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Mapping[str, Any]] = field(default_factory=list)
    actions: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class FakeStatus:
    id: int
    sha: str
    state: str
    context: str
    description: str | None = None
    target_url: str | None = None


@dataclass(slots=True)
class FakeJob:
    """A job of a workflow run; `log` is None when it has expired."""

    id: int
    attempt: int
    name: str
    conclusion: str
    steps: Sequence[tuple[str, str]] = ()
    log: str | None = ""
    annotations: Sequence[tuple[str, int, str]] = ()


@dataclass(slots=True)
class FakeRun:
    """A workflow run; `earlier` has the conclusions of the attempts before this one, `actor` a login."""

    id: int
    workflow_id: int
    name: str
    path: str
    event: str
    head_sha: str
    head_branch: str
    head_repo_id: int
    number: int
    conclusion: str
    created_at: datetime
    attempt: int = 1
    earlier: tuple[str, ...] = ()
    is_queued: bool = False
    jobs: list[FakeJob] = field(default_factory=list)
    actor: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FakeArtifact:
    id: int
    name: str
    content: bytes
    run_id: int
    head_repo_id: int
    expired: bool = False


@dataclass(slots=True)
class FakeRepo:
    """A repository.

    Attributes:
        installed: whether the App is installed on it.
        fork_of: the id of the repository that was forked.
        pull_heads: the commits of `refs/pull/N/head`, by number.
        roles: by account id.
        labels: by their names in lower case.
        categories: of discussions, with their ids.
    """

    id: int
    full_name: str
    private: bool = False
    archived: bool = False
    default_branch: str = "main"
    installed: bool = True
    fork_of: int | None = None
    commits: dict[str, FakeCommit] = field(default_factory=dict, repr=False)
    branches: dict[str, str] = field(default_factory=dict)
    pull_heads: dict[int, str] = field(default_factory=dict)
    roles: dict[int, Role] = field(default_factory=dict)
    threads: dict[int, FakeThread] = field(default_factory=dict, repr=False)
    labels: dict[str, str] = field(default_factory=dict, repr=False)
    milestones: list[str] = field(default_factory=list, repr=False)
    categories: dict[str, int] = field(default_factory=dict, repr=False)
    discussed: dict[int, FakeDiscussion] = field(default_factory=dict, repr=False)
    checks: list[FakeCheck] = field(default_factory=list, repr=False)
    statuses: list[FakeStatus] = field(default_factory=list, repr=False)
    runs: list[FakeRun] = field(default_factory=list, repr=False)
    artifacts: list[FakeArtifact] = field(default_factory=list, repr=False)
    pushes: list[tuple[str, str, datetime]] = field(default_factory=list, repr=False)
    rulesets: list[Ruleset] = field(default_factory=list, repr=False)

    def rulesets_for(self, branch: str, *, without: str = "") -> list[Ruleset]:
        """Return the rulesets that apply to a branch, without those that a login bypasses."""
        return [each for each in self.rulesets if fnmatchcase(branch, each.branches) and without not in each.bypass]

    @property
    def owner(self) -> str:
        return self.full_name.partition("/")[0]

    def head(self, branch: str | None = None) -> FakeCommit | None:
        """Return the commit of a branch, by default of the default branch."""
        sha = self.branches.get(branch or self.default_branch)
        return None if sha is None else self.commits[sha]

    def resolve(self, revision: str) -> FakeCommit | None:
        """Return the commit of a branch or commit id."""
        return self.commits.get(self.branches.get(revision.removeprefix("refs/heads/"), revision))

    def history(self, sha: str) -> Iterator[str]:
        """Yield a commit and its ancestors, nearest first."""
        seen, queue = {sha}, deque([sha])
        while queue:
            yield (at := queue.popleft())
            fresh = [parent for parent in self.commits[at].parents if parent not in seen]
            seen.update(fresh)
            queue.extend(fresh)

    def is_ancestor(self, sha: str, of: str) -> bool:
        return sha in self.history(of)


@dataclass(slots=True)
class _Fault:
    error: GitHubError
    times: int
    after: bool


@dataclass(slots=True)
class FakeSite:
    """A GitHub in memory. A test may edit any of it; `move_branch` also updates the pull requests.

    Attributes:
        app: the bot's App; its permissions are those of the installation.
        workflow_app: GitHub Actions, which has the token of a workflow.
        calls: the calls of all clients in order, e.g. `comments.create`; with those that a call makes itself.
        requests: the requests of all clients in order, by their routes, e.g. `POST issues/{}/comments`.
        on_call: called with each of them before it begins; may edit the site.
        types, fields: of the issues of an organization, by its login.
        session: tokens, limits and the pace of writes, shared by all clients.
    """

    url: str = "https://github.com"
    app: FakeApp = field(init=False)
    workflow_app: FakeApp = field(init=False)
    users: dict[int, FakeUser] = field(default_factory=dict)
    apps: dict[int, FakeApp] = field(default_factory=dict)
    repos: dict[int, FakeRepo] = field(default_factory=dict)
    former_names: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    on_call: Callable[[str], None] | None = None
    types: dict[str, list[str]] = field(default_factory=dict)
    fields: dict[str, list[FakeField]] = field(default_factory=dict)
    session: AppSession = field(default_factory=lambda: AppSession(0.0))
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _faults: dict[str, list[_Fault]] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1001), repr=False)
    _commit_times: Iterator[int] = field(default_factory=lambda: itertools.count(FIRST_COMMIT_TIME), repr=False)

    def __post_init__(self) -> None:
        self.app = self.add_app("codepilot")
        self.workflow_app = self.add_app("github-actions")

    def new_id(self) -> int:
        return next(self._ids)

    # Faults

    def fail(self, call: str, error: GitHubError, times: int = 1, *, after: bool = False) -> None:
        """Let the next requests of a call fail, after the client's own retries.

        Args:
            call: a part and its method, e.g. `comments.create`. Only its own requests count: `checks.find` asks
                `accounts.me`, which is a call of its own.
            error: e.g. `outage()`; it gets the call's own action.
            times: the number of requests.
            after: whether each request is performed, and only its answer lost.
        """
        self._faults.setdefault(call, []).append(_Fault(error, times, after))

    def take_fault(self, call: str) -> tuple[GitHubError, bool] | None:
        """Return the error for a request of a call, and whether it comes after the request's effect."""
        queue = self._faults.get(call)
        if not queue:
            return None
        queue[0].times -= 1
        fault = queue[0]
        if fault.times <= 0:
            queue.pop(0)
        return fault.error, fault.after

    # Accounts and repositories

    def add_user(self, login: str, *, kind: Literal["User", "Organization", "Bot"] = "User") -> FakeUser:
        """Create an account, or return the existing one."""
        user = self.find_user(login)
        if user is None:
            user = FakeUser(id=self.new_id(), login=login, type=kind)
            self.users[user.id] = user
        return user

    def find_user(self, login: str) -> FakeUser | None:
        return next((user for user in self.users.values() if user.login.lower() == login.lower()), None)

    def user(self, login: str) -> FakeUser:
        user = self.find_user(login)
        if user is None:
            raise LookupError(f"no account {login}")
        return user

    def add_app(self, slug: str) -> FakeApp:
        bot = self.add_user(f"{slug}[bot]", kind="Bot")
        app = FakeApp(id=self.new_id(), slug=slug, bot=bot, permissions=dict(APP_PERMISSIONS))
        self.apps[app.id] = app
        return app

    def add_repo(
        self,
        full_name: str,
        *,
        owner: str | None = None,
        private: bool = False,
        files: Mapping[str, str | bytes] | None = None,
        fork_of: FakeRepo | None = None,
        installed: bool = True,
    ) -> FakeRepo:
        """Create a repository; without `files` or `fork_of` it is empty."""
        account = self.add_user(full_name.partition("/")[0], kind="Organization")
        repo = FakeRepo(id=self.new_id(), full_name=full_name, private=private, installed=installed)
        self.repos[repo.id] = repo
        if owner is not None:
            self.add_collaborator(repo, owner, "admin")
        if fork_of is not None:
            repo.fork_of, repo.default_branch = fork_of.id, fork_of.default_branch
            repo.commits, repo.branches = dict(fork_of.commits), dict(fork_of.branches)
        if files:
            self.commit(repo, files, message="Initial commit", author=owner or account.login)
        return repo

    def repo(self, full_name: str) -> FakeRepo:
        repo = self.find_repo(full_name)
        if repo is None:
            raise LookupError(f"no repository {full_name}")
        return repo

    def find_repo(self, full_name: str) -> FakeRepo | None:
        """Return the repository with this name, or with this former one."""
        wanted = full_name.lower()
        for repo in self.repos.values():
            if repo.full_name.lower() == wanted:
                return repo
        return self.repos.get(self.former_names.get(wanted, 0))

    def add_collaborator(self, repo: FakeRepo, login: str, role: Role) -> None:
        """Give an account a role; `none` takes it away."""
        user = self.add_user(login)
        repo.roles.pop(user.id, None)
        if role != "none":
            repo.roles[user.id] = role

    def role_of(self, repo: FakeRepo, user: FakeUser) -> Role:
        if user.login.lower() == repo.owner.lower():
            return "admin"
        role = repo.roles.get(user.id)
        return role or ("none" if repo.private else "read")

    def rename(self, repo: FakeRepo, name: str) -> None:
        self.former_names[repo.full_name.lower()] = repo.id
        repo.full_name = f"{repo.owner}/{name}"

    def archive(self, repo: FakeRepo) -> None:
        repo.archived = True

    # Commits and branches

    def commit(
        self,
        repo: FakeRepo,
        files: Mapping[str, str | bytes | FakeFile | None],
        *,
        message: str,
        author: str,
        branch: str | None = None,
    ) -> str:
        """Commit files to a branch and return the commit id.

        Args:
            repo: the repository.
            files: by path; text or bytes keep the file's mode, None deletes.
            message: the commit message.
            author: a login.
            branch: created from the default branch if needed; by default the default branch.
        """
        name = branch or repo.default_branch
        head = repo.head(name) or repo.head()
        commit = self.write_commit(repo, head, files, message=message, author=self.user(author))
        self.move_branch(repo, name, commit.sha)
        return commit.sha

    def write_commit(
        self,
        repo: FakeRepo,
        parent: FakeCommit | None,
        files: Mapping[str, str | bytes | FakeFile | None],
        *,
        message: str,
        author: FakeUser,
    ) -> FakeCommit:
        """Create a commit without moving a branch."""
        tree = dict(parent.tree) if parent else {}
        for path, content in files.items():
            if content is None:
                tree.pop(path, None)
            elif isinstance(content, FakeFile):
                tree[path] = content
            else:
                mode = tree[path].mode if path in tree else "100644"
                tree[path] = FakeFile(mode, content.encode() if isinstance(content, str) else content)
        parents = (parent.sha,) if parent else ()
        person = (
            f"{author.login} <{author.id}+{author.login}@users.noreply.github.com> {next(self._commit_times)} +0000"
        )
        lines = [f"tree {tree_id(tree)}", *(f"parent {sha}" for sha in parents), f"author {person}"]
        content = "\n".join([*lines, f"committer {person}", "", message.rstrip("\n") + "\n"])
        commit = FakeCommit(object_id("commit", content.encode()), tree, parents, message, author.login)
        repo.commits[commit.sha] = commit
        return commit

    def add_rules(
        self,
        repo: FakeRepo,
        *rules: str | Mapping[str, Any],
        branches: str = "*",
        bypass: Sequence[str] = (),
        classic: bool = False,
    ) -> Ruleset:
        """Add rules for branches, as `LocalHub.add_rules` does."""
        made = Ruleset(
            id=self.new_id(),
            repo_id=repo.id,
            source=repo.full_name,
            branches=branches,
            rules=tuple({"type": rule} if isinstance(rule, str) else dict(rule) for rule in rules),
            bypass=frozenset(bypass),
            classic=classic,
        )
        repo.rulesets.append(made)
        return made

    def refusal_of_push(self, repo: FakeRepo, branch: str, commit: FakeCommit) -> str:
        """Return git's output for a push of the App's that a rule forbids; empty for another one."""
        rules = [rule for each in repo.rulesets_for(branch, without=self.app.bot.login) for rule in each.rules]
        return refusal_of_push(rules, branch, [self.new_commit(repo, commit)], is_new=branch not in repo.branches)

    def new_commit(self, repo: FakeRepo, commit: FakeCommit, *, is_signed: bool = False) -> NewCommit:
        before = repo.commits[commit.parents[0]].tree if commit.parents else {}
        changed = {path for path, _ in dict(before).items() ^ dict(commit.tree).items()}
        email = f"{self.app.bot.id}+{self.app.bot.login}@users.noreply.github.com"
        return NewCommit(
            is_signed=is_signed,
            parents=len(commit.parents),
            message=commit.message.strip(),
            email=email,
            paths=tuple(changed),
        )

    def move_branch(self, repo: FakeRepo, branch: str, sha: str | None) -> None:
        """Set or delete (None) a branch, as a push does, and update the pull requests from and to it."""
        if sha is None:
            repo.branches.pop(branch, None)
        else:
            repo.branches[branch] = sha
        repo.pushes.append((f"refs/heads/{branch}", sha or "0" * 40, self.now()))
        for home in self.repos.values():
            for thread in home.threads.values():
                if thread.pull is not None and thread.state == "open":
                    self._update_pull(home, thread, thread.pull, (repo, branch, sha))

    def _update_pull(
        self, home: FakeRepo, thread: FakeThread, pull: FakePull, moved: tuple[FakeRepo, str, str | None]
    ) -> None:
        repo, branch, sha = moved
        if pull.head_repo is repo and pull.head_ref == branch and sha != pull.head_sha:
            if sha is None:
                thread.state = "closed"
                return
            fetch(repo, home, sha)
            pull.head_sha = home.pull_heads[thread.number] = sha
            if home.is_ancestor(sha, pull.base_sha):
                thread.state = "closed"
        elif home is repo and pull.base_ref == branch and sha is not None:
            pull.base_sha = sha
            if home.is_ancestor(pull.head_sha, sha):
                pull.merged, thread.state = True, "closed"

    # Threads

    def issues(self, repo: FakeRepo) -> list[FakeThread]:
        return list(repo.threads.values())

    def issue(self, repo: FakeRepo, number: int) -> FakeThread:
        return repo.threads[number]

    def open_issue(
        self, repo: FakeRepo, *, author: str, title: str, body: str | None = None, labels: Iterable[str] = ()
    ) -> FakeThread:
        number, author_id = max((0, *repo.threads, *repo.discussed)) + 1, self.user(author).id
        thread = repo.threads[number] = FakeThread(self.new_id(), number, author_id, title, body)
        FakeSite.label(self, repo, number, *labels, by=author)
        return thread

    def open_pull(
        self,
        repo: FakeRepo,
        *,
        author: str,
        head: str,
        title: str,
        base: str | None = None,
        body: str | None = None,
        draft: bool = False,
    ) -> FakeThread:
        """Open a pull request; `head` is a branch, or `owner:branch` in a fork.

        Raises:
            HubError: 422, as GitHub refuses it.
        """
        base = base or repo.default_branch
        home, head_ref = self._head_of(repo, head)
        if (sha := home.branches.get(head_ref)) is None:
            raise invalid("PullRequest", "head", "invalid")
        if (base_sha := repo.branches.get(base)) is None:
            raise invalid("PullRequest", "base", "invalid")
        for other in repo.threads.values():
            pull = other.pull
            if (
                pull
                and other.state == "open"
                and pull.head_repo is home
                and (pull.head_ref, pull.base_ref) == (head_ref, base)
            ):
                raise _pull_refusal(f"A pull request already exists for {home.owner}:{head_ref}.")
        fetch(home, repo, sha)
        if repo.is_ancestor(sha, base_sha):
            raise _pull_refusal(f"No commits between {base} and {head_ref}")
        thread = self.open_issue(repo, author=author, title=title, body=body)
        thread.pull = FakePull(home, head_ref, sha, base, base_sha, draft=draft)
        repo.pull_heads[thread.number] = sha
        return thread

    def _head_of(self, repo: FakeRepo, head: str) -> tuple[FakeRepo, str]:
        owner, separator, branch = head.rpartition(":")
        if not separator or owner.lower() == repo.owner.lower():
            return repo, branch
        root = repo.fork_of or repo.id
        for other in self.repos.values():
            if other.owner.lower() == owner.lower() and root in {other.id, other.fork_of}:
                return other, branch
        raise invalid("PullRequest", "head", "invalid")

    def merge(self, repo: FakeRepo, number: int, *, by: str) -> str:
        """Merge a pull request; its files win over those of the base."""
        thread = repo.threads[number]
        pull, base = thread.pull, None
        if pull is None or (base := repo.head(pull.base_ref)) is None:
            raise LookupError(f"#{number} cannot be merged")
        tree = repo.commits[pull.head_sha].tree
        commit = self.write_commit(repo, base, tree, message=f"Merge #{number}", author=self.user(by))
        merged = replace(commit, parents=(base.sha, pull.head_sha))
        repo.commits[merged.sha] = merged
        pull.merged, thread.state = True, "closed"
        self.move_branch(repo, pull.base_ref, merged.sha)
        return merged.sha

    def comment(self, repo: FakeRepo, number: int, *, author: str, body: str) -> FakeComment:
        now = self.now()
        comment = FakeComment(self.new_id(), self.user(author).id, body, now, now)
        repo.threads[number].comments.append(comment)
        return comment

    def edit_comment(self, comment: FakeComment, *, by: str, body: str) -> FakeComment:
        comment.body, comment.updated_at, comment.editor_id = body, self.now(), self.user(by).id
        return comment

    def delete_comment(self, comment: FakeComment, *, by: str) -> None:
        for repo in self.repos.values():
            for thread in repo.threads.values():
                thread.comments = [each for each in thread.comments if each is not comment]
                if thread.pull is not None:
                    thread.pull.line_comments = [each for each in thread.pull.line_comments if each is not comment]

    def comments(self, repo: FakeRepo, number: int) -> list[FakeComment]:
        return repo.threads[number].comments

    def reviews(self, repo: FakeRepo, number: int) -> list[FakeReview]:
        return _pull_of(repo, number).reviews

    def review_comments(self, repo: FakeRepo, number: int) -> list[FakeLineComment]:
        return _pull_of(repo, number).line_comments

    def check_runs(self, repo: FakeRepo) -> list[FakeCheck]:
        return repo.checks

    def label(self, repo: FakeRepo, number: int, *labels: str, by: str) -> None:
        thread, now, user_id = repo.threads[number], self.now(), self.user(by).id
        thread.settings += [(label, user_id, now) for label in labels if label not in thread.labels]
        thread.labels = [repo.labels.setdefault(label.lower(), label) for label in labels]

    # Plans and discussions

    def create_label(self, repo: FakeRepo, name: str) -> None:
        repo.labels.setdefault(name.lower(), name)

    def add_milestone(self, repo: FakeRepo, title: str, *, author: str) -> None:
        self.user(author)
        repo.milestones.append(title)

    def add_issue_type(self, owner: str, name: str) -> None:
        self.types.setdefault(owner, []).append(name)

    def add_issue_field(self, owner: str, name: str, data_type: str = "text", *, options: Sequence[str] = ()) -> None:
        values = [(self.new_id(), option) for option in options]
        self.fields.setdefault(owner, []).append(FakeField(self.new_id(), name, data_type, values))

    def sub_issues(self, repo: FakeRepo, number: int) -> list[FakeThread]:
        return [thread for thread in repo.threads.values() if thread.parent == number]

    def add_category(self, repo: FakeRepo, name: str) -> None:
        repo.categories.setdefault(name, self.new_id())

    def open_discussion(
        self, repo: FakeRepo, category: str, *, author: str, title: str, body: str = "Hello"
    ) -> FakeDiscussion:
        self.add_category(repo, category)
        number, author_id = max((0, *repo.threads, *repo.discussed)) + 1, self.user(author).id
        discussion = FakeDiscussion(self.new_id(), number, author_id, category, title, body)
        repo.discussed[number] = discussion
        return discussion

    def comment_discussion(self, repo: FakeRepo, number: int, *, author: str, body: str) -> FakeComment:
        now, discussion = self.now(), repo.discussed[number]
        if discussion.locked:
            raise HubError(403, "Discussion is locked.")
        discussion.comments.append(FakeComment(self.new_id(), self.user(author).id, body, now, now))
        return discussion.comments[-1]

    def lock_discussion(self, repo: FakeRepo, number: int, *, by: str) -> None:
        self.user(by)
        repo.discussed[number].locked = True

    def discussions(self, repo: FakeRepo) -> list[FakeDiscussion]:
        return list(repo.discussed.values())

    def discussion_comments(self, repo: FakeRepo, number: int) -> list[FakeComment]:
        return repo.discussed[number].comments

    def edit_thread(
        self, repo: FakeRepo, number: int, *, by: str, title: str | None = None, body: str | None = None
    ) -> None:
        thread, now = repo.threads[number], self.now()
        thread.renamed_at = thread.renamed_at if title in {None, thread.title} else now
        thread.edited_at = thread.edited_at if body in {None, thread.body} else now
        thread.title = thread.title if title is None else title
        thread.body = thread.body if body is None else body

    def close(self, repo: FakeRepo, number: int, *, by: str) -> None:
        repo.threads[number].state = "closed"

    def lock(self, repo: FakeRepo, number: int) -> None:
        repo.threads[number].locked = True

    def unlock(self, repo: FakeRepo, number: int) -> None:
        repo.threads[number].locked = False

    def review(
        self,
        repo: FakeRepo,
        number: int,
        *,
        author: str,
        body: str = "",
        state: str = "COMMENTED",
        comments: Sequence[NewComment] = (),
    ) -> FakeReview:
        """Review a pull request.

        Raises:
            UnplacedError: a comment is about a line that the difference does not show.
        """
        pull = _pull_of(repo, number)
        now, author_id = self.now(), self.user(author).id
        placed = [self._place(repo, pull, draft, author_id, now) for draft in comments]
        review = FakeReview(self.new_id(), author_id, body, state, pull.head_sha, now)
        pull.reviews.append(review)
        pull.line_comments += placed
        return review

    def review_comment(
        self,
        repo: FakeRepo,
        number: int,
        *,
        author: str,
        body: str,
        path: str = "",
        line: int = 0,
        side: Side = "RIGHT",
        start_line: int | None = None,
        in_reply_to: int | None = None,
    ) -> FakeLineComment:
        """Comment on a line of a pull request's difference, or reply to such a comment.

        Raises:
            UnplacedError: the difference does not show the line.
        """
        pull = _pull_of(repo, number)
        if in_reply_to is None:
            draft = NewComment(path=path, body=body, line=line, side=side, start_line=start_line)
            self.review(repo, number, author=author, comments=[draft])
        else:
            parent = next(comment for comment in pull.line_comments if comment.id == in_reply_to)
            self.review(repo, number, author=author)
            pull.line_comments.append(
                replace(
                    parent,
                    id=self.new_id(),
                    author_id=self.user(author).id,
                    body=body,
                    created_at=self.now(),
                    updated_at=self.now(),
                    reactions=[],
                )
            )
        return pull.line_comments[-1]

    def _place(
        self, repo: FakeRepo, pull: FakePull, draft: NewComment, author_id: int, now: datetime
    ) -> FakeLineComment:
        patch = patch_of(repo, pull, draft.path)
        rows = git_diff.rows(patch)
        assert draft.line is not None, "the fake places comments on lines only"
        if (at := git_diff.position(rows, draft.line, draft.side)) is None:
            raise UnplacedError("line")
        if draft.start_line is not None:
            start = git_diff.position(rows, draft.start_line, draft.start_side or draft.side)
            if start is None or start >= at or git_diff.hunk_start(rows, start) != git_diff.hunk_start(rows, at):
                raise UnplacedError("start_line")
        comment_id = self.new_id()
        return FakeLineComment(
            comment_id,
            author_id,
            draft.body,
            now,
            now,
            root=comment_id,
            path=draft.path,
            line=draft.line,
            start_line=draft.start_line,
            side=draft.side,
            hunk=git_diff.excerpt(patch, at),
            commit_sha=pull.head_sha,
        )

    # Checks and workflow runs

    def check(
        self,
        repo: FakeRepo,
        app: FakeApp,
        *,
        head_sha: str,
        name: str,
        conclusion: str,
        summary: str = "",
        annotations: Iterable[Mapping[str, Any]] = (),
    ) -> FakeCheck:
        """Report a completed check run of another App."""
        check = FakeCheck(self.new_id(), app.id, name, head_sha, "completed", conclusion, title=name, summary=summary)
        check.annotations += annotations
        repo.checks.append(check)
        return check

    def add_status(
        self, repo: FakeRepo, sha: str, state: str, context: str = "default", description: str | None = None
    ) -> FakeStatus:
        status = FakeStatus(self.new_id(), sha, state, context, description)
        repo.statuses.append(status)
        return status

    def workflow_run(
        self,
        repo: FakeRepo,
        *,
        head_sha: str,
        head_branch: str,
        conclusion: str,
        actor: str = "",
        head_repository: FakeRepo | None = None,
        workflow: str = "CI",
        path: str = ".github/workflows/ci.yml",
        event: str = "push",
        jobs: Sequence[EndedJob] = (),
    ) -> FakeRun:
        """Report a completed workflow run."""
        others = [run for run in repo.runs if run.path == path]
        run = FakeRun(
            id=self.new_id(),
            workflow_id=others[0].workflow_id if others else self.new_id(),
            name=workflow,
            path=path,
            event=event,
            head_sha=head_sha,
            head_branch=head_branch,
            head_repo_id=(head_repository or repo).id,
            number=len(others) + 1,
            conclusion=conclusion,
            created_at=self.now(),
            actor=actor,
        )
        repo.runs.append(run)
        self._add_jobs(run, jobs)
        return run

    def run_again(self, run: FakeRun, *, by: str) -> FakeRun:
        """Queue another attempt."""
        run.earlier, run.attempt, run.is_queued = (*run.earlier, run.conclusion), run.attempt + 1, True
        return run

    def start_run(self, repo: FakeRepo, *, workflow: str = "Codepilot") -> FakeRun:
        """Start a run on the default branch."""
        head, branch = repo.branches[repo.default_branch], repo.default_branch
        run = FakeSite.workflow_run(self, repo, head_sha=head, head_branch=branch, conclusion="", workflow=workflow)
        run.is_queued = True
        return run

    def cancel_run(self, run: FakeRun) -> None:
        """End a run by a call of the API."""
        FakeSite.end_attempt(self, run, conclusion="cancelled")

    def end_attempt(self, run: FakeRun, *, conclusion: str, jobs: Sequence[EndedJob] = ()) -> FakeRun:
        if not run.is_queued:
            raise ValueError(f"no further attempt of run {run.id} was asked for; call run_again first")
        run.conclusion, run.is_queued = conclusion, False
        self._add_jobs(run, jobs)
        return run

    def _add_jobs(self, run: FakeRun, jobs: Iterable[EndedJob]) -> None:
        repo = next(repo for repo in self.repos.values() if run in repo.runs)
        for job in jobs:
            number, steps = self.new_id(), job.steps
            run.jobs.append(FakeJob(number, run.attempt, job.name, job.conclusion, steps, job.log, job.annotations))
            # A job is a check run of GitHub Actions, under the same number.
            repo.checks.append(
                FakeCheck(
                    number,
                    ACTIONS_ID,
                    job.name,
                    run.head_sha,
                    status="completed",
                    conclusion=job.conclusion,
                    annotations=[
                        {
                            "path": path,
                            "start_line": line,
                            "end_line": line,
                            "message": text,
                            "annotation_level": "failure",
                        }
                        for path, line, text in job.annotations
                    ],
                )
            )

    def keep_artifact(
        self,
        repo: FakeRepo,
        name: str,
        files: Mapping[str, bytes],
        *,
        run_id: int,
        days: int = 90,
        fork: FakeRepo | None = None,
    ) -> FakeArtifact:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in files.items():
                archive.writestr(path, content)
        artifact = FakeArtifact(self.new_id(), name, packed.getvalue(), run_id, (fork or repo).id, expired=days <= 0)
        repo.artifacts.append(artifact)
        return artifact


def fetch(source: FakeRepo, target: FakeRepo, sha: str) -> None:
    """Copy a commit and its ancestors between repositories."""
    if source is not target:
        target.commits |= {name: source.commits[name] for name in source.history(sha)}


def _pull_of(repo: FakeRepo, number: int) -> FakePull:
    pull = repo.threads[number].pull
    if pull is None:
        raise HubError(404, "Not Found")
    return pull


def _pull_refusal(message: str) -> HubError:
    error = {"resource": "PullRequest", "code": "custom", "message": message}
    return HubError(422, "Validation Failed", errors=(error,))


def _trees_of(repo: FakeRepo, pull: FakePull) -> tuple[Mapping[str, FakeFile], Mapping[str, FakeFile]]:
    ancestors = set(repo.history(pull.head_sha))
    base = next((sha for sha in repo.history(pull.base_sha) if sha in ancestors), None)
    return repo.commits[base].tree if base else {}, repo.commits[pull.head_sha].tree


def changed_files(repo: FakeRepo, pull: FakePull) -> list[str]:
    """Return the paths that a pull request changes; a renamed file has two."""
    old, new = _trees_of(repo, pull)
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def patch_of(repo: FakeRepo, pull: FakePull, path: str) -> str:
    """Return the hunks of a file in a pull request's difference, as git writes them.

    Raises:
        UnplacedError: the pull request does not change the file.
    """
    old, new = (tree.get(path) for tree in _trees_of(repo, pull))
    if old == new:
        raise UnplacedError("path")
    before, after = _lines(old), _lines(new)
    rows: list[str] = []
    for row in [*difflib.unified_diff(before, after, n=3)][2:]:
        if row.startswith("@@"):
            start = int(row.split()[1].split(",")[0].lstrip("-"))
            # Git names the last line above the hunk that begins like a function.
            heading = (
                line
                for line in reversed(before[: max(0, start - 1)])
                if line[:1].isalpha() or line.startswith(("_", "$"))
            )
            rows.append(f"{row.rstrip()} {next(heading, '')[:_FUNCTION_CHARS].rstrip()}".rstrip())
        else:
            rows += row.removesuffix("\n").split("\n") if row.endswith("\n") else [row, "\\ No newline at end of file"]
    return "\n".join(rows)


def _lines(file: FakeFile | None) -> list[str]:
    text = file.content.decode(errors="replace") if file else ""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *(line for line in lines[-1:] if line)]
