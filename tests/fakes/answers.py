"""The REST and GraphQL answers of a GitHub in memory; only with the fields that the client reads."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from bot.github import graphql
from bot.github.types import Answer
from localhub.api.auth import HubError, invalid, not_accessible, not_found, or_404, unprocessable
from localhub.api.routing import check_length
from localhub.operations.checks import demand_within_limits
from localhub.operations.pulls import NewComment, UnplacedError
from localhub.pages.markup import markdown
from tests.fakes.site import (
    FakeApp,
    FakeCheck,
    FakeComment,
    FakeCommit,
    FakeFile,
    FakeLineComment,
    FakePull,
    FakeRepo,
    FakeReview,
    FakeRun,
    FakeSite,
    FakeThread,
    object_id,
)

Json = dict[str, Any]
_MAX_CONTENT = 1024**2
_BAD_NAME = re.compile(r"(^|/)\.|\.\.|[\s~^:?*\[\\]|@\{|\.lock(/|$)|[/.]$|//")
_SHA = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a repository, or with `home` of None to the site."""

    site: FakeSite
    app: FakeApp
    is_workflow: bool
    home: FakeRepo | None
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False

    @property
    def repo(self) -> FakeRepo:
        return or_404(self.home)

    def demand(self, repo: FakeRepo, permission: str, level: str) -> None:
        """Check the App's access.

        Raises:
            HubError: 403 or 404.
        """
        if not repo.installed:
            if repo.private:
                raise not_found()
            if level == "write":
                raise not_accessible()
        elif (permission, level) != ("metadata", "read"):
            held = {self.app.permissions.get(name) for name in permission.split("|")}
            if not held & ({"read", "write"} if level == "read" else {"write"}):
                raise not_accessible()

    def thread(self, number: str) -> FakeThread:
        return or_404(self.repo.threads.get(int(number)))

    def pull(self, number: str) -> tuple[FakeThread, FakePull]:
        thread = self.thread(number)
        return thread, or_404(thread.pull)

    def text(self, resource: str, name: str = "body") -> str:
        value = self.body.get(name)
        if value is None:
            raise invalid(resource, name, "missing_field")
        check_length(value, resource, name)
        if not value.strip():
            raise invalid(resource, name, "missing_field")
        return str(value)

    def page(self, entries: Sequence[Any], show: Callable[[Any], Json]) -> list[Json]:
        size, number = int(self.query.get("per_page", 30)), int(self.query.get("page", 1))
        return [show(entry) for entry in entries[(number - 1) * size : number * size]]

    def user(self, account_id: int) -> Json | None:
        account = self.site.users.get(account_id)
        return None if account is None else {"id": account.id, "login": account.login, "type": account.type}

    def html(self, *parts: str | int) -> str:
        return "/".join([self.site.url, self.repo.full_name, *map(str, parts)])

    def texts(self, body: str | None) -> Json:
        """Return a text, with its HTML if the request asks for it."""
        return {"body": body} | ({"body_html": str(markdown(body))} if self.full and body is not None else {})


Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Route:
    name: str
    pattern: re.Pattern[str]
    permission: str
    level: str
    handler: Handler


_ROUTES: dict[tuple[str, str], list[_Route]] = {}


def route(verb: str, template: str, allow: str = "") -> Callable[[Handler], Handler]:
    """Register a handler; `{}` is a part of the path, `{*}` several."""
    first, (permission, _, level) = template.split("/", maxsplit=1)[0], allow.partition(":")
    pattern = re.escape(template).replace(r"\{\*\}", "(.*)").replace(r"\{\}", "([^/]+)")

    def register(handler: Handler) -> Handler:
        _ROUTES.setdefault((verb, first), []).append(
            _Route(f"{verb} {template}", re.compile(pattern), permission, level, handler)
        )
        return handler

    return register


def routes() -> frozenset[str]:
    """Return the names of all routes, as `FakeSite.requests` has them."""
    return frozenset({"POST graphql", *(known.name for listed in _ROUTES.values() for known in listed)})


def answer(request: Request, verb: str, path: str) -> Answer:
    """Perform a REST request.

    Raises:
        HubError: it is refused.
        AssertionError: no route has this path.
    """
    for candidate in _ROUTES.get((verb, path.split("/", maxsplit=1)[0]), ()):
        if match := candidate.pattern.fullmatch(path):
            accepted = "; ".join(f"{name}={candidate.level}" for name in candidate.permission.split("|") if name)
            request.site.requests.append(candidate.name)
            headers = {"x-accepted-github-permissions": accepted}
            try:
                if request.home is not None:
                    request.demand(request.home, candidate.permission, candidate.level)
                    _demand_writable(request.home, is_write=verb != "GET")
                data = candidate.handler(request, *map(unquote, match.groups()))
            except HubError as error:
                error.headers = headers | {name.lower(): value for name, value in error.headers.items()}
                raise
            return data if isinstance(data, Answer) else Answer(status=200, headers=headers, data=data)
    raise AssertionError(f"FakeGitHub has no route {verb} {path}")


def _demand_writable(repo: FakeRepo, *, is_write: bool) -> None:
    if repo.archived and is_write:
        raise HubError(403, "Repository was archived so is read-only.")


# Accounts and the App


@route("GET", "user")
def own_account(request: Request) -> Json | None:
    if request.is_workflow:
        raise not_accessible()
    return request.user(request.app.bot.id)


@route("GET", "users/{}")
def account_by_login(request: Request, login: str) -> Json | None:
    return request.user(or_404(request.site.find_user(login)).id)


@route("GET", "user/{}")
def account_by_id(request: Request, account_id: str) -> Json:
    return or_404(request.user(int(account_id)))


@route("GET", "app")
def app_itself(request: Request) -> Json:
    return {"id": request.app.id, "slug": request.app.slug}


@route("GET", "app/installations/{}")
def installation(request: Request, installation_id: str) -> Json:
    return {"id": int(installation_id), "permissions": request.app.permissions}


@route("POST", "app/installations/{}/access_tokens")
def create_token(request: Request, _installation_id: str) -> Json:
    installed = {repo.full_name.partition("/")[2] for repo in request.site.repos.values() if repo.installed}
    held = request.app.permissions
    for name, level in (request.body.get("permissions") or {}).items():
        if name not in held or (level == "write" and held[name] != "write"):
            raise unprocessable("The permissions requested are not granted to this installation.")
    if not installed.issuperset(request.body.get("repositories") or ()):
        raise unprocessable(
            "There is at least one repository that does not exist or is not accessible to the parent installation."
        )
    expires = datetime.now(UTC).timestamp() + 3600
    # No part of it may stand in a text, e.g. twelve zeros, which would be redacted.
    token = object_id("token", b"%d" % request.site.new_id())[:36]
    return {"token": f"ghs_{token}", "expires_at": datetime.fromtimestamp(expires, UTC).isoformat()}


@route("GET", "installation/repositories")
def installed_repos(request: Request) -> Json:
    repos = [repo for repo in request.site.repos.values() if repo.installed]
    return {"repositories": request.page(repos, lambda repo: _repo(request, repo))}


@route("GET", "collaborators/{}/permission", "metadata:read")
def permission(request: Request, login: str) -> Json:
    account = or_404(request.site.find_user(login))
    role = request.site.role_of(request.repo, account)
    legacy = {"maintain": "write", "triage": "read"}.get(role, role)
    return {"permission": legacy, "role_name": role, "user": request.user(account.id)}


# Repositories


@route("GET", "", "metadata:read")
def read_repo(request: Request) -> Json:
    return _repo(request, request.repo)


def _repo(request: Request, repo: FakeRepo) -> Json:
    page = f"{request.site.url}/{repo.full_name}"
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id}",
        "full_name": repo.full_name,
        "private": repo.private,
        "archived": repo.archived,
        "default_branch": repo.default_branch,
        "html_url": page,
        "clone_url": f"{page}.git",
    }


@route("GET", "contents/{*}", "contents:read")
def contents(request: Request, path: str) -> Json | list[Json]:
    revision, path = request.query.get("ref", request.repo.default_branch), path.strip("/")
    commit = request.repo.resolve(revision)
    if commit is None:
        reason = f"No commit found for the ref {revision}" if request.repo.branches else "This repository is empty."
        raise HubError(404, reason)
    if (file := commit.tree.get(path)) is not None:
        if file.mode == "120000":
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), file.content.decode(errors="replace")))
            linked = commit.tree.get(target)
            if linked is None or linked.mode == "120000":
                return _entry(path, file) | {"type": "symlink"}
            file = linked
        elif file.mode == "160000":
            return _entry(path, file) | {"type": "submodule"}
        fits = len(file.content) <= _MAX_CONTENT
        content = base64.b64encode(file.content).decode() if fits else ""
        return _entry(path, file) | {"content": content, "encoding": "base64" if fits else "none"}
    prefix = f"{path}/" if path else ""
    inside = {name.removeprefix(prefix): entry for name, entry in commit.tree.items() if name.startswith(prefix)}
    if not inside:
        raise not_found()
    folders = {name.partition("/")[0] for name in inside if "/" in name}
    files = [_entry(name, entry) for name, entry in sorted(inside.items()) if "/" not in name]
    return [*files, *({"type": "dir", "name": name, "sha": "", "size": 0} for name in sorted(folders))]


def _entry(path: str, file: FakeFile) -> Json:
    size = 0 if file.mode == "160000" else len(file.content)
    kind = "symlink" if file.mode == "120000" else "file"
    return {"type": kind, "name": path.rpartition("/")[2], "sha": file.sha, "size": size}


def _filled(request: Request) -> FakeRepo:
    if not request.repo.branches:
        raise HubError(409, "Git Repository is empty.")
    return request.repo


@route("GET", "git/ref/heads/{*}", "contents:read")
def read_ref(request: Request, branch: str) -> Json:
    return _ref(branch, or_404(_filled(request).branches.get(branch)))


@route("GET", "git/matching-refs/heads/{*}", "contents:read")
def matching_refs(request: Request, prefix: str) -> list[Json]:
    branches = sorted(_filled(request).branches.items())
    # The client asks for no second page.
    return [_ref(branch, sha) for branch, sha in branches if branch.startswith(prefix)][:30]


@route("POST", "git/refs", "contents:write")
def create_ref(request: Request) -> Json:
    _create_branch(request, request.repo, request.body["ref"], request.body["sha"])
    return {}


def _create_branch(request: Request, repo: FakeRepo, ref: str, sha: str) -> None:
    branch = ref.removeprefix("refs/heads/")
    if _BAD_NAME.search(branch):
        raise unprocessable("Reference name is not valid")
    if sha not in repo.commits:
        raise unprocessable("Object does not exist")
    if branch in repo.branches:
        raise unprocessable("Reference already exists")
    _demand_workflows(request, repo, repo.commits[sha])
    if any(name.startswith(f"{branch}/") or branch.startswith(f"{name}/") for name in repo.branches):
        raise unprocessable("Reference update failed")
    request.site.move_branch(repo, branch, sha)


def _ref(branch: str, sha: str) -> Json:
    return {"ref": f"refs/heads/{branch}", "object": {"sha": sha}}


def _demand_workflows(request: Request, repo: FakeRepo, commit: FakeCommit) -> None:
    """Check that the App may push the commit's workflow files: those of another branch are no change."""
    if request.app.permissions.get("workflows") == "write":
        return
    folder = ".github/workflows/"
    present = {
        (path, file)
        for sha in repo.branches.values()
        for path, file in repo.commits[sha].tree.items()
        if path.startswith(folder)
    }
    if not present.issuperset((path, file) for path, file in commit.tree.items() if path.startswith(folder)):
        error = not_accessible()
        error.headers["X-Accepted-GitHub-Permissions"] = "contents=write,workflows=write"
        raise error


@route("GET", "git/commits/{}", "contents:read")
def read_commit(request: Request, sha: str) -> Json:
    commit = or_404(_filled(request).commits.get(sha))
    return {
        "sha": sha,
        "tree": {"sha": commit.tree_sha},
        "parents": [{"sha": parent} for parent in commit.parents],
        "message": commit.message,
        "html_url": request.html("commit", sha),
    }


def commit_named(request: Request, revision: str) -> str:
    commit = request.repo.resolve(revision)
    if commit is None:
        if not request.repo.branches:
            raise HubError(409, "Git Repository is empty.")
        raise HubError(422, f"No commit found for SHA: {revision}")
    return commit.sha


# Threads and comments

_READ, _WRITE = "issues|pull_requests:read", "issues|pull_requests:write"


@route("GET", "issues/{}", _READ)
def read_issue(request: Request, number: str) -> Json:
    return _issue(request, request.thread(number))


@route("GET", "issues", _READ)
def list_issues(request: Request) -> list[Json]:
    query = request.query
    threads = [
        thread
        for number, thread in sorted(request.repo.threads.items(), reverse=query.get("direction", "desc") == "desc")
        if query.get("state", "open") in {"all", thread.state}
        and query.get("creator") in {None, _login(request, thread.author_id)}
    ]
    return request.page(threads, lambda thread: _issue(request, thread))


def _login(request: Request, account_id: int) -> str:
    account = request.site.users.get(account_id)
    return account.login if account else "ghost"


@route("POST", "issues", "issues:write")
def create_issue(request: Request) -> Json:
    title = request.text("Issue", "title")
    check_length(request.body.get("body") or "", "Issue", "body")
    thread = request.site.open_issue(
        request.repo, author=request.app.bot.login, title=title, body=request.body.get("body")
    )
    return _issue(request, thread)


def _page_of(request: Request, thread: FakeThread) -> str:
    return request.html("pull" if thread.pull else "issues", thread.number)


def _issue(request: Request, thread: FakeThread) -> Json:
    return {
        **request.texts(thread.body),
        "number": thread.number,
        "state": thread.state,
        "locked": thread.locked,
        "title": thread.title,
        "labels": [{"name": name} for name in thread.labels],
        "user": request.user(thread.author_id),
        "html_url": _page_of(request, thread),
    } | ({"pull_request": {}} if thread.pull else {})


@route("DELETE", "issues/{}/labels/{}", _WRITE)
def remove_label(request: Request, number: str, name: str) -> list[Json]:
    thread = request.thread(number)
    if name.lower() not in map(str.lower, thread.labels):
        raise HubError(404, "Label does not exist")
    thread.labels = [label for label in thread.labels if label.lower() != name.lower()]
    return []


@route("GET", "issues/comments/{}", _READ)
def read_comment(request: Request, comment_id: str) -> Json:
    return _comment(request, *_find_comment(request, comment_id))


@route("PATCH", "issues/comments/{}", _WRITE)
def edit_comment(request: Request, comment_id: str) -> Json:
    thread, comment = _find_comment(request, comment_id)
    request.site.edit_comment(comment, by=request.app.bot.login, body=request.text("IssueComment"))
    return _comment(request, thread, comment)


@route("GET", "issues/{}/comments", _READ)
def list_comments(request: Request, number: str) -> list[Json]:
    thread = request.thread(number)
    return request.page(thread.comments, lambda comment: _comment(request, thread, comment))


@route("POST", "issues/{}/comments", _WRITE)
def create_comment(request: Request, number: str) -> Json:
    thread, held = request.thread(number), request.app.permissions
    if "write" not in {held.get("pull_requests" if thread.pull else "issues"), held.get("issues")}:
        raise not_accessible()
    _demand_unlocked(thread)
    body = request.text("IssueComment")
    return _comment(
        request, thread, request.site.comment(request.repo, thread.number, author=request.app.bot.login, body=body)
    )


def _demand_unlocked(thread: FakeThread) -> None:
    if thread.locked:
        raise HubError(403, "Unable to create comment because issue is locked.")


def _find_comment(request: Request, comment_id: str) -> tuple[FakeThread, FakeComment]:
    for thread in request.repo.threads.values():
        for comment in thread.comments:
            if comment.id == int(comment_id):
                return thread, comment
    raise not_found()


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _comment(request: Request, thread: FakeThread, comment: FakeComment, anchor: str = "issuecomment-") -> Json:
    return {
        **request.texts(comment.body),
        "id": comment.id,
        "user": request.user(comment.author_id),
        "created_at": iso(comment.created_at),
        "updated_at": iso(comment.updated_at),
        "html_url": f"{_page_of(request, thread)}#{anchor}{comment.id}",
    }


@route("POST", "issues/comments/{}/reactions", _WRITE)
def react_to_comment(request: Request, comment_id: str) -> Json:
    return _react(request, _find_comment(request, comment_id)[1].reactions)


@route("POST", "issues/{}/reactions", _WRITE)
def react_to_thread(request: Request, number: str) -> Json:
    return _react(request, request.thread(number).reactions)


@route("POST", "pulls/comments/{}/reactions", "pull_requests:write")
def react_to_line_comment(request: Request, comment_id: str) -> Json:
    return _react(request, _find_line_comment(request, comment_id)[1].reactions)


def _react(request: Request, reactions: list[tuple[int, str]]) -> Json:
    reaction = request.app.bot.id, request.body["content"]
    if reaction not in reactions:
        reactions.append(reaction)
    return {}


# Pull requests and reviews


@route("GET", "pulls", "pull_requests:read")
def list_pulls(request: Request) -> list[Json]:
    query, pulls = request.query, []
    for _, thread in sorted(request.repo.threads.items(), reverse=True):
        pull = thread.pull
        if pull is None or query.get("state", "open") not in {"all", thread.state}:
            continue
        label = f"{pull.head_repo.owner if pull.head_repo else ''}:{pull.head_ref}"
        if query.get("head", label) == label and query.get("base", pull.base_ref) == pull.base_ref:
            pulls.append((thread, pull))
    return request.page(pulls, lambda pair: _pull(request, *pair))


@route("POST", "pulls", "pull_requests:write")
def create_pull(request: Request) -> Json:
    title = request.text("PullRequest", "title")
    return _open_pull(request, request.repo, {**request.body, "title": title})


def _open_pull(request: Request, repo: FakeRepo, fields: Mapping[str, Any]) -> Json:
    thread = request.site.open_pull(
        repo,
        author=request.app.bot.login,
        head=fields["head"],
        base=fields["base"],
        title=fields["title"],
        body=fields.get("body"),
        draft=bool(fields.get("draft")),
    )
    page = f"{request.site.url}/{repo.full_name}/pull/{thread.number}"
    return {"number": thread.number, "html_url": page, "draft": bool(fields.get("draft"))}


@route("GET", "pulls/{}", "pull_requests:read")
def read_pull(request: Request, number: str) -> Json:
    thread, pull = request.pull(number)
    return _pull(request, thread, pull) | {"merged": pull.merged}


def _pull(request: Request, thread: FakeThread, pull: FakePull) -> Json:
    home = pull.head_repo
    head_repo = None if home is None else {"id": home.id, "full_name": home.full_name}
    return {
        "number": thread.number,
        "state": thread.state,
        "draft": pull.draft,
        "locked": thread.locked,
        "title": thread.title,
        "body": thread.body,
        "user": request.user(thread.author_id),
        "head": {"ref": pull.head_ref, "sha": pull.head_sha, "repo": head_repo},
        "base": {"ref": pull.base_ref, "sha": pull.base_sha, "repo": {"id": request.repo.id}},
        "html_url": _page_of(request, thread),
    }


@route("GET", "pulls/comments/{}", "pull_requests:read")
def read_line_comment(request: Request, comment_id: str) -> Json:
    return _line_comment(request, *_find_line_comment(request, comment_id))


@route("PATCH", "pulls/comments/{}", "pull_requests:write")
def edit_line_comment(request: Request, comment_id: str) -> Json:
    thread, comment = _find_line_comment(request, comment_id)
    request.site.edit_comment(comment, by=request.app.bot.login, body=request.text("PullRequestReviewComment"))
    return _line_comment(request, thread, comment)


@route("GET", "pulls/{}/comments", "pull_requests:read")
def list_line_comments(request: Request, number: str) -> list[Json]:
    thread, pull = request.pull(number)
    return request.page(pull.line_comments, lambda comment: _line_comment(request, thread, comment))


@route("POST", "pulls/{}/comments/{}/replies", "pull_requests:write")
def reply(request: Request, number: str, comment_id: str) -> Json:
    thread, pull = request.pull(number)
    _demand_unlocked(thread)
    if int(comment_id) not in {comment.id for comment in pull.line_comments}:
        raise not_found()
    body, bot = request.text("PullRequestReviewComment"), request.app.bot.login
    comment = request.site.review_comment(
        request.repo, thread.number, author=bot, body=body, in_reply_to=int(comment_id)
    )
    return _line_comment(request, thread, comment)


def _find_line_comment(request: Request, comment_id: str) -> tuple[FakeThread, FakeLineComment]:
    for thread in request.repo.threads.values():
        for comment in thread.pull.line_comments if thread.pull else ():
            if comment.id == int(comment_id):
                return thread, comment
    raise not_found()


def _line_comment(request: Request, thread: FakeThread, comment: FakeLineComment) -> Json:
    replies = {} if comment.root == comment.id else {"in_reply_to_id": comment.root}
    return (
        _comment(request, thread, comment, "discussion_r")
        | replies
        | {
            "path": comment.path,
            "line": comment.line,
            "start_line": comment.start_line,
            "side": comment.side,
            "diff_hunk": comment.hunk,
            "commit_id": comment.commit_sha,
        }
    )


@route("GET", "pulls/{}/reviews", "pull_requests:read")
def list_reviews(request: Request, number: str) -> list[Json]:
    thread, pull = request.pull(number)
    return request.page(pull.reviews, lambda review: _review(request, thread, review))


@route("GET", "pulls/{}/reviews/{}", "pull_requests:read")
def read_review(request: Request, number: str, review_id: str) -> Json:
    thread, pull = request.pull(number)
    return _review(request, thread, or_404(next((each for each in pull.reviews if each.id == int(review_id)), None)))


def _review(request: Request, thread: FakeThread, review: FakeReview) -> Json:
    return {
        **request.texts(review.body),
        "id": review.id,
        "state": review.state,
        "commit_id": review.commit_sha,
        "submitted_at": iso(review.submitted_at),
        "user": request.user(review.author_id),
        "html_url": f"{_page_of(request, thread)}#pullrequestreview-{review.id}",
    }


@route("POST", "pulls/{}/reviews", "pull_requests:write")
def create_review(request: Request, number: str) -> Json:
    thread, pull = request.pull(number)
    _demand_unlocked(thread)
    body, notes = request.body["body"], request.body["comments"]
    check_length(body, "PullRequestReview", "body")
    if not notes and not body.strip():
        raise HubError(422, "Unprocessable Entity", errors=("Body can't be blank",))
    if request.body["commit_id"] != pull.head_sha:
        raise unprocessable("The local hub reviews the head of a pull request only; commit_id is another commit.")
    drafts = []
    for note in notes:
        for name in ("path", "body"):
            if not note[name]:
                raise invalid("PullRequestReviewComment", name, "missing_field")
        check_length(note["body"], "PullRequestReviewComment", "body")
        drafts.append(NewComment(**note))
    try:
        review = request.site.review(
            request.repo, thread.number, author=request.app.bot.login, body=body, comments=drafts
        )
    except UnplacedError as error:
        name = error.field.replace("_", " ").capitalize()
        raise HubError(422, "Unprocessable Entity", errors=(f"{name} could not be resolved",)) from error
    return _review(request, thread, review)


# Checks


@route("POST", "check-runs", "checks:write")
def create_check(request: Request) -> Json:
    sha = commit_named(request, request.body["head_sha"])
    check = FakeCheck(request.site.new_id(), request.app.id, request.body["name"], sha)
    _change_check(request, check)
    request.repo.checks.append(check)
    return _check(request, check)


@route("PATCH", "check-runs/{}", "checks:write")
def update_check(request: Request, check_id: str) -> Json:
    check = _find_check(request, check_id)
    if check.app_id != request.app.id:
        raise not_accessible()
    _change_check(request, check)
    return _check(request, check)


def _change_check(request: Request, check: FakeCheck) -> None:
    body, output = request.body, request.body.get("output") or {}
    demand_within_limits(body)
    check.name = body.get("name", check.name)
    check.status = "completed" if body.get("conclusion") else body.get("status", check.status)
    check.conclusion = body.get("conclusion", check.conclusion) if check.status == "completed" else None
    check.external_id = body.get("external_id", check.external_id)
    check.title = output.get("title", check.title)
    check.summary = output.get("summary", check.summary)
    check.text = output.get("text", check.text)
    check.annotations += output.get("annotations") or ()
    check.actions = list(body.get("actions", check.actions))


def _find_check(request: Request, check_id: str) -> FakeCheck:
    return or_404(next((check for check in request.repo.checks if check.id == int(check_id)), None))


def _check(request: Request, check: FakeCheck) -> Json:
    output = {"title": check.title, "summary": check.summary, "text": check.text}
    return {
        "id": check.id,
        "name": check.name,
        "status": check.status,
        "conclusion": check.conclusion,
        "external_id": check.external_id,
        "html_url": request.html("runs", check.id),
        "output": output | {"annotations_count": len(check.annotations)},
        "app": {"id": check.app_id},
    }


@route("GET", "commits/{}/check-runs", "checks:read")
def list_checks(request: Request, revision: str) -> Json:
    sha, query = commit_named(request, revision), request.query
    checks = [check for check in request.repo.checks if check.head_sha == sha]
    if query.get("filter", "latest") == "latest":
        checks = list({(check.app_id, check.name): check for check in checks}.values())
    checks = [
        check
        for check in checks
        if query.get("check_name", check.name) == check.name
        and query.get("app_id", str(check.app_id)) == str(check.app_id)
    ]
    return {"check_runs": request.page(checks, lambda check: _check(request, check))}


@route("GET", "commits/{}/status", "statuses:read")
def combined_status(request: Request, revision: str) -> Json:
    sha = commit_named(request, revision)
    newest = {status.context: status for status in request.repo.statuses if status.sha == sha}
    # A status that replaces another one is the newest.
    order = [status for status in reversed(request.repo.statuses) if newest.get(status.context) is status]

    def show(status: Any) -> Json:  # noqa: ANN401 - a FakeStatus
        return {name: getattr(status, name) for name in ("id", "state", "context", "description", "target_url")}

    return {"statuses": request.page(order, show)}


@route("GET", "check-runs/{}/annotations", "checks:read")
def list_annotations(request: Request, check_id: str) -> list[Json]:
    for run in request.repo.runs:
        for job in run.jobs:
            if job.id == int(check_id):
                level = {"annotation_level": "failure"}
                rows = [
                    {"path": path, "start_line": line, "end_line": line, "message": text} | level
                    for path, line, text in job.annotations
                ]
                return request.page(rows, dict)
    return request.page(_find_check(request, check_id).annotations, dict)


# Workflow runs


@route("GET", "actions/runs/{}", "actions:read")
def read_run(request: Request, run_id: str) -> Json:
    return _run(request, _find_run(request, run_id))


@route("GET", "actions/runs/{}/attempts/{}", "actions:read")
def read_attempt(request: Request, run_id: str, attempt: str) -> Json:
    run = _find_run(request, run_id)
    return _run(request, run, _attempt(run, attempt))


@route("GET", "actions/runs/{}/jobs", "actions:read")
def list_jobs(request: Request, run_id: str) -> Json:
    run = _find_run(request, run_id)
    return _jobs(request, run, run.attempt)


@route("GET", "actions/runs/{}/attempts/{}/jobs", "actions:read")
def list_attempt_jobs(request: Request, run_id: str, attempt: str) -> Json:
    run = _find_run(request, run_id)
    return _jobs(request, run, _attempt(run, attempt))


def _find_run(request: Request, run_id: str) -> FakeRun:
    return or_404(next((run for run in request.repo.runs if run.id == int(run_id)), None))


def _attempt(run: FakeRun, attempt: str) -> int:
    if not 1 <= int(attempt) <= run.attempt:
        raise not_found()
    return int(attempt)


def _run(request: Request, run: FakeRun, attempt: int | None = None) -> Json:
    number = attempt or run.attempt
    return {
        "id": run.id,
        "workflow_id": run.workflow_id,
        "name": run.name,
        "conclusion": (*run.earlier, None if run.is_queued else run.conclusion)[number - 1],
        "head_sha": run.head_sha,
        "head_branch": run.head_branch,
        "head_repository": {"id": run.head_repo_id},
        "html_url": request.html("actions", "runs", run.id),
        "path": run.path,
        "event": run.event,
        "run_number": run.number,
        "run_attempt": number,
    }


def _jobs(request: Request, run: FakeRun, attempt: int) -> Json:
    times = dict.fromkeys(("started_at", "completed_at"), iso(run.created_at))

    def show(job: Any) -> Json:  # noqa: ANN401 - a FakeJob
        return {
            "id": job.id,
            "name": job.name,
            "conclusion": job.conclusion,
            "steps": [
                {"number": number, "name": name, "conclusion": conclusion, **times}
                for number, (name, conclusion) in enumerate(job.steps, 1)
            ],
            "labels": ["ubuntu-latest"],
            "check_run_url": f"check-runs/{job.id}",
            "html_url": request.html("actions", "runs", run.id, "job", job.id),
        }

    return {"jobs": request.page([job for job in run.jobs if job.attempt == attempt], show)}


@route("GET", "actions/workflows/{}/runs", "actions:read")
def list_runs(request: Request, workflow_id: str) -> Json:
    runs = [run for run in reversed(request.repo.runs) if run.workflow_id == int(workflow_id)]
    if not runs:
        raise not_found()
    query = request.query
    runs = [
        run
        for run in runs
        if query.get("branch", run.head_branch) == run.head_branch
        and query.get("head_sha", run.head_sha) == run.head_sha
        and query.get("event", run.event) == run.event
        and query.get("status") in {None, *(("queued",) if run.is_queued else ("completed", run.conclusion))}
    ]
    return {"workflow_runs": request.page(runs, lambda run: _run(request, run))}


@route("POST", "actions/runs/{}/rerun-failed-jobs", "actions:write")
def rerun_failed_jobs(request: Request, run_id: str) -> Json:
    run = _find_run(request, run_id)
    if run.is_queued:
        raise HubError(403, "This workflow is already running")
    request.site.run_again(run, by=request.app.bot.login)
    return {}


@route("GET", "actions/jobs/{}/logs", "actions:read")
def job_log(request: Request, job_id: str) -> Answer:
    job = next((job for run in request.repo.runs for job in run.jobs if job.id == int(job_id)), None)
    if or_404(job).log is None:
        raise HubError(410, "Server Error")
    return _moved(f"logs/jobs/{job_id}")


@route("GET", "actions/runs/{}/attempts/{}/logs", "actions:read")
def attempt_logs(request: Request, run_id: str, attempt: str) -> Answer:
    run = _find_run(request, run_id)
    jobs = [job for job in run.jobs if job.attempt == _attempt(run, attempt)]
    if jobs and all(job.log is None for job in jobs):
        raise HubError(410, "Server Error")
    return _moved(f"logs/runs/{run_id}/{attempt}")


@route("GET", "actions/artifacts", "actions:read")
def list_artifacts(request: Request) -> Json:
    name = request.query.get("name")
    artifacts = [each for each in reversed(request.repo.artifacts) if name in {None, each.name}]

    def show(artifact: Any) -> Json:  # noqa: ANN401 - a FakeArtifact
        return {
            "id": artifact.id,
            "name": artifact.name,
            "size_in_bytes": len(artifact.content),
            "expired": artifact.expired,
            "workflow_run": {"id": artifact.run_id, "head_repository_id": artifact.head_repo_id},
        }

    return {"artifacts": request.page(artifacts, show)}


@route("GET", "actions/artifacts/{}/zip", "actions:read")
def artifact_archive(request: Request, artifact_id: str) -> Answer:
    artifact = or_404(next((each for each in request.repo.artifacts if each.id == int(artifact_id)), None))
    if artifact.expired:
        raise HubError(410, "Artifact has expired")
    return _moved(f"artifacts/{artifact_id}")


def _moved(path: str) -> Answer:
    return Answer(status=302, headers={"location": f"https://storage.invalid/{path}"}, data=None)


# GraphQL


def graphql_answer(request: Request, query: str, variables: Mapping[str, Any]) -> Json:
    """Perform one of the client's GraphQL operations.

    Raises:
        HubError: it is refused, with the status that the client gives the refusal.
        AssertionError: the operation is unknown.
    """
    request.site.requests.append("POST graphql")
    if query in {graphql.COMMIT, graphql.NEW_BRANCH, graphql.NEW_BRANCH_WITH_PULL}:
        return _mutate(request, variables)
    name = f"{variables['owner']}/{variables['name']}"
    repo = _graphql_repo(request, request.site.find_repo(name), name, ("metadata", "read"))
    if query == graphql.BRANCH:
        sha = repo.branches.get(variables["ref"].removeprefix("refs/heads/"))
        return {"repository": _graphql_facts(request, repo) | {"ref": _target(sha)}}
    if query == graphql.THREAD:
        thread = repo.threads.get(variables["number"])
        hidden = not {request.app.permissions.get(name) for name in ("issues", "pull_requests")} & {"read", "write"}
        shown = None if thread is None or (repo.installed and hidden) else _graphql_thread(request, repo, thread)
        return {"repository": _graphql_facts(request, repo) | {"issueOrPullRequest": shown}}
    blobs = {name: sha for name, sha in variables.items() if name not in {"owner", "name"}}
    if query == graphql.blobs_query(len(blobs)):
        files = {file.sha: file for commit in repo.commits.values() for file in commit.tree.values()}
        return {"repository": {name: _blob(files.get(sha)) for name, sha in blobs.items()}}
    raise AssertionError(f"FakeGitHub does not know the operation {query}")


def _graphql_repo(
    request: Request, repo: FakeRepo | None, name: str, access: tuple[str, str] = ("contents", "write")
) -> FakeRepo:
    if repo is None:
        raise HubError(404, f"Could not resolve to a Repository with the name '{name}'.")
    request.demand(repo, *access)
    _demand_writable(repo, is_write=access[1] == "write")
    return repo


def _graphql_facts(request: Request, repo: FakeRepo) -> Json:
    facts = {name: value for name, value in _repo(request, repo).items() if name not in {"clone_url", "default_branch"}}
    head = _target(repo.branches.get(repo.default_branch))
    return facts | {"defaultBranchRef": None if head is None else {"name": repo.default_branch, **head}}


def _target(sha: str | None) -> Json | None:
    return None if sha is None else {"target": {"oid": sha}}


def _graphql_thread(request: Request, repo: FakeRepo, thread: FakeThread) -> Json:
    account, pull = request.site.users.get(thread.author_id), thread.pull
    shown: Json = {
        "__typename": "PullRequest" if pull else "Issue",
        "number": thread.number,
        "title": thread.title,
        "body": thread.body or "",
        "html_url": f"{request.site.url}/{repo.full_name}/{'pull' if pull else 'issues'}/{thread.number}",
        "locked": thread.locked,
        # As an actor a bot goes without the suffix of its login.
        "user": None if account is None else {"id": account.id, "login": account.login.removesuffix("[bot]")},
        "labels": {"nodes": [{"name": name} for name in thread.labels]},
    }
    if pull is None:
        return shown | {"issueState": thread.state.upper()}
    home = pull.head_repo
    base_head = repo.branches.get(pull.base_ref)
    return shown | {
        "pullState": "MERGED" if pull.merged else thread.state.upper(),
        "merged": pull.merged,
        "draft": pull.draft,
        "from_fork": home is not repo,
        "head_ref": pull.head_ref,
        "head_sha": pull.head_sha,
        "base_ref": pull.base_ref,
        "base_sha": base_head or pull.base_sha,
        "head": None if home is None else {"repo_id": home.id, "repo_name": home.full_name},
        "baseRef": _target(base_head),
    }


def _blob(file: FakeFile | None) -> Json | None:
    if file is None:
        return None
    try:
        text = None if b"\0" in file.content else file.content.decode()
    except UnicodeDecodeError:
        text = file.content.decode("latin-1")
    return {"oid": file.sha, "byteSize": len(file.content), "isTruncated": False, "text": text}


def _mutate(request: Request, variables: Mapping[str, Any]) -> Json:
    """Perform the parts of a mutation one after the other; a refused part does not stop the next one."""
    parts: tuple[tuple[str, str, Callable[[Request, Mapping[str, Any]], Json]], ...] = (
        ("ref", "createRef", _graphql_ref),
        ("commit", "createCommitOnBranch", _graphql_commit),
        ("pull", "createPullRequest", _graphql_pull),
    )
    data: Json = {}
    refusals: list[HubError] = []
    for name, part, perform in parts:
        try:
            data[part] = perform(request, variables[name]) if name in variables else None
        except HubError as error:
            data[part] = None
            refusals.append(error)
    if data["createCommitOnBranch"] is None:
        statuses = {error.status for error in refusals}
        status = 403 if 403 in statuses else 404 if statuses == {404} else 400
        raise HubError(status, "; ".join(_message(error) for error in refusals))
    return data


def _message(error: HubError) -> str:
    texts = (each if isinstance(each, str) else each.get("message", "") for each in error.errors)
    return "; ".join(filter(None, texts)) or error.message


def _by_node(request: Request, node_id: str, permission: str) -> FakeRepo:
    repo = request.site.repos.get(int(node_id.removeprefix("R_"))) if node_id[2:].isdecimal() else None
    if repo is None:
        raise HubError(404, f"Could not resolve to a node with the global id of '{node_id}'.")
    return _graphql_repo(request, repo, repo.full_name, (permission, "write"))


def _graphql_ref(request: Request, fields: Mapping[str, Any]) -> Json:
    _create_branch(request, _by_node(request, fields["repositoryId"], "contents"), fields["name"], fields["oid"])
    return {}


def _graphql_pull(request: Request, fields: Mapping[str, Any]) -> Json:
    repo = _by_node(request, fields["repositoryId"], "pull_requests")
    if not fields["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(fields["title"], "PullRequest", "title")
    names = {"head": fields["headRefName"], "base": fields["baseRefName"]}
    return {"pullRequest": _open_pull(request, repo, {**fields, **names})}


def _graphql_commit(request: Request, fields: Mapping[str, Any]) -> Json:
    name, branch = fields["branch"]["repositoryNameWithOwner"], fields["branch"]["branchName"]
    repo = _graphql_repo(request, request.site.find_repo(name), name)
    head, expected = repo.head(branch), fields["expectedHeadOid"]
    if head is None:
        raise HubError(404, f"No ref found for branch '{branch}'.")
    if head.sha != expected:
        raise HubError(422, f'Expected branch to point to "{expected}" but it did not. Pull and try again.')
    files: dict[str, bytes | None] = {}
    for deletion in fields["fileChanges"]["deletions"]:
        if deletion["path"] not in head.tree:
            raise HubError(422, f"A path was requested for deletion which does not exist: {deletion['path']}")
        files[deletion["path"]] = None
    for addition in fields["fileChanges"]["additions"]:
        if any(part.lower() in {"", ".", "..", ".git"} for part in addition["path"].split("/")):
            raise HubError(422, f"A path is malformed: {addition['path']}")
        files[addition["path"]] = base64.b64decode(addition["contents"])
    message = "\n\n".join(filter(None, (fields["message"]["headline"], fields["message"]["body"])))
    commit = request.site.write_commit(repo, head, files, message=message, author=request.app.bot)
    _demand_workflows(request, repo, commit)
    request.site.move_branch(repo, branch, commit.sha)
    return {
        "commit": {
            "oid": commit.sha,
            "html_url": f"{request.site.url}/{repo.full_name}/commit/{commit.sha}",
            "message": message,
            "tree": {"oid": commit.tree_sha},
            "parents": {"nodes": [{"oid": head.sha}]},
        }
    }
