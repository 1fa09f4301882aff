"""The git database: references, commits, trees, blobs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime

from localhub.api.errors import HubError, not_found, unprocessable
from localhub.api.routing import RAW, Call, Response, Routes, listed
from localhub.git import plumbing as git
from localhub.operations import branches, refs, threads, workflow_guard
from localhub.state.model import Repo, User
from localhub.state.site import Json
from localhub.views import git as git_views

routes = Routes()
READ, WRITE = "contents:read", "contents:write"
BASE = "/repos/{owner}/{repo}/git"


_KINDS = {"100644": "blob", "100755": "blob", "120000": "blob", "040000": "tree", "160000": "commit"}
_SHA = re.compile(r"[0-9a-f]{40}")
_GIT = re.compile(r"(\.git|git~1)[ .]*", re.IGNORECASE)


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


@routes.on("GET", BASE + "/matching-refs/{ref}", allow=READ)
def matching_refs(call: Call) -> Response:
    """References whose name starts so."""
    repo = _filled(call)
    return listed(call, git.refs(repo.path, _full_name(call)), lambda ref: git_views.ref(call.site, repo, ref))


@routes.on("GET", BASE + "/ref/{ref}", allow=READ)
def one_ref(call: Call) -> Response:
    """One reference."""
    found = git.ref(_filled(call).path, _full_name(call))
    if found is None:
        raise not_found()
    return Response(body=git_views.ref(call.site, call.repo, found))


@routes.on("POST", BASE + "/refs", allow=WRITE)
def create_ref(call: Call) -> Response:
    """Make a reference."""
    made = refs.create(call, call.repo, call.text("ref", "Reference"), call.text("sha", "Reference"))
    shown = git_views.ref(call.site, call.repo, made)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("PATCH", BASE + "/refs/{ref}", allow=WRITE)
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
    refs.move(call, call.repo, name, sha, old.sha)
    return Response(body=git_views.ref(call.site, call.repo, git.Ref(name=name, sha=sha, type="commit")))


@routes.on("DELETE", BASE + "/refs/{ref}", allow=WRITE)
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


@routes.on("GET", BASE + "/commits/{commit_sha}", allow=READ)
def one_commit(call: Call) -> Response:
    """One commit object."""
    sha = call.params["commit_sha"]
    if git.kind_of(_filled(call).path, sha) != "commit":
        raise not_found()
    return Response(body=git_views.git_commit(call.site, call.repo, git.commit(call.repo.path, sha)))


@routes.on("POST", BASE + "/commits", allow=WRITE)
def create_commit(call: Call) -> Response:
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


def _person(call: Call, given: Mapping[str, str] | None, default: User) -> git.Person:
    given = given or {}
    try:
        date = datetime.fromisoformat(given["date"]) if given.get("date") else call.site.now()
    except ValueError as error:
        raise unprocessable("date is not an ISO 8601 time") from error
    return git.Person(name=given.get("name", default.login), email=given.get("email", default.email), date=date)


@routes.on("GET", BASE + "/trees/{tree_sha}", allow=READ)
def one_tree(call: Call) -> Response:
    """A tree, by its SHA or that of a commit or a branch's name."""
    sha = git.resolve(call.repo.path, call.params["tree_sha"], "tree")
    if sha is None:
        raise not_found()
    entries = git.tree(call.repo.path, sha, recursive="recursive" in call.query)
    return Response(body=git_views.tree(call.site, call.repo, sha, entries))


@routes.on("POST", BASE + "/trees", allow=WRITE)
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
        workflow_guard.demand_for_path(call.viewer, name)
    if "content" in entry:
        return mode, git.write_blob(call.repo.path, str(entry["content"]).encode()), name
    sha = entry.get("sha")
    if sha is not None and mode != "160000" and git.kind_of(call.repo.path, str(sha)) != _KINDS[mode]:
        raise unprocessable(f"tree.sha {sha} is not a valid {_KINDS[mode]}")
    if mode == "160000" and not (isinstance(sha, str) and _SHA.fullmatch(sha)):
        raise unprocessable(f"tree.sha {sha} is not a valid commit")
    return mode, None if sha is None else str(sha), name


def is_malformed(part: str) -> bool:
    """Whether git refuses a name in a tree: what some file system reads as `.git` counts as that, too."""
    return part in {"", ".", ".."} or "\0" in part or _GIT.fullmatch(part) is not None


@routes.on("GET", BASE + "/blobs/{file_sha}", allow=READ)
def one_blob(call: Call) -> Response:
    """One blob, in base64."""
    sha = call.params["file_sha"]
    if git.kind_of(_filled(call).path, sha) != "blob":
        raise not_found()
    content = git.blob(call.repo.path, sha)
    if call.wants("raw"):
        return Response(body=content, media_type=RAW)
    return Response(body=git_views.blob(call.site, call.repo, sha, content))


@routes.on("POST", BASE + "/blobs", allow=WRITE)
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
    url = git_views.api(call.site, call.repo, "git", "blobs", sha)
    return Response(status=201, body={"sha": sha, "url": url}, headers={"Location": url})
