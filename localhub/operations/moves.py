"""Rename, transfer and archive a repository; each is called under the site's lock."""

from __future__ import annotations

from dataclasses import replace

from localhub.operations import creation, installations, webhooks
from localhub.state.model import Repo, User
from localhub.state.site import Json, Site
from localhub.views import accounts as account_views


def rename(site: Site, repo: Repo, name: str, sender: User) -> Repo:
    """Give a repository another name; the old one leads to it as long as no other repository takes it.

    Raises:
        ValueError: the owner has a repository of this name already.
    """
    renamed = _moved(site, repo, replace(repo, name=name))
    changes = {"changes": {"repository": {"name": {"from": repo.name}}}}
    webhooks.emit(site, "repository", renamed, sender, {"action": "renamed", **changes})
    return renamed


def transfer(site: Site, repo: Repo, new_owner: str, sender: User) -> Repo:
    """Give a repository to another account; the installations on the old one lose it.

    Raises:
        ValueError: the new owner has a repository of this name already.
    """
    old = account_views.owner_of(site, repo)
    owner = creation.user(site, new_owner, kind="Organization")
    moved = _moved(site, repo, replace(repo, owner=owner.login))
    whose = (
        {"organization": account_views.organization(site, old)}
        if old.type == "Organization"
        else {"user": account_views.simple_user(site, old)}
    )
    payload: Json = {"action": "transferred", "changes": {"owner": {"from": whose}}}
    webhooks.emit(site, "repository", moved, sender, payload)
    for installation in site.store.installations:
        if installation.account == old.login and moved.id in installation.repo_ids:
            installations.leave(site, installation, moved, sender)
    return moved


def _moved(site: Site, old: Repo, new: Repo) -> Repo:
    if site.store.repo(new.full_name) is not None:
        raise ValueError(f"there is a repository {new.full_name} already; choose another name")
    site.store.former_names[old.full_name.lower()] = old.id
    return site.store.repos.put(new)


def archive(site: Site, repo: Repo, sender: User, *, archived: bool) -> Repo:
    """Make a repository read-only, or writable again."""
    changed = site.store.repos.put(replace(repo, archived=archived))
    webhooks.emit(site, "repository", changed, sender, {"action": "archived" if archived else "unarchived"})
    return changed
