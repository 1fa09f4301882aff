"""Releases: a tag with words beside it. The hub keeps no files that belong to one."""

from __future__ import annotations

from localhub.operations.webhooks import emit
from localhub.state.model import Repo, User
from localhub.state.releases import Release
from localhub.state.site import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views


def of_repo(site: Site, repo: Repo, *, drafts: bool) -> list[Release]:
    """A repository's releases, newest first."""
    found = [each for each in site.store.releases if each.repo_id == repo.id and (drafts or not each.draft)]
    return found[::-1]


def latest(site: Site, repo: Repo) -> Release | None:
    """The newest release that is neither a draft nor a prerelease."""
    return next((each for each in of_repo(site, repo, drafts=False) if not each.prerelease), None)


def announce(site: Site, value: Release, sender: User, *actions: str) -> None:
    """Tell Apps of a release; of a draft nobody is told."""
    repo = site.store.repos[value.repo_id]
    for action in actions if not value.draft else ():
        emit(site, "release", repo, sender, {"action": action, "release": view(site, repo, value)})


def view(site: Site, repo: Repo, value: Release) -> Json:
    """`release`."""
    url = site.api("repos", repo.owner, repo.name, "releases", value.id)
    return {
        "id": value.id,
        "node_id": node_id("Release", value.id),
        "url": url,
        "html_url": site.html(repo.owner, repo.name, "releases", "tag", value.tag),
        "assets_url": f"{url}/assets",
        "upload_url": f"{url}/assets{{?name,label}}",
        "tarball_url": site.api("repos", repo.owner, repo.name, "tarball", value.tag),
        "zipball_url": site.api("repos", repo.owner, repo.name, "zipball", value.tag),
        "tag_name": value.tag,
        "target_commitish": value.target,
        "name": value.name,
        "body": value.body,
        "draft": value.draft,
        "prerelease": value.prerelease,
        "immutable": False,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "published_at": iso_or_none(value.published_at),
        "author": account_views.user_by_id(site, value.author_id),
        "assets": [],
    }
