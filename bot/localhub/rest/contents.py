"""Files and folders at a revision."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from bot.localhub import git, views_git
from bot.localhub.errors import HubError, not_found
from bot.localhub.routing import RAW, Answer, Call, Routes
from bot.localhub.views_git import LINK

routes = Routes()
_MOST_IN_JSON = 1024**2
_MOST_SHOWN = 100 * 1024**2


@routes.on("GET", "/repos/{owner}/{repo}/readme", allow="contents:read")
def readme(call: Call) -> Answer:
    """The README in the root folder."""
    at, sha = _revision(call)
    found = readme_in(git.tree(call.repo.path, sha))
    if found is None:
        raise not_found()
    return _file(call, found, at)


def readme_in(entries: list[git.Entry]) -> git.Entry | None:
    """The file that GitHub would show below a folder's list."""
    return next((e for e in entries if e.type == "blob" and e.path.lower().partition(".")[0] == "readme"), None)


@routes.on("GET", "/repos/{owner}/{repo}/contents/{path}", allow="contents:read")
def contents(call: Call) -> Answer:
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
        return Answer(body=views_git.content_submodule(call.site, call.repo, entry, at))
    if entry.mode == LINK:
        return _link(call, entry, sha, at)
    return _file(call, entry, at)


def _file(call: Call, entry: git.Entry, at: str) -> Answer:
    """A file; over 1 MB only the raw media type has its content, over 100 MB nothing: "Get repository content"."""
    size = entry.size or 0
    if size > _MOST_SHOWN:
        error = {"resource": "Blob", "field": "data", "code": "too_large"}
        raise HubError(403, "This API returns blobs up to 100 MB in size.", errors=(error,))
    if call.wants("raw"):
        return Answer(body=git.blob(call.repo.path, entry.sha), media_type=RAW)
    return Answer(body=views_git.content_file(call.site, call.repo, entry, at, shown=size <= _MOST_IN_JSON))


def _link(call: Call, entry: git.Entry, sha: str, at: str) -> Answer:
    """The file that a link leads to, when it is one of the repository; else the link itself."""
    target = git.blob(call.repo.path, entry.sha).decode(errors="replace")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), target))
    found = None if place.startswith(("/", "../")) else git.entry(call.repo.path, sha, place)
    if found is not None and found.type == "blob" and found.mode != LINK:
        return _file(call, replace(found, path=entry.path), at)
    return Answer(body=views_git.content_link(call.site, call.repo, entry, at, target=target))


def _revision(call: Call) -> tuple[str, str]:
    at = call.query.get("ref", call.repo.default_branch)
    sha = git.resolve(call.repo.path, at)
    if sha is None:
        raise HubError(
            404, "This repository is empty." if not git.refs(call.repo.path) else f"No commit found for the ref {at}"
        )
    return at, sha


def _folder(call: Call, entries: list[git.Entry], prefix: str, at: str) -> Answer:
    placed = [replace(entry, path=prefix + entry.path) for entry in entries]
    return Answer(body=[views_git.content_entry(call.site, call.repo, entry, at) for entry in placed])
