"""Commits: history, comparisons and statuses; files at a revision; the git database.

The contents endpoints read a file and commit a change to one; the git database reads and writes references, commit
objects, trees and blobs one by one.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from localhub.api.auth import HubError, invalid, not_found, or_404, unprocessable
from localhub.api.routing import DIFF, PATCH, RAW, Call, Response, Routes, listed, moment_of, page_of
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import branches, threads, webhooks, workflow_files
from localhub.state.model import CommitComment, CommitStatus, Repo, User
from localhub.state.store import Json
from localhub.views import accounts as account_views
from localhub.views import checks as checks_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views
from localhub.views.git import LINK

routes = Routes()
REPO = "/repos/{owner}/{repo}"
GIT = REPO + "/git"
READ, WRITE = "contents:read", "contents:write"
COMMIT_COMMENT = REPO + "/comments/{comment_id}"
STATES = ("error", "failure", "pending", "success")

_KINDS = {"100644": "blob", "100755": "blob", "120000": "blob", "040000": "tree", "160000": "commit"}
_SHA = re.compile(r"[0-9a-f]{40}")
_GIT = re.compile(r"(\.git|git~1)[ .]*", re.IGNORECASE)

_MOST_IN_JSON = 1024**2
_MOST_SHOWN = 100 * 1024**2


def commit_named(call: Call, revision: str) -> git.Commit:
    """The commit that a SHA, branch or tag names.

    Raises:
        HubError: 422 when nothing has that name; 409 when the repository is empty.
    """
    sha = git.resolve(call.repo.path, revision)
    if sha is None:
        if not git.refs(call.repo.path):
            raise HubError(409, "Git Repository is empty.")
        raise HubError(422, f"No commit found for SHA: {revision}")
    return git.commit(call.repo.path, sha)


@routes.on("GET", REPO + "/commits", allow=READ, takes="author committer path sha since until")
def list_commits(call: Call) -> Response:
    """History from a branch, tag or SHA, newest first."""
    start = commit_named(call, call.query.get("sha", call.repo.default_branch))
    found = [
        value
        for value in git.commits(call.repo.path, start.sha, of=call.query.get("path"))
        if _matches_query(call, value)
    ]
    return listed(call, found, lambda value: git_views.commit(call.site, call.repo, value))


def _matches_query(call: Call, value: git.Commit) -> bool:
    """Whether the query's people and times fit a commit."""
    query, moment = call.query, value.committer.date
    return (
        _is_by(call, value.author, query.get("author"))
        and _is_by(call, value.committer, query.get("committer"))
        and ("since" not in query or moment >= moment_of(query["since"], "since"))
        and ("until" not in query or moment <= moment_of(query["until"], "until"))
    )


def _is_by(call: Call, person: git.Person, name: str | None) -> bool:
    """Whether a person is who the query names by login or address."""
    user = git_views.account_of(call.site, person)
    return name is None or name in {person.email, user.login if user else None}


@routes.on("GET", REPO + "/compare/{basehead}", allow=READ)
def compare(call: Call) -> Response:
    """Compare `head` with `base`."""
    base, separator, head = call.params["basehead"].partition("...")
    revisions = [git.resolve(call.repo.path, name) for name in (base, head)]
    if not separator or None in revisions:
        raise not_found()
    old, new = (git.commit(call.repo.path, str(sha)) for sha in revisions)
    if call.wants("diff"):
        parted = git_diff.merge_base(call.repo.path, old.sha, new.sha) or old.sha
        return Response(body=git_diff.unified(call.repo.path, parted, new.sha), media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, f"{old.sha}..{new.sha}"), media_type=PATCH)
    return Response(body=git_views.comparison(call.site, call.repo, old, new))


@routes.on("GET", REPO + "/commits/{ref}/statuses", allow="statuses:read")
def list_statuses(call: Call) -> Response:
    """All statuses of a commit."""
    sha = commit_named(call, call.params["ref"]).sha
    return listed(call, _statuses(call, sha), lambda value: checks_views.status(call.site, call.repo, value))


@routes.on("GET", REPO + "/commits/{ref}/status", allow="statuses:read")
def combined_status(call: Call) -> Response:
    """The newest status of each context, and the combined state."""
    site, repo = call.site, call.repo
    sha = commit_named(call, call.params["ref"]).sha
    newest: dict[str, CommitStatus] = {}
    for value in _statuses(call, sha):
        newest.setdefault(value.context, value)
    states = {value.state for value in newest.values()}
    bad = bool(states & {"error", "failure"})
    some, headers = page_of(call, list(newest.values()))
    url = site.repo_api(repo, "commits", sha)
    return Response(
        body={
            "state": "failure" if bad else "success" if states == {"success"} else "pending",
            "statuses": [checks_views.simple_status(site, repo, value) for value in some],
            "sha": sha,
            "total_count": len(newest),
            "repository": account_views.simple_repository(site, repo),
            "commit_url": url,
            "url": f"{url}/status",
        },
        headers=headers,
    )


@routes.on("POST", REPO + "/statuses/{sha}", allow="statuses:write", takes="context description state target_url")
def create_status(call: Call) -> Response:
    """Add a status to a commit."""
    state = call.text("state", "CommitStatus")
    if state not in STATES:
        raise invalid("CommitStatus", "state", "inclusion")
    value = call.site.store.statuses.put(
        CommitStatus(
            id=call.site.store.new_id(),
            repo_id=call.repo.id,
            sha=commit_named(call, call.params["sha"]).sha,
            state=state,
            context=call.text("context", "CommitStatus", "default"),
            description=call.optional_text("description", "CommitStatus"),
            target_url=call.optional_text("target_url", "CommitStatus"),
            creator_id=call.user.id,
            created_at=call.site.now(),
        )
    )
    shown = checks_views.status(call.site, call.repo, value)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


def _statuses(call: Call, sha: str) -> list[CommitStatus]:
    """Newest first."""
    return [s for s in call.site.store.statuses if s.repo_id == call.repo.id and s.sha == sha][::-1]


@routes.on("GET", REPO + "/commits/{commit_sha}/pulls", allow="pull_requests:read")
def list_pulls_with_commit(call: Call) -> Response:
    """Open pull requests that bring a commit."""
    sha = commit_named(call, call.params["commit_sha"]).sha
    found = [
        issue
        for issue in call.site.store.issues_of(call.repo)
        if issue.pull is not None and sha in {commit.sha for commit in threads_views.pull_commits(call.repo, issue)}
    ]
    return listed(call, found, lambda issue: threads_views.pull_simple(call.site, call.repo, issue))


@routes.on("GET", REPO + "/commits/{commit_sha}/comments", allow=READ)
def list_commit_comments(call: Call) -> Response:
    """The comments on a commit."""
    sha = commit_named(call, call.params["commit_sha"]).sha
    found = [each for each in call.site.store.commit_comments if (each.repo_id, each.sha) == (call.repo.id, sha)]
    return listed(call, found, partial(git_views.commit_comment, call.site, call.repo))


@routes.on("POST", REPO + "/commits/{commit_sha}/comments", allow=READ, role="read", takes="body line path position")
def create_commit_comment(call: Call) -> Response:
    """Comment on a commit."""
    now = call.site.now()
    made = CommitComment(
        id=call.site.store.new_id(),
        repo_id=call.repo.id,
        sha=commit_named(call, call.params["commit_sha"]).sha,
        author_id=call.user.id,
        body=call.text("body", "CommitComment"),
        path=call.optional_text("path", "CommitComment"),
        position=call.body.get("position"),
        line=call.body.get("line"),
        created_at=now,
        updated_at=now,
    )
    if not made.body.strip():
        raise invalid("CommitComment", "body", "missing_field")
    shown = git_views.commit_comment(call.site, call.repo, call.site.store.commit_comments.put(made))
    webhooks.emit(call.site, "commit_comment", call.repo, call.user, {"action": "created", "comment": shown})
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("GET", COMMIT_COMMENT, allow=READ)
def one_commit_comment(call: Call) -> Response:
    """One comment on a commit."""
    found = call.row(call.site.store.commit_comments, "comment_id")
    return Response(body=git_views.commit_comment(call.site, call.repo, found))


@routes.on("GET", REPO + "/commits/{ref}", allow=READ)
def one_commit(call: Call) -> Response:
    """One commit with its files, or its difference as text."""
    value = commit_named(call, call.params["ref"])
    if call.wants("diff"):
        text = git_diff.unified(call.repo.path, git_views.first_parent(value), value.sha)
        return Response(body=text, media_type=DIFF)
    if call.wants("patch"):
        return Response(body=git_diff.mailbox(call.repo.path, "-1", value.sha), media_type=PATCH)
    if call.wants("sha"):
        return Response(body=value.sha, media_type="application/vnd.github.sha")
    return Response(body=git_views.commit_with_files(call.site, call.repo, value))


@routes.on("GET", GIT + "/matching-refs/{ref}", allow=READ)
def matching_refs(call: Call) -> Response:
    """References whose name starts so."""
    repo = _filled(call)
    return listed(
        call, git.refs(repo.path, f"refs/{call.params.get('ref', '')}"), lambda ref: git_views.ref(call.site, repo, ref)
    )


@routes.on("POST", GIT + "/tags", allow=WRITE, takes="message object tag tagger type")
def create_tag(call: Call) -> Response:
    """Make a tag object; a reference to it is made by another request."""
    path, kind, sha = _filled(call).path, call.text("type", "Tag"), call.text("object", "Tag")
    if git.kind_of(path, sha) != kind:
        raise unprocessable("Object does not exist")
    tagger = _person(call, call.body.get("tagger"), call.user)
    made = git.write_tag(
        path, sha=sha, kind=kind, name=call.text("tag", "Tag"), message=call.text("message", "Tag"), tagger=tagger
    )
    shown = git_views.tag(call.site, call.repo, made)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("GET", GIT + "/tags/{tag_sha}", allow=READ)
def one_tag(call: Call) -> Response:
    """One tag object."""
    sha = call.params["tag_sha"]
    if git.kind_of(_filled(call).path, sha) != "tag":
        raise not_found()
    return Response(body=git_views.tag(call.site, call.repo, sha))


@routes.on("GET", GIT + "/ref/{ref}", allow=READ)
def one_ref(call: Call) -> Response:
    """One reference."""
    found = or_404(git.ref(_filled(call).path, _full_name(call)))
    return Response(body=git_views.ref(call.site, call.repo, found))


@routes.on("POST", GIT + "/refs", allow=WRITE, takes="ref sha")
def create_ref(call: Call) -> Response:
    """Make a reference."""
    made = branches.create_ref(call, call.repo, call.text("ref", "Reference"), call.text("sha", "Reference"))
    shown = git_views.ref(call.site, call.repo, made)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("PATCH", GIT + "/refs/{ref}", allow=WRITE, takes="force sha")
def update_ref(call: Call) -> Response:
    """Move a reference, forward only unless `force`."""
    name, sha, path = _full_name(call), call.text("sha", "Reference"), call.repo.path
    old = git.ref(path, name)
    if old is None:
        raise unprocessable("Reference does not exist")
    if git.kind_of(path, sha) != "commit":
        raise unprocessable("Object does not exist")
    if not call.body.get("force", False) and not git.is_ancestor(path, old.sha, sha):
        raise unprocessable("Update is not a fast forward")
    branches.move_ref(call, call.repo, name, sha, old.sha)
    return Response(body=git_views.ref(call.site, call.repo, git.Ref(name=name, sha=sha)))


@routes.on("DELETE", GIT + "/refs/{ref}", allow=WRITE)
def delete_ref(call: Call) -> Response:
    """Delete a reference."""
    name = _full_name(call)
    if git.ref(call.repo.path, name) is None:
        raise unprocessable("Reference does not exist")
    if name == f"refs/heads/{call.repo.default_branch}":
        raise unprocessable("Cannot delete the default branch")
    git.delete_ref(call.repo.path, name)
    branches.sync(call.site, call.repo, call.user)
    return Response(status=204)


@routes.on("GET", GIT + "/commits/{commit_sha}", allow=READ)
def one_git_commit(call: Call) -> Response:
    """One commit object."""
    sha = call.params["commit_sha"]
    if git.kind_of(_filled(call).path, sha) != "commit":
        raise not_found()
    return Response(body=git_views.git_commit(call.site, call.repo, git.commit(call.repo.path, sha)))


@routes.on("POST", GIT + "/commits", allow=WRITE, takes="author committer message parents tree")
def create_git_commit(call: Call) -> Response:
    """Make a commit; without an author of its own it is the viewer's, and signed for Apps."""
    path, tree = _filled(call).path, call.text("tree", "Commit")
    message, parents = call.text("message", "Commit"), call.body.get("parents") or []
    if git.kind_of(path, tree) != "tree":
        raise unprocessable("Tree SHA does not exist")
    if any(git.kind_of(path, str(parent)) != "commit" for parent in parents):
        raise unprocessable("Parent SHA does not exist or is not a commit object")
    given = call.body.get("author") or call.body.get("committer")
    if given is None:
        sha = threads.write_commit(call.site, call.repo, tree=tree, parents=parents, message=message, author=call.user)
    else:
        author = _person(call, call.body.get("author"), call.user)
        committer = author if call.body.get("committer") is None else _person(call, call.body["committer"], call.user)
        sha = git.write_commit(path, tree=tree, parents=parents, message=message, author=author, committer=committer)
    shown = git_views.git_commit(call.site, call.repo, git.commit(path, sha))
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


def _person(call: Call, fields: Mapping[str, str] | None, default: User) -> git.Person:
    fields = fields or {}
    try:
        date = datetime.fromisoformat(fields["date"]) if fields.get("date") else call.site.now()
    except ValueError as error:
        raise unprocessable("date is not an ISO 8601 time") from error
    return git.Person(name=fields.get("name", default.login), email=fields.get("email", default.email), date=date)


@routes.on("GET", GIT + "/trees/{tree_sha}", allow=READ, takes="recursive")
def one_tree(call: Call) -> Response:
    """A tree, by its SHA or that of a commit or a branch's name."""
    sha = or_404(git.resolve(call.repo.path, call.params["tree_sha"], "tree"))
    entries = git.tree(call.repo.path, sha, recursive="recursive" in call.query)
    return Response(body=git_views.tree(call.site, call.repo, sha, entries))


@routes.on("POST", GIT + "/trees", allow=WRITE, takes="base_tree tree")
def create_tree(call: Call) -> Response:
    """Make a tree, on top of `base_tree` if given."""
    path, given = _filled(call).path, call.body.get("base_tree")
    base = None if given is None else git.resolve(path, str(given), "tree")
    if given is not None and base is None:
        raise unprocessable("base_tree is not a valid tree oid")
    given_entries = call.body.get("tree")
    if not isinstance(given_entries, list) or not given_entries or not all(isinstance(e, dict) for e in given_entries):
        raise unprocessable("Invalid tree info")
    changes = [_tree_change(call, entry) for entry in given_entries]
    try:
        sha = git.write_tree(path, base, changes)
    except git.HubGitError as error:
        raise unprocessable("Invalid tree info") from error
    shown = git_views.tree(call.site, call.repo, sha, git.tree(path, sha))
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


def _tree_change(call: Call, entry: Json) -> tuple[str, str | None, str]:
    name, mode = entry.get("path"), str(entry.get("mode", "100644"))
    if not isinstance(name, str) or not name or mode not in _KINDS:
        raise unprocessable("tree.path and tree.mode must be given, and a mode that git knows")
    if any(is_malformed(part) for part in name.split("/")):
        raise unprocessable("tree.path contains a malformed path component")
    if "content" in entry or entry.get("sha") is not None:
        workflow_files.demand_for_path(call.viewer, name)
    if "content" in entry:
        return mode, git.write_blob(call.repo.path, str(entry["content"]).encode()), name
    sha = entry.get("sha")
    if sha is not None and mode != "160000" and git.kind_of(call.repo.path, str(sha)) != _KINDS[mode]:
        raise unprocessable(f"tree.sha {sha} is not a valid {_KINDS[mode]}")
    if mode == "160000" and not (isinstance(sha, str) and _SHA.fullmatch(sha)):
        raise unprocessable(f"tree.sha {sha} is not a valid commit")
    return mode, None if sha is None else str(sha), name


def is_malformed(part: str) -> bool:
    """Whether git refuses a name in a tree, including names that some file systems read as `.git`."""
    return part in {"", ".", ".."} or "\0" in part or _GIT.fullmatch(part) is not None


@routes.on("GET", GIT + "/blobs/{file_sha}", allow=READ)
def one_blob(call: Call) -> Response:
    """One blob, in base64."""
    sha = call.params["file_sha"]
    if git.kind_of(_filled(call).path, sha) != "blob":
        raise not_found()
    content = git.blob(call.repo.path, sha)
    if call.wants("raw"):
        return Response(body=content, media_type=RAW)
    return Response(body=git_views.blob(call.site, call.repo, sha, content))


@routes.on("POST", GIT + "/blobs", allow=WRITE, takes="content encoding")
def create_blob(call: Call) -> Response:
    """Store a blob from text or base64."""
    text, path = call.text("content", "Blob"), _filled(call).path
    if call.body.get("encoding", "utf-8") == "base64":
        try:
            content = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise HubError(422, "content is not valid Base64") from error
    else:
        content = text.encode()
    sha = git.write_blob(path, content)
    url = call.site.repo_api(call.repo, "git", "blobs", sha)
    return Response(status=201, body={"sha": sha, "url": url}, headers={"Location": url})


def _filled(call: Call) -> Repo:
    """The repository; GitHub has no git database for one that nothing was pushed to.

    Raises:
        HubError: 409, it is empty.
    """
    repo = call.repo
    if not call.site.store.heads.get(repo.id) and not git.refs(repo.path, "refs/"):
        raise HubError(409, "Git Repository is empty.")
    return repo


def _full_name(call: Call) -> str:
    return f"refs/{call.params['ref']}"


@routes.on("GET", REPO + "/readme", allow=READ, takes="ref")
def readme(call: Call) -> Response:
    """The README in the root folder."""
    at, sha = _revision(call)
    found = or_404(git.readme_in(git.tree(call.repo.path, sha)))
    return _file(call, found, at)


@routes.on("GET", REPO + "/readme/{dir}", allow=READ, takes="ref")
def readme_of_folder(call: Call) -> Response:
    """The README in a folder."""
    at, sha = _revision(call)
    folder = call.params["dir"].strip("/")
    entry = or_404(git.entry(call.repo.path, sha, folder))
    found = or_404(git.readme_in(git.tree(call.repo.path, entry.sha)) if entry.type == "tree" else None)
    return _file(call, replace(found, path=f"{folder}/{found.path}"), at)


@routes.on("GET", REPO + "/contents/{path}", allow=READ, takes="ref")
def contents(call: Call) -> Response:
    """A file in base64 (or as it is, for the raw media type), a folder's entries, a link, or a submodule."""
    at, sha = _revision(call)
    path = call.params["path"].strip("/")
    if not path:
        return _folder(call, git.tree(call.repo.path, sha), "", at)
    entry = or_404(git.entry(call.repo.path, sha, path))
    if entry.type == "tree":
        return _folder(call, git.tree(call.repo.path, entry.sha), f"{path}/", at)
    if entry.type == "commit":
        return Response(body=git_views.content_submodule(call.site, call.repo, entry, at))
    if entry.mode == LINK:
        return _link(call, entry, sha, at)
    return _file(call, entry, at)


@routes.on("PUT", REPO + "/contents/{path}", allow=WRITE, takes="branch content message sha")
def put_contents(call: Call) -> Response:
    """Make or change a file by a commit; to change one takes the blob that it replaces."""
    encoded = "".join(call.text("content", "Content").split())
    try:
        content = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise unprocessable("content is not valid Base64") from error
    there = _replaced(call)
    sha = git.write_blob(call.repo.path, content)
    mode = there.mode if there is not None else "100644"
    commit = _commit(call, (mode, sha, call.params["path"]))
    made = git.entry(call.repo.path, commit.sha, call.params["path"])
    assert made is not None  # noqa: S101 - it was just committed, under the hub's lock
    shown = git_views.content(call.site, call.repo, made, _branch(call))
    body = {"content": shown, "commit": git_views.git_commit(call.site, call.repo, commit)}
    return Response(status=201 if there is None else 200, body=body)


@routes.on("DELETE", REPO + "/contents/{path}", allow=WRITE, takes="branch message sha")
def delete_contents(call: Call) -> Response:
    """Delete a file by a commit."""
    if _replaced(call) is None:
        raise not_found()
    commit = _commit(call, ("0", None, call.params["path"]))
    return Response(body={"content": None, "commit": git_views.git_commit(call.site, call.repo, commit)})


def _revision(call: Call) -> tuple[str, str]:
    at = call.query.get("ref", call.repo.default_branch)
    sha = git.resolve(call.repo.path, at)
    if sha is None:
        raise HubError(
            404, "This repository is empty." if not git.refs(call.repo.path) else f"No commit found for the ref {at}"
        )
    return at, sha


def _folder(call: Call, entries: list[git.TreeEntry], prefix: str, at: str) -> Response:
    placed = [replace(entry, path=prefix + entry.path) for entry in entries]
    return Response(body=[git_views.content_entry(call.site, call.repo, entry, at) for entry in placed])


def _file(call: Call, entry: git.TreeEntry, at: str) -> Response:
    """A file; over 1 MB only the raw media type has its content, over 100 MB nothing: "Get repository content"."""
    size = entry.size or 0
    if size > _MOST_SHOWN:
        error = {"resource": "Blob", "field": "data", "code": "too_large"}
        raise HubError(403, "This API returns blobs up to 100 MB in size.", errors=(error,))
    if call.wants("raw"):
        return Response(body=git.blob(call.repo.path, entry.sha), media_type=RAW)
    return Response(body=git_views.content_file(call.site, call.repo, entry, at, with_content=size <= _MOST_IN_JSON))


def _link(call: Call, entry: git.TreeEntry, sha: str, at: str) -> Response:
    """The file that a link leads to, when it is one of the repository; else the link itself."""
    target = git.blob(call.repo.path, entry.sha).decode(errors="replace")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), target))
    found = None if place.startswith(("/", "../")) else git.entry(call.repo.path, sha, place)
    if found is not None and found.type == "blob" and found.mode != LINK:
        return _file(call, replace(found, path=entry.path), at)
    return Response(body=git_views.content_link(call.site, call.repo, entry, at, target=target))


def _branch(call: Call) -> str:
    return call.text("branch", "Content", call.repo.default_branch)


def _replaced(call: Call) -> git.TreeEntry | None:
    """The file that is there, when the request names its blob as GitHub wants it.

    Raises:
        HubError: 409 or 422; it names another one, or none.
    """
    head = git.resolve(call.repo.path, f"refs/heads/{_branch(call)}")
    there = None if head is None else git.entry(call.repo.path, head, call.params["path"])
    given = call.optional_text("sha", "Content")
    if there is not None and given is None:
        raise unprocessable('Invalid request.\n\n"sha" wasn\'t supplied.')
    if there is not None and given != there.sha:
        raise HubError(409, f"{call.params['path']} does not match {given}")
    return there


def _commit(call: Call, change: tuple[str, str | None, str]) -> git.Commit:
    if any(is_malformed(part) for part in change[2].split("/")):
        raise unprocessable("path contains a malformed path component")
    if change[1] is not None:
        workflow_files.demand_for_path(call.viewer, change[2])
    repo, name = call.repo, f"refs/heads/{_branch(call)}"
    head = git.resolve(repo.path, name)
    if head is None and git.refs(repo.path):
        raise HubError(404, f"Branch {_branch(call)} not found")
    tree = git.write_tree(repo.path, head, [change])
    parents = [head] if head else []
    message = call.text("message", "Content")
    sha = threads.write_commit(call.site, repo, tree=tree, parents=parents, message=message, author=call.user)
    git.update_ref(repo.path, name, sha, head or git.NULL_SHA)
    branches.sync(call.site, repo, call.user)
    return git.commit(repo.path, sha)
