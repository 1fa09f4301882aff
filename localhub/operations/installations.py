"""Install, suspend and remove an App on an account; each is called under the site's lock."""

from __future__ import annotations

from dataclasses import replace

from localhub.operations import webhooks
from localhub.state.model import App, Installation, Permissions, Repo, User
from localhub.state.site import Site


def install(site: Site, app: App, repo: Repo, sender: User) -> int:
    """Install an App on a repository, or widen its installation on the account; returns the installation's id."""
    store = site.store
    old = next((i for i in store.installations if (i.app_id, i.account) == (app.id, repo.owner)), None)
    if old is None:
        new = Installation(
            id=store.new_id(),
            app_id=app.id,
            account=repo.owner,
            repo_ids=(repo.id,),
            permissions=app.permissions,
            created_at=site.now(),
        )
        webhooks.installation(site, store.installations.put(new), sender, "created")
        return new.id
    if repo.id not in old.repo_ids:
        wider = store.installations.put(replace(old, repo_ids=(*old.repo_ids, repo.id)))
        webhooks.installation_repositories(site, wider, sender, "added", repo)
    return old.id


def uninstall(site: Site, installation_id: int, sender: User) -> None:
    """Remove an installation; its tokens stop working at once."""
    gone = site.store.installations[installation_id]
    site.store.installations.remove(installation_id)
    site.store.tokens = {
        key: kept for key, kept in site.store.tokens.items() if kept.installation_id != installation_id
    }
    webhooks.installation(site, gone, sender, "deleted")


def suspend(site: Site, installation_id: int, sender: User, *, suspended: bool) -> Installation:
    """Suspend an installation, or let it work again; a suspended one gets no events but these."""
    changed = site.store.installations.put(
        replace(
            site.store.installations[installation_id],
            suspended_at=site.now() if suspended else None,
            suspended_by=sender.id if suspended else None,
        )
    )
    webhooks.installation(site, changed, sender, "suspend" if suspended else "unsuspend")
    return changed


def permit(site: Site, installation_id: int, permissions: Permissions) -> None:
    """Let an installation do only this; its tokens lose the rest at once."""
    held = {"metadata": "read", **permissions}
    installation = site.store.installations[installation_id]
    site.store.installations.put(replace(installation, permissions=held))
    for token in tuple(site.store.tokens.values()):
        if token.installation_id == installation_id:
            # In the alphabet as in might, `read` comes before `write`.
            kept = {name: min(level, held[name]) for name, level in token.permissions.items() if name in held}
            site.store.tokens[token.value] = replace(token, permissions=kept)


def leave(site: Site, installation: Installation, repo: Repo, sender: User) -> Installation:
    """Take a repository out of an installation; tokens lose it at once."""
    left = tuple(number for number in installation.repo_ids if number != repo.id)
    narrower = site.store.installations.put(replace(installation, repo_ids=left))
    for token in tuple(site.store.tokens.values()):
        if token.installation_id == installation.id:
            kept = tuple(number for number in token.repo_ids if number != repo.id)
            site.store.tokens[token.value] = replace(token, repo_ids=kept)
    webhooks.installation_repositories(site, narrower, sender, "removed", repo)
    return narrower
