"""Releases, without their files."""

from __future__ import annotations

from dataclasses import replace

from localhub.api.auth import can_write
from localhub.api.errors import HubError, not_found, unprocessable
from localhub.api.routing import Call, Response, Routes, listed
from localhub.git import plumbing as git
from localhub.operations import refs, releases
from localhub.state.model import Repo
from localhub.state.releases import Release

routes = Routes()
READ, WRITE = "contents:read", "contents:write"
BASE = "/repos/{owner}/{repo}/releases"
ONE = BASE + "/{release_id}"
RESOURCE = "Release"


def _shown(call: Call, value: Release | None, status: int = 200) -> Response:
    if value is None:
        raise not_found()
    shown = releases.view(call.site, call.repo, value)
    return Response(status=status, body=shown, headers={"Location": shown["url"]} if status == 201 else {})  # noqa: PLR2004 - Created


def _known(call: Call) -> list[Release]:
    return releases.of_repo(call.site, call.repo, drafts=can_write(call.site, call.viewer, call.repo))


def _one(call: Call) -> Release:
    found = next((each for each in _known(call) if each.id == call.number("release_id")), None)
    if found is None:
        raise not_found()
    return found


@routes.on("GET", BASE, allow=READ)
def list_releases(call: Call) -> Response:
    """Releases, newest first; drafts for those who may write."""
    return listed(call, _known(call), lambda value: releases.view(call.site, call.repo, value))


@routes.on("GET", BASE + "/latest", allow=READ)
def latest(call: Call) -> Response:
    """The newest release that is neither a draft nor a prerelease."""
    return _shown(call, releases.latest(call.site, call.repo))


@routes.on("GET", BASE + "/tags/{tag}", allow=READ)
def by_tag(call: Call) -> Response:
    """The release of a tag."""
    found = (each for each in releases.of_repo(call.site, call.repo, drafts=False) if each.tag == call.params["tag"])
    return _shown(call, next(found, None))


@routes.on("GET", ONE, allow=READ)
def one(call: Call) -> Response:
    """One release."""
    return _shown(call, _one(call))


@routes.on("POST", BASE, allow=WRITE)
def create(call: Call) -> Response:
    """Make a release, and its tag unless that is there or the release is a draft."""
    tag, site = call.text("tag_name", RESOURCE), call.site
    if any(each.tag == tag for each in _known(call) if not each.draft):
        raise HubError(
            422, "Validation Failed", errors=({"resource": RESOURCE, "code": "already_exists", "field": "tag_name"},)
        )
    made = Release(
        id=site.store.new_id(),
        repo_id=call.repo.id,
        author_id=call.user.id,
        tag=tag,
        target=call.text("target_commitish", RESOURCE, call.repo.default_branch),
        name=call.text("name", RESOURCE, ""),
        body=call.text("body", RESOURCE, ""),
        draft=bool(call.body.get("draft", False)),
        prerelease=bool(call.body.get("prerelease", False)),
        created_at=site.now(),
        updated_at=site.now(),
        published_at=None,
    )
    return _shown(call, _kept(call, made, was_draft=True), 201)


@routes.on("PATCH", ONE, allow=WRITE)
def edit(call: Call) -> Response:
    """Change a release; a draft that no longer is one is published."""
    old = _one(call)
    new = replace(
        old,
        tag=call.text("tag_name", RESOURCE, old.tag),
        target=call.text("target_commitish", RESOURCE, old.target),
        name=call.text("name", RESOURCE, old.name),
        body=call.text("body", RESOURCE, old.body),
        draft=bool(call.body.get("draft", old.draft)),
        prerelease=bool(call.body.get("prerelease", old.prerelease)),
    )
    return _shown(call, _kept(call, new, was_draft=old.draft))


def _kept(call: Call, value: Release, *, was_draft: bool) -> Release:
    published = was_draft and not value.draft
    if not value.draft:
        _tag(call, call.repo, value)
    now = call.site.now()
    kept = replace(value, updated_at=now, published_at=now if published else value.published_at)
    call.site.store.releases.put(kept)
    releases.announce(call.site, kept, call.user, *(("created", "published", "released") if published else ("edited",)))
    return kept


def _tag(call: Call, repo: Repo, value: Release) -> None:
    if git.ref(repo.path, f"refs/tags/{value.tag}") is not None:
        return
    sha = git.resolve(repo.path, value.target)
    if sha is None:
        raise unprocessable("Release.target_commitish is invalid")
    refs.create(call, repo, f"refs/tags/{value.tag}", sha)


@routes.on("DELETE", ONE, allow=WRITE)
def delete(call: Call) -> Response:
    """Remove a release; its tag stays."""
    old = _one(call)
    call.site.store.releases.remove(old.id)
    releases.announce(call.site, old, call.user, "deleted")
    return Response(status=204)
