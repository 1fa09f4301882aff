"""Files and folders at a revision."""

from __future__ import annotations

from bot.localhub import git, views_git
from bot.localhub.errors import HubError, not_found
from bot.localhub.routing import Answer, Call, Routes

routes = Routes()


@routes.on("GET", "/repos/{owner}/{repo}/readme", allow="contents:read")
def readme(call: Call) -> Answer:
    """The README in the root folder."""
    at, sha = _revision(call)
    found = readme_in(git.tree(call.repo.path, sha))
    if found is None:
        raise not_found()
    return Answer(body=views_git.content_file(call.site, call.repo, found, at))


def readme_in(entries: list[git.Entry]) -> git.Entry | None:
    """The file that GitHub would show below a folder's list."""
    return next((e for e in entries if e.type == "blob" and e.path.lower().partition(".")[0] == "readme"), None)


@routes.on("GET", "/repos/{owner}/{repo}/contents/{path}", allow="contents:read")
def contents(call: Call) -> Answer:
    """A file in base64 (or as it is, for the raw media type), or a folder's entries."""
    at, sha = _revision(call)
    path = call.params["path"].strip("/")
    if not path:
        return _folder(call, git.tree(call.repo.path, sha), "", at)
    entry = next((e for e in git.tree(call.repo.path, sha, recursive=True) if e.path == path), None)
    if entry is None:
        raise not_found()
    if entry.type == "tree":
        return _folder(call, git.tree(call.repo.path, entry.sha), f"{path}/", at)
    if "raw" in call.accept:
        return Answer(body=git.blob(call.repo.path, entry.sha), media_type="application/vnd.github.raw")
    return Answer(body=views_git.content_file(call.site, call.repo, entry, at))


def _revision(call: Call) -> tuple[str, str]:
    at = call.query.get("ref", call.repo.default_branch)
    sha = git.resolve(call.repo.path, at)
    if sha is None:
        raise HubError(
            404, "This repository is empty." if not git.refs(call.repo.path) else f"No commit found for the ref {at}"
        )
    return at, sha


def _folder(call: Call, entries: list[git.Entry], prefix: str, at: str) -> Answer:
    placed = [git.Entry(mode=e.mode, type=e.type, sha=e.sha, size=e.size, path=prefix + e.path) for e in entries]
    return Answer(body=[views_git.content(call.site, call.repo, entry, at) for entry in placed])
