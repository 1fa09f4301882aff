"""Actions of account owners, each by a login: repositories, collaborators, Apps and installations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from localhub.api.auth import client_id
from localhub.operations import accounts, branches, threads, webhooks
from localhub.state.model import App, Permissions, Repo, Role, Ruleset, User
from localhub.state.store import Site


class AccountActions:
    """The part of `LocalHub` about accounts, repositories, Apps and installations."""

    _site: Site

    def _now(self, repo: Repo) -> Repo:
        """Return the current state of a repository."""
        return self._site.store.repos[repo.id]

    def _user(self, login: str) -> User:
        return threads.require_user(self._site, login)

    def add_user(self, login: str, *, name: str = "", kind: Literal["User", "Organization", "Bot"] = "User") -> User:
        """Make an account; asking again for a login that is there returns it."""
        with self._site.lock:
            return accounts.ensure_user(self._site, login, name=name, kind=kind)

    def add_repo(
        self,
        full_name: str,
        *,
        owner: str | None = None,
        private: bool = False,
        source: Path | None = None,
        files: Mapping[str, str | bytes] | None = None,
        fork_of: Repo | None = None,
        description: str = "",
    ) -> Repo:
        """Make a repository.

        Args:
            full_name: `owner/name`; an owner who is not there becomes an organisation.
            owner: a login who gets the admin role besides.
            private: whether only collaborators see it.
            source: a local repository whose branches and tags are copied; its current branch becomes the default one.
            files: without a source, a first commit with these files; with neither, the repository is empty.
            fork_of: the repository to fork; its branches are copied.
            description: one line.
        """
        wanted = accounts.NewRepo(
            full_name=full_name, private=private, source=source, fork_of=fork_of, description=description
        )
        with self._site.lock:
            repo = accounts.create_repo(self._site, wanted)
            if owner is not None:
                self.add_collaborator(repo, owner, "admin")
            if files:
                self.commit(repo, files, message="Initial commit", author=owner or repo.owner)
            return repo

    def repo(self, full_name: str) -> Repo:
        """The repository `owner/name` as it is now.

        Raises:
            LookupError: there is none.
        """
        with self._site.lock:
            found = self._site.store.repo(full_name)
        if found is None:
            raise LookupError(f"there is no repository {full_name} here")
        return found

    def commit(
        self,
        repo: Repo,
        files: Mapping[str, str | bytes | None],
        *,
        message: str,
        author: str,
        branch: str | None = None,
    ) -> str:
        """Commit files to a branch as if pushed and return the SHA.

        Args:
            repo: the repository.
            files: contents by path; None deletes.
            message: the commit message.
            author: a login.
            branch: the branch, made from the default one if need be; by default the default one.
        """
        with self._site.lock:
            now = self._now(repo)
            name = branch or now.default_branch
            return accounts.commit_files(self._site, now, files, message=message, author=author, branch=name)

    def sync(self, repo: Repo, *, author: str) -> None:
        """Announce commits that git wrote to the bare repository directly."""
        with self._site.lock:
            branches.sync(self._site, self._now(repo), self._user(author))

    def add_collaborator(self, repo: Repo, login: str, role: Role) -> None:
        """Give somebody a role in a repository; `none` takes it away."""
        with self._site.lock:
            user = self.add_user(login)
            if role == "none":
                self._site.store.roles.pop((repo.id, user.id), None)
            else:
                self._site.store.roles[repo.id, user.id] = role

    def add_app(
        self,
        slug: str,
        *,
        owner: str = "local",
        webhook_url: str = "",
        webhook_secret: str = "",
        permissions: Permissions | None = None,
        events: Sequence[str] = accounts.APP_EVENTS,
        app_id: int = 0,
        private_key_pem: str = "",
    ) -> App:
        """Make an App with its bot account `slug[bot]`; it is pinged when it has a webhook.

        Args:
            slug: its name in addresses.
            owner: its owner's login.
            webhook_url: where its events go.
            webhook_secret: what signs them.
            permissions: what it may do, by default what a bot needs.
            events: what it is told.
            app_id: a number that it had in another hub; by default a new one.
            private_key_pem: a key that it had there; by default a new one.

        Raises:
            ValueError: the key is none.
        """
        wanted = accounts.NewApp(
            slug=slug,
            owner=owner,
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            permissions=accounts.APP_PERMISSIONS if permissions is None else permissions,
            events=tuple(events),
            id=app_id,
            private_key_pem=private_key_pem,
        )
        with self._site.lock:
            return accounts.create_app(self._site, wanted)

    def app(self, app_id: int) -> App:
        """Return the current state of an App."""
        with self._site.lock:
            return self._site.store.apps[app_id]

    def set_callback(self, app: App, url: str) -> tuple[str, str]:
        """Let people sign in to an App's site, which GitHub sends them back to; its client id and client secret."""
        with self._site.lock:
            self._site.store.callbacks[app.id] = url
            return client_id(app), self._site.store.client_secret(app)

    def set_webhook(self, app: App, url: str, secret: str) -> App:
        """Point an App's webhook elsewhere, and ping it."""
        with self._site.lock:
            changed = replace(self._site.store.apps[app.id], webhook_url=url, webhook_secret=secret)
            self._site.store.apps.put(changed)
            webhooks.ping(self._site, changed)
            return changed

    def add_rules(
        self,
        repo: Repo,
        *rules: str | Mapping[str, Any],
        branches: str = "*",
        bypass: Sequence[str] = (),
        classic: bool = False,
    ) -> Ruleset:
        """Add a ruleset, or protection of the older kind (`classic`), for branches.

        Args:
            repo: where it applies.
            rules: types, or objects with `type` and `parameters`, as in the REST API.
            branches: a pattern as for `fnmatch`.
            bypass: the logins of those whom it does not bind.
            classic: whether only the GraphQL API shows it to writers.
        """
        listed = tuple({"type": rule} if isinstance(rule, str) else dict(rule) for rule in rules)
        with self._site.lock:
            made = Ruleset(
                id=self._site.store.new_id(),
                repo_id=repo.id,
                source=repo.full_name,
                branches=branches,
                rules=listed,
                bypass=frozenset(bypass),
                classic=classic,
            )
            return self._site.store.rulesets.put(made)

    def install(self, app: App, repo: Repo, *, by: str | None = None) -> int:
        """Install an App on a repository; returns the installation's id, one for each account."""
        with self._site.lock:
            now = self._now(repo)
            return accounts.install_app(self._site, self._site.store.apps[app.id], now, self._user(by or now.owner))

    def uninstall(self, installation_id: int, *, by: str | None = None) -> None:
        """Remove an installation: its tokens stop working at once."""
        with self._site.lock:
            accounts.uninstall(self._site, installation_id, self._keeper(installation_id, by))

    def suspend(self, installation_id: int, *, by: str | None = None) -> None:
        """Suspend an installation: its tokens are refused and it gets no events of its repositories."""
        with self._site.lock:
            accounts.suspend(self._site, installation_id, self._keeper(installation_id, by), suspended=True)

    def unsuspend(self, installation_id: int, *, by: str | None = None) -> None:
        """Let a suspended installation work again."""
        with self._site.lock:
            accounts.suspend(self._site, installation_id, self._keeper(installation_id, by), suspended=False)

    def permit(self, installation_id: int, permissions: Permissions) -> None:
        """Let an App do only this where it is installed, as an owner may who does not accept all that it wants."""
        with self._site.lock:
            accounts.set_permissions(self._site, installation_id, permissions)

    def take_out(self, installation_id: int, repo: Repo, *, by: str | None = None) -> None:
        """Take a repository out of an installation."""
        with self._site.lock:
            installation = self._site.store.installations[installation_id]
            accounts.remove_repo(self._site, installation, self._now(repo), self._keeper(installation_id, by))

    def _keeper(self, installation_id: int, by: str | None) -> User:
        """The account that acts on an installation: by default its own."""
        return self._user(by or self._site.store.installations[installation_id].account)

    def rename(self, repo: Repo, name: str, *, by: str | None = None) -> Repo:
        """Give a repository another name; the API answers the old one with a redirection.

        Raises:
            ValueError: there is one of this name.
        """
        with self._site.lock:
            now = self._now(repo)
            return accounts.rename(self._site, now, name, self._user(by or now.owner))

    def transfer(self, repo: Repo, new_owner: str, *, by: str | None = None) -> Repo:
        """Give a repository to another account, made as an organisation if need be.

        Raises:
            ValueError: the account has one of this name.
        """
        with self._site.lock:
            now = self._now(repo)
            return accounts.transfer(self._site, now, new_owner, self._user(by or now.owner))

    def archive(self, repo: Repo, *, by: str | None = None) -> Repo:
        """Make a repository read-only."""
        with self._site.lock:
            now = self._now(repo)
            return accounts.archive(self._site, now, self._user(by or now.owner), archived=True)

    def unarchive(self, repo: Repo, *, by: str | None = None) -> Repo:
        """Make an archived repository writable again."""
        with self._site.lock:
            now = self._now(repo)
            return accounts.archive(self._site, now, self._user(by or now.owner), archived=False)

    def branches(self, repo: Repo) -> dict[str, str]:
        """Branches and where they stand."""
        return branches.heads_of(repo)

    def login(self, user_id: int) -> str:
        """The login behind an `author_id`."""
        return self._site.store.users[user_id].login
