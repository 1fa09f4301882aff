"""Accounts, repositories and Apps: create them, install Apps, and rename, transfer or archive repositories.

Every function is called under the site's lock.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from localhub.git import plumbing as git
from localhub.operations import branches, threads, webhooks, workflow_files
from localhub.state.model import App, Installation, Permissions, Repo, User
from localhub.state.store import Json, Site
from localhub.views import accounts as account_views

INITIAL_BRANCH = "main"
_HEADS = "refs/heads/"
_FULL_NAME = re.compile(r"[A-Za-z0-9-]+/(?!\.\.?$)[A-Za-z0-9._-]+")
APP_PERMISSIONS: Permissions = {
    "actions": "read",
    "checks": "write",
    "contents": "write",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
    "statuses": "write",
    "workflows": "write",
}
APP_EVENTS = (
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "push",
    "repository",
    "workflow_run",
)
"""The events that an App like ours subscribes to by default."""


def ensure_user(
    site: Site, login: str, *, name: str = "", kind: Literal["User", "Organization", "Bot"] = "User"
) -> User:
    """The account with this login, made if need be; all but organisations get a token."""
    return site.store.user(login) or site.store.users.put(
        User(
            id=site.store.new_id(),
            login=login,
            type=kind,
            name=name or login,
            token="" if kind == "Organization" else f"ghp_{secrets.token_hex(18)}",
            created_at=site.now(),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRepo:
    """A repository to create; see `LocalHub.add_repo`."""

    full_name: str
    private: bool
    source: Path | None
    fork_of: Repo | None
    description: str


def create_repo(site: Site, draft: NewRepo) -> Repo:
    """Make a repository with the branches and tags of its source.

    Raises:
        ValueError: the name is invalid or taken, or the source is not a repository.
    """
    if not _FULL_NAME.fullmatch(draft.full_name):
        raise ValueError(f"{draft.full_name!r} is not the name of a repository; write OWNER/NAME")
    account, _, name = draft.full_name.partition("/")
    if site.store.repo(draft.full_name) is not None:
        raise ValueError(f"there is a repository {draft.full_name} already; choose another name")
    owner = ensure_user(site, account, kind="Organization")
    path = _free_path(site.directory / owner.login, name)
    fork, now = draft.fork_of, site.now()
    origin = fork.path if fork else draft.source
    try:
        branch = fork.default_branch if fork else _branch_of(draft.source)
        git.create(path, branch)
        if origin is not None:
            git.fetch_all(path, origin)
    except git.HubGitError as error:
        raise ValueError(f"{origin} cannot be copied ({error})") from error
    workflow_files.install_hook(path)
    made = Repo(
        id=site.store.new_id(),
        owner=owner.login,
        name=name,
        path=path,
        private=draft.private,
        default_branch=branch,
        description=draft.description,
        fork_of=fork.id if fork else None,
        created_at=now,
        pushed_at=now,
    )
    site.store.heads[made.id] = branches.heads_of(made)
    if fork is None:  # as if pushed
        branches.record_activities(site, made, owner, {}, site.store.heads[made.id])
    return site.store.repos.put(made)


def _free_path(folder: Path, name: str) -> Path:
    """A path for a new repository: a renamed one keeps the path of its first name."""
    tried = (folder / (f"{name}.git" if again == 0 else f"{name}-{again}.git") for again in itertools.count())
    return next(path for path in tried if not path.exists())


def _branch_of(source: Path | None) -> str:
    """The branch that HEAD names. A bundle keeps only HEAD's commit; the branch is one with the same commit."""
    if source is None:
        return INITIAL_BRANCH
    if source.is_file():
        listed = git.text(source.parent, "bundle", "list-heads", str(source.resolve())).splitlines()
        commits = {name: sha for sha, _, name in (line.partition(" ") for line in listed)}
        same = [name.removeprefix(_HEADS) for name, sha in commits.items() if sha == commits.get("HEAD", sha)]
        found = [name for name in same if f"{_HEADS}{name}" in commits]
        return INITIAL_BRANCH if INITIAL_BRANCH in found or not found else found[0]
    try:
        # Not `--short`: that says `heads/main` where a tag is called the same.
        return git.text(source, "symbolic-ref", "HEAD").removeprefix(_HEADS)
    except git.HubGitError:  # a detached HEAD names no branch
        return INITIAL_BRANCH


def commit_files(
    site: Site, repo: Repo, files: Mapping[str, str | bytes | None], *, message: str, author: str, branch: str
) -> str:
    """Commit files to a branch as if pushed and return the SHA; None deletes a file."""
    head = git.resolve(repo.path, f"{_HEADS}{branch}") or git.resolve(repo.path, f"{_HEADS}{repo.default_branch}")
    changes = [(*_stored(repo, content), path) for path, content in files.items()]
    tree = git.write_tree(repo.path, head, changes)
    pusher = threads.require_user(site, author)
    parents = [head] if head else []
    sha = threads.write_commit(site, repo, tree=tree, parents=parents, message=message, author=pusher)
    git.update_ref(repo.path, f"refs/heads/{branch}", sha)
    branches.sync(site, repo, pusher)
    return sha


def _stored(repo: Repo, content: str | bytes | None) -> tuple[str, str | None]:
    if content is None:
        return "0", None
    return "100644", git.write_blob(repo.path, content.encode() if isinstance(content, str) else content)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApp:
    """An App to create; see `LocalHub.add_app`."""

    slug: str
    owner: str
    webhook_url: str
    webhook_secret: str
    permissions: Permissions
    events: tuple[str, ...]
    id: int = 0
    private_key_pem: str = ""


def create_app(site: Site, draft: NewApp) -> App:
    """Make an App with its bot account and, if it has none, a key, and ping its webhook.

    Raises:
        ValueError: its key is none.
    """
    private, public = _own_key(draft.private_key_pem) if draft.private_key_pem else _key_pair(draft.slug)
    ensure_user(site, draft.owner, kind="Organization")
    made = App(
        id=draft.id or site.store.new_id(),
        slug=draft.slug,
        owner=draft.owner,
        bot=replace(ensure_user(site, f"{draft.slug}[bot]", kind="Bot"), token=""),
        hook_id=site.store.new_id(),
        private_key_pem=private,
        public_key_pem=public,
        webhook_url=draft.webhook_url,
        webhook_secret=draft.webhook_secret,
        permissions={"metadata": "read", **draft.permissions},
        events=draft.events,
        created_at=site.now(),
    )
    site.store.apps.put(made)
    site.store.users.put(made.bot)
    webhooks.ping(site, made)
    return made


@cache
def _key_pair(_slug: str) -> tuple[str, str]:
    """An App's private and public key in PEM; the same in every hub of a process, since one takes 50 ms to make."""
    return _pem_pair(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _own_key(pem: str) -> tuple[str, str]:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("an App's key is an RSA key")  # noqa: TRY004 - the file's content is wrong
    return _pem_pair(key)


def _pem_pair(key: rsa.RSAPrivateKey) -> tuple[str, str]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def install_app(site: Site, app: App, repo: Repo, sender: User) -> int:
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


def set_permissions(site: Site, installation_id: int, permissions: Permissions) -> None:
    """Let an installation do only this; its tokens lose the rest at once."""
    held = {"metadata": "read", **permissions}
    installation = site.store.installations[installation_id]
    site.store.installations.put(replace(installation, permissions=held))
    for token in tuple(site.store.tokens.values()):
        if token.installation_id == installation_id:
            # In the alphabet as in might, `read` comes before `write`.
            kept = {name: min(level, held[name]) for name, level in token.permissions.items() if name in held}
            site.store.tokens[token.value] = replace(token, permissions=kept)


def remove_repo(site: Site, installation: Installation, repo: Repo, sender: User) -> Installation:
    """Take a repository out of an installation; tokens lose it at once."""
    left = tuple(number for number in installation.repo_ids if number != repo.id)
    narrower = site.store.installations.put(replace(installation, repo_ids=left))
    for token in tuple(site.store.tokens.values()):
        if token.installation_id == installation.id:
            kept = tuple(number for number in token.repo_ids if number != repo.id)
            site.store.tokens[token.value] = replace(token, repo_ids=kept)
    webhooks.installation_repositories(site, narrower, sender, "removed", repo)
    return narrower


def rename(site: Site, repo: Repo, name: str, sender: User) -> Repo:
    """Give a repository another name; the old one leads to it as long as no other repository takes it.

    Raises:
        ValueError: the owner has a repository of this name already.
    """
    renamed = _move_repo(site, repo, replace(repo, name=name))
    changes = {"changes": {"repository": {"name": {"from": repo.name}}}}
    webhooks.emit(site, "repository", renamed, sender, {"action": "renamed", **changes})
    return renamed


def transfer(site: Site, repo: Repo, new_owner: str, sender: User) -> Repo:
    """Give a repository to another account; the installations on the old one lose it.

    Raises:
        ValueError: the new owner has a repository of this name already.
    """
    old = account_views.owner_of(site, repo)
    owner = ensure_user(site, new_owner, kind="Organization")
    moved = _move_repo(site, repo, replace(repo, owner=owner.login))
    whose = (
        {"organization": account_views.organization(site, old)}
        if old.type == "Organization"
        else {"user": account_views.simple_user(site, old)}
    )
    payload: Json = {"action": "transferred", "changes": {"owner": {"from": whose}}}
    webhooks.emit(site, "repository", moved, sender, payload)
    for installation in site.store.installations:
        if installation.account == old.login and moved.id in installation.repo_ids:
            remove_repo(site, installation, moved, sender)
    return moved


def fork(site: Site, repo: Repo, owner: User, sender: User, *, name: str = "") -> Repo:
    """Fork a repository into an account; one that it has already is returned.

    Raises:
        ValueError: the account has another repository of this name.
    """
    there = next((each for each in site.store.repos if (each.owner, each.fork_of) == (owner.login, repo.id)), None)
    if there is not None:
        return there
    made = create_repo(
        site,
        NewRepo(
            full_name=f"{owner.login}/{name or repo.name}",
            private=repo.private,
            source=None,
            fork_of=repo,
            description=repo.description,
        ),
    )
    shown = account_views.repository(site, made)
    del shown["has_discussions"]  # this event is without it
    webhooks.emit(site, "fork", repo, sender, {"forkee": shown})
    return made


def edit(site: Site, old: Repo, new: Repo, sender: User) -> Repo:
    """Change what a repository says of itself; nothing happens when it is the same."""
    if new == old:
        return old
    site.store.repos.put(new)
    names = [name for name in ("description", "homepage", "default_branch") if getattr(old, name) != getattr(new, name)]
    changes = {name: {"from": getattr(old, name)} for name in names}
    if changes:
        webhooks.emit(site, "repository", new, sender, {"action": "edited", "changes": changes})
    if old.private != new.private:
        webhooks.emit(site, "repository", new, sender, {"action": "privatized" if new.private else "publicized"})
    return new


def _move_repo(site: Site, old: Repo, new: Repo) -> Repo:
    if site.store.repo(new.full_name) is not None:
        raise ValueError(f"there is a repository {new.full_name} already; choose another name")
    site.store.former_names[old.full_name.lower()] = old.id
    return site.store.repos.put(new)


def archive(site: Site, repo: Repo, sender: User, *, archived: bool) -> Repo:
    """Make a repository read-only, or writable again."""
    changed = site.store.repos.put(replace(repo, archived=archived))
    webhooks.emit(site, "repository", changed, sender, {"action": "archived" if archived else "unarchived"})
    return changed
