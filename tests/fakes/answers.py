"""The REST answers about accounts, repositories and threads; only with the fields that the client reads."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from localhub.api.auth import HubError, invalid, not_accessible, not_found, or_404, unprocessable
from localhub.api.routing import check_length
from localhub.api.rules import NewCommit, refuse, rule_of_branch
from localhub.operations.pulls import NewComment, UnplacedError
from tests.fakes import trees
from tests.fakes.routing import Json, Request, route
from tests.fakes.site import (
    FakeComment,
    FakeCommit,
    FakeFile,
    FakeLineComment,
    FakePull,
    FakeRepo,
    FakeReview,
    FakeThread,
    changed_files,
    object_id,
    patch_of,
)

_MAX_CONTENT = 1024**2
_BAD_NAME = re.compile(r"(^|/)\.|\.\.|[\s~^:?*\[\\]|@\{|\.lock(/|$)|[/.]$|//")

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
    expires_at = datetime.fromtimestamp(expires, UTC).isoformat()
    return {"token": f"ghs_{token}", "expires_at": expires_at, "permissions": request.body.get("permissions") or held}


@route("GET", "installation/repositories")
def installed_repos(request: Request) -> Json:
    repos = [repo for repo in request.site.repos.values() if repo.installed]
    return {"repositories": request.page(repos, lambda repo: repo_json(request, repo))}


@route("GET", "collaborators/{}/permission", "metadata:read")
def permission(request: Request, login: str) -> Json:
    account = or_404(request.site.find_user(login))
    role = request.site.role_of(request.repo, account)
    legacy = {"maintain": "write", "triage": "read"}.get(role, role)
    return {"permission": legacy, "role_name": role, "user": request.user(account.id)}


# Repositories


@route("GET", "", "metadata:read")
def read_repo(request: Request) -> Json:
    return repo_json(request, request.repo)


def repo_json(request: Request, repo: FakeRepo) -> Json:
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
    create_branch(request, request.repo, request.body["ref"], request.body["sha"])
    return {}


def create_branch(request: Request, repo: FakeRepo, ref: str, sha: str) -> None:
    branch = ref.removeprefix("refs/heads/")
    if _BAD_NAME.search(branch):
        raise unprocessable("Reference name is not valid")
    if sha not in repo.commits:
        raise unprocessable("Object does not exist")
    if branch in repo.branches:
        raise unprocessable("Reference already exists")
    demand_workflow_access(request, repo, repo.commits[sha])
    if any(name.startswith(f"{branch}/") or branch.startswith(f"{name}/") for name in repo.branches):
        raise unprocessable("Reference update failed")
    demand_rules(request, repo, branch, [], is_new=True)
    request.site.move_branch(repo, branch, sha)


def demand_rules(request: Request, repo: FakeRepo, branch: str, commits: Sequence[NewCommit], *, is_new: bool) -> None:
    """Check that the repository's rules allow an update of a branch through the API."""
    rulesets = repo.rulesets_for(branch, without=request.app.bot.login)
    refuse([rule for each in rulesets for rule in each.rules], branch, commits, is_new=is_new)


@route("GET", "activity", "contents:read")
def pushes(request: Request) -> list[Json]:
    found = [push for push in request.repo.pushes if push[0] == request.query["ref"]]
    shown = found[::-1][: int(request.query["per_page"])]
    return [{"ref": ref, "after": sha, "timestamp": iso(at)} for ref, sha, at in shown]


@route("GET", "rules/branches/{*}", "metadata:read")
def rules_of_branch(request: Request, branch: str) -> list[Json]:
    rulesets = [each for each in request.repo.rulesets_for(branch) if not each.classic]
    listed = [(each, rule) for each in rulesets for rule in each.rules]
    return request.page(listed, lambda entry: rule_of_branch(*entry))


@route("GET", "rulesets/{}", "metadata:read")
def one_ruleset(request: Request, number: str) -> Json:
    rulesets = (each for each in request.repo.rulesets if each.id == int(number) and not each.classic)
    found = or_404(next(rulesets, None))
    return {"current_user_can_bypass": "always" if request.app.bot.login in found.bypass else "never"}


def _ref(branch: str, sha: str) -> Json:
    return {"ref": f"refs/heads/{branch}", "object": {"sha": sha}}


def demand_workflow_access(request: Request, repo: FakeRepo, commit: FakeCommit) -> None:
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
    return issue_json(request, request.thread(number))


@route("GET", "issues", _READ)
def list_issues(request: Request) -> list[Json]:
    query = request.query
    threads = [
        thread
        for number, thread in sorted(request.repo.threads.items(), reverse=query.get("direction", "desc") == "desc")
        if query.get("state", "open") in {"all", thread.state}
        and query.get("creator") in {None, _login(request, thread.author_id)}
    ]
    return request.page(threads, lambda thread: issue_json(request, thread))


def _login(request: Request, account_id: int) -> str:
    account = request.site.users.get(account_id)
    return account.login if account else "ghost"


@route("POST", "issues", "issues:write")
def create_issue(request: Request) -> Json:
    title = request.text("Issue", "title")
    check_length(request.body.get("body") or "", "Issue", "body")
    thread = request.site.open_issue(
        request.repo,
        author=request.app.bot.login,
        title=title,
        body=request.body.get("body"),
        labels=request.body.get("labels") or (),
    )
    return issue_json(request, thread)


def _page_of(request: Request, thread: FakeThread) -> str:
    return request.html("pull" if thread.pull else "issues", thread.number)


def issue_json(request: Request, thread: FakeThread) -> Json:
    return {
        **request.texts(thread.body),
        "id": thread.id,
        "assignees": [request.user(number) for number in thread.assignees],
        "milestone": {"title": thread.milestone} if thread.milestone else None,
        "type": {"name": thread.type} if thread.type and thread.pull is None else None,
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
        "node_id": f"C_{comment.id}",
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
    return open_pull(request, request.repo, {**request.body, "title": title})


def open_pull(request: Request, repo: FakeRepo, fields: Mapping[str, Any]) -> Json:
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


@route("PATCH", "pulls/{}", "pull_requests:write")
def edit_pull(request: Request, number: str) -> Json:
    thread, pull = request.pull(number)
    title, body = request.body.get("title", thread.title), request.body.get("body", thread.body)
    for name, text in (("title", title), ("body", body)):
        check_length(text, "PullRequest", name)
    thread.title, thread.body = title, body
    if request.body.get("state") == "closed":
        request.site.close(request.repo, thread.number, by=request.app.bot.login)
    return _pull(request, thread, pull)


@route("GET", "pulls/{}", "pull_requests:read")
def read_pull(request: Request, number: str) -> Json:
    thread, pull = request.pull(number)
    mergeable, sides = None, (pull.base_sha, pull.head_sha)
    if thread.state == "open" and pull.merge_check == sides:  # the first answer only starts the computation
        history = set(request.repo.history(pull.base_sha))
        fork = next((sha for sha in request.repo.history(pull.head_sha) if sha in history), pull.base_sha)
        base, head, fork_tree = (request.repo.commits[sha].tree for sha in (*sides, fork))
        mergeable = not trees.merge(fork_tree, head, base)[1]
    pull.merge_check = sides
    return _pull(request, thread, pull) | {"merged": pull.merged, "mergeable": mergeable}


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


@route("GET", "pulls/{}/files", "pull_requests:read")
def list_files(request: Request, number: str) -> list[Json]:
    _, pull = request.pull(number)
    files = changed_files(request.repo, pull)
    return request.page(files, lambda path: {"filename": path, "patch": patch_of(request.repo, pull, path)})


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
        "node_id": f"R_{review.id}",
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
