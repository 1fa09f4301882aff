"""Files and folders at a revision."""

from __future__ import annotations

import base64
import posixpath
from dataclasses import replace

from localhub.api.errors import HubError, not_found, unprocessable
from localhub.api.routing import RAW, Call, Response, Routes
from localhub.git import plumbing as git
from localhub.operations import branches, threads, workflow_guard
from localhub.rest import git_data
from localhub.views import git as git_views
from localhub.views.git import LINK

routes = Routes()
_MOST_IN_JSON = 1024**2
_MOST_SHOWN = 100 * 1024**2


@routes.on("GET", "/repos/{owner}/{repo}/readme", allow="contents:read")
def readme(call: Call) -> Response:
    """The README in the root folder."""
    at, sha = _revision(call)
    found = git.readme_in(git.tree(call.repo.path, sha))
    if found is None:
        raise not_found()
    return _file(call, found, at)


@routes.on("GET", "/repos/{owner}/{repo}/contents/{path}", allow="contents:read")
def contents(call: Call) -> Response:
    """A file in base64 (or as it is, for the raw media type), a folder's entries, a link, or a submodule."""
    at, sha = _revision(call)
    path = call.params["path"].strip("/")
    if not path:
        return _folder(call, git.tree(call.repo.path, sha), "", at)
    entry = git.entry(call.repo.path, sha, path)
    if entry is None:
        raise not_found()
    if entry.type == "tree":
        return _folder(call, git.tree(call.repo.path, entry.sha), f"{path}/", at)
    if entry.type == "commit":
        return Response(body=git_views.content_submodule(call.site, call.repo, entry, at))
    if entry.mode == LINK:
        return _link(call, entry, sha, at)
    return _file(call, entry, at)


@routes.on("PUT", "/repos/{owner}/{repo}/contents/{path}", allow="contents:write")
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


@routes.on("DELETE", "/repos/{owner}/{repo}/contents/{path}", allow="contents:write")
def delete_contents(call: Call) -> Response:
    """Delete a file by a commit."""
    if _replaced(call) is None:
        raise not_found()
    commit = _commit(call, ("0", None, call.params["path"]))
    return Response(body={"content": None, "commit": git_views.git_commit(call.site, call.repo, commit)})


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
    if any(git_data.is_malformed(part) for part in change[2].split("/")):
        raise unprocessable("path contains a malformed path component")
    if change[1] is not None:
        workflow_guard.demand_for_path(call.viewer, change[2])
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


def _file(call: Call, entry: git.TreeEntry, at: str) -> Response:
    """A file; over 1 MB only the raw media type has its content, over 100 MB nothing: "Get repository content"."""
    size = entry.size or 0
    if size > _MOST_SHOWN:
        error = {"resource": "Blob", "field": "data", "code": "too_large"}
        raise HubError(403, "This API returns blobs up to 100 MB in size.", errors=(error,))
    if call.wants("raw"):
        return Response(body=git.blob(call.repo.path, entry.sha), media_type=RAW)
    return Response(body=git_views.content_file(call.site, call.repo, entry, at, shown=size <= _MOST_IN_JSON))


def _link(call: Call, entry: git.TreeEntry, sha: str, at: str) -> Response:
    """The file that a link leads to, when it is one of the repository; else the link itself."""
    target = git.blob(call.repo.path, entry.sha).decode(errors="replace")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), target))
    found = None if place.startswith(("/", "../")) else git.entry(call.repo.path, sha, place)
    if found is not None and found.type == "blob" and found.mode != LINK:
        return _file(call, replace(found, path=entry.path), at)
    return Response(body=git_views.content_link(call.site, call.repo, entry, at, target=target))


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
