"""Create accounts, repositories and Apps; each is called under the site's lock."""

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
from localhub.operations import branches, threads, webhooks, workflow_guard
from localhub.state.model import App, Permissions, Repo, User
from localhub.state.site import Site

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
"""What an App like ours asks for, unless told otherwise."""


def user(site: Site, login: str, *, name: str = "", kind: Literal["User", "Organization", "Bot"] = "User") -> User:
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
    """What `LocalHub.add_repo` is told; see there."""

    full_name: str
    private: bool
    source: Path | None
    fork_of: Repo | None
    description: str


def repo(site: Site, wanted: NewRepo) -> Repo:
    """Make a repository with the branches and tags of its source.

    Raises:
        ValueError: the name is invalid or taken, or the source is not a repository.
    """
    if not _FULL_NAME.fullmatch(wanted.full_name):
        raise ValueError(f"{wanted.full_name!r} is not the name of a repository; write OWNER/NAME")
    account, _, name = wanted.full_name.partition("/")
    if site.store.repo(wanted.full_name) is not None:
        raise ValueError(f"there is a repository {wanted.full_name} already; choose another name")
    owner = user(site, account, kind="Organization")
    path = _free_path(site.directory / owner.login, name)
    fork, now = wanted.fork_of, site.now()
    origin = fork.path if fork else wanted.source
    try:
        branch = fork.default_branch if fork else _branch_of(wanted.source)
        git.create(path, branch)
        if origin is not None:
            git.fetch_all(path, origin)
    except git.HubGitError as error:
        raise ValueError(f"{origin} cannot be copied ({error})") from error
    workflow_guard.install(path)
    made = Repo(
        id=site.store.new_id(),
        owner=owner.login,
        name=name,
        path=path,
        private=wanted.private,
        default_branch=branch,
        description=wanted.description,
        fork_of=fork.id if fork else None,
        created_at=now,
        pushed_at=now,
    )
    site.store.heads[made.id] = branches.heads_of(made)
    return site.store.repos.put(made)


def _free_path(folder: Path, name: str) -> Path:
    """Where to put a new repository: one that was renamed stays where it was made."""
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


def commit(
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
    """What `LocalHub.add_app` is told; see there."""

    slug: str
    owner: str
    webhook_url: str
    webhook_secret: str
    permissions: Permissions
    events: tuple[str, ...]
    id: int = 0
    private_key_pem: str = ""


def app(site: Site, wanted: NewApp) -> App:
    """Make an App with its bot account and, if it has none, a key, and ping its webhook.

    Raises:
        ValueError: its key is none.
    """
    private, public = _own_key(wanted.private_key_pem) if wanted.private_key_pem else _key_pair(wanted.slug)
    user(site, wanted.owner, kind="Organization")
    made = App(
        id=wanted.id or site.store.new_id(),
        slug=wanted.slug,
        owner=wanted.owner,
        bot=replace(user(site, f"{wanted.slug}[bot]", kind="Bot"), token=""),
        hook_id=site.store.new_id(),
        private_key_pem=private,
        public_key_pem=public,
        webhook_url=wanted.webhook_url,
        webhook_secret=wanted.webhook_secret,
        permissions={"metadata": "read", **wanted.permissions},
        events=wanted.events,
        created_at=site.now(),
    )
    site.store.apps.put(made)
    site.store.users.put(made.bot)
    webhooks.ping(site, made)
    return made


@cache
def _key_pair(_slug: str) -> tuple[str, str]:
    """An App's private and public key in PEM; the same in every hub of a process, since one takes 50 ms to make."""
    return _pems(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _own_key(pem: str) -> tuple[str, str]:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("an App's key is an RSA key")  # noqa: TRY004 - the file's content is wrong
    return _pems(key)


def _pems(key: rsa.RSAPrivateKey) -> tuple[str, str]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()
