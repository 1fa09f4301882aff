"""`LocalHub`: the whole hub as one object, for the demo and the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from bot.localhub import actions, branches, founding, webhooks
from bot.localhub import pulls as pull_requests
from bot.localhub.faults import Faults
from bot.localhub.git_http import GitHttp
from bot.localhub.model import (
    App,
    CheckRun,
    Comment,
    Delivery,
    Issue,
    Permissions,
    Reaction,
    Repo,
    Role,
    User,
)
from bot.localhub.pages import Pages
from bot.localhub.server import MAX_REQUEST, Exchange, Server
from bot.localhub.site import Site
from bot.localhub.webhooks import Sender


class LocalHub:
    """A GitHub in one process: REST, GraphQL, git over HTTP, webhooks and pages on one port.

    All methods but `start`, `stop` and `redeliver` may be called from any thread while the hub runs. Who acts is named
    by login. Whatever changes a repository sends the webhooks that GitHub would send.

        async with LocalHub(directory) as hub:
            mona = hub.add_user("mona")
            repo = hub.add_repo("mona/widgets", files={"README.md": "# Widgets"})
            app = hub.add_app("codepilot", webhook_url="http://127.0.0.1:8000/webhook", webhook_secret="…")
            hub.install(app, repo)
            hub.comment(repo, hub.open_issue(repo, author="mona", title="It breaks").number, author="mona", body="…")
    """

    def __init__(
        self,
        directory: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare a hub.

        Args:
            directory: where the bare repositories go; made if need be.
            host: the address to listen at.
            port: the port, 0 for any that is free.
            now: the clock, in UTC.
        """
        self.faults = Faults()
        self._host = host
        self._port = port
        self._site = Site(directory=directory, now=now, send=webhooks.unsent)
        self._server = Server(site=self._site, faults=self.faults)
        self._sender: Sender | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; `url` is known from here on."""
        app = web.Application(client_max_size=MAX_REQUEST)
        self._server.add_to(app)
        GitHttp(self._site, self.faults, self._server.threads).add_to(app)
        Pages(self._site, self._server.threads).add_to(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        port = self._runner.addresses[0][1]
        self._site.url = f"http://{self._host}:{port}"
        self._sender = Sender(self._site)
        self._site.send = self._sender.send

    async def stop(self) -> None:
        """Stop listening; deliveries under way are given up."""
        self._site.send = webhooks.unsent
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._sender is not None:
            await self._sender.close()
            self._sender = None
        self._server.threads.shutdown()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def observe(
        self,
        *,
        served: Callable[[Exchange], None] | None = None,
        sent: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Show every API exchange and every webhook payload (event, payload) to somebody who checks them."""
        self._server.served = served
        self._site.seen_payload = sent

    @property
    def url(self) -> str:
        """The root of the pages; a repository's git address is `{url}/{owner}/{repo}.git`."""
        return self._site.url

    @property
    def api_url(self) -> str:
        """The root of REST, for PyGithub's `base_url`."""
        return self._site.api_url

    @property
    def graphql_url(self) -> str:
        """Where GraphQL is."""
        return f"{self.url}/api/graphql"

    def add_user(self, login: str, *, name: str = "", kind: Literal["User", "Organization", "Bot"] = "User") -> User:
        """Make an account; asking again for a login that is there returns it."""
        with self._site.lock:
            return founding.user(self._site, login, name=name, kind=kind)

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
        wanted = founding.NewRepo(
            full_name=full_name, private=private, source=source, fork_of=fork_of, description=description
        )
        with self._site.lock:
            repo = founding.repo(self._site, wanted)
            if owner is not None:
                self.add_collaborator(repo, owner, "admin")
            if files:
                self.commit(repo, files, message="Initial commit", author=owner or repo.owner)
            return repo

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
            name = branch or repo.default_branch
            return founding.commit(self._site, repo, files, message=message, author=author, branch=name)

    def sync(self, repo: Repo, *, author: str) -> None:
        """Announce what was written to the bare repository behind the hub's back."""
        with self._site.lock:
            branches.sync(self._site, self._site.store.repos[repo.id], actions.require_user(self._site, author))

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
        events: Sequence[str] = founding.APP_EVENTS,
    ) -> App:
        """Make an App with a key of its own and its bot account `slug[bot]`; it is pinged when it has a webhook."""
        wanted = founding.NewApp(
            slug=slug,
            owner=owner,
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            permissions=founding.APP_PERMISSIONS if permissions is None else permissions,
            events=tuple(events),
        )
        with self._site.lock:
            return founding.app(self._site, wanted)

    def app(self, app_id: int) -> App:
        """An App as it is now."""
        with self._site.lock:
            return self._site.store.apps[app_id]

    def set_webhook(self, app: App, url: str, secret: str) -> App:
        """Point an App's webhook elsewhere, and ping it."""
        with self._site.lock:
            changed = replace(self._site.store.apps[app.id], webhook_url=url, webhook_secret=secret)
            self._site.store.apps.put(changed)
            webhooks.ping(self._site, changed)
            return changed

    def install(self, app: App, repo: Repo, *, by: str | None = None) -> int:
        """Install an App on a repository; returns the installation's id, one for each account."""
        with self._site.lock:
            sender = actions.require_user(self._site, by or repo.owner)
            return founding.install(self._site, self._site.store.apps[app.id], repo, sender)

    def uninstall(self, installation_id: int) -> None:
        """Remove an installation: its tokens stop working at once."""
        with self._site.lock:
            self._site.store.installations.remove(installation_id)

    def open_issue(
        self, repo: Repo, *, author: str, title: str, body: str | None = None, labels: Iterable[str] = ()
    ) -> Issue:
        """Open an issue."""
        with self._site.lock:
            user = actions.require_user(self._site, author)
            return actions.open_issue(self._site, repo, user, title=title, body=body, labels=labels)

    def open_pull(
        self, repo: Repo, *, author: str, head: str, title: str, base: str | None = None, body: str | None = None
    ) -> Issue:
        """Open a pull request; `head` is a branch, or `owner:branch` in a fork."""
        with self._site.lock:
            user = actions.require_user(self._site, author)
            wanted = pull_requests.NewPull(head=head, base=base or repo.default_branch, title=title, body=body)
            return pull_requests.open_pull(self._site, repo, user, wanted)

    def merge(self, repo: Repo, number: int, *, by: str) -> str:
        """Merge a pull request; returns the new commit's SHA."""
        with self._site.lock:
            user = actions.require_user(self._site, by)
            return pull_requests.merge(self._site, self.issue(repo, number), user)

    def comment(self, repo: Repo, number: int, *, author: str, body: str) -> Comment:
        """Comment in a thread, in the name of whoever has this login."""
        with self._site.lock:
            user = actions.require_user(self._site, author)
            return actions.comment(self._site, self.issue(repo, number), user, body)

    def edit_comment(self, comment: Comment, *, by: str, body: str) -> Comment:
        """Change a comment."""
        with self._site.lock:
            return actions.edit_comment(self._site, comment, actions.require_user(self._site, by), body)

    def label(self, repo: Repo, number: int, *labels: str, by: str) -> Issue:
        """Give a thread exactly these labels."""
        with self._site.lock:
            user = actions.require_user(self._site, by)
            return actions.set_labels(self._site, self.issue(repo, number), user, labels)

    def close(self, repo: Repo, number: int, *, by: str) -> Issue:
        """Close a thread."""
        with self._site.lock:
            user = actions.require_user(self._site, by)
            return actions.set_state(self._site, self.issue(repo, number), user, "closed")

    def lock(self, repo: Repo, number: int) -> Issue:
        """Lock a thread's conversation: only who may write goes on commenting."""
        with self._site.lock:
            return self._site.store.issues.put(replace(self.issue(repo, number), locked=True))

    def archive(self, repo: Repo) -> Repo:
        """Make a repository read-only."""
        with self._site.lock:
            return self._site.store.repos.put(replace(self._site.store.repos[repo.id], archived=True))

    def issue(self, repo: Repo, number: int) -> Issue:
        """An issue or pull request as it is now.

        Raises:
            LookupError: there is none.
        """
        with self._site.lock:
            found = self._site.store.issue(repo, number)
        if found is None:
            raise LookupError(f"{repo.full_name} has no issue or pull request #{number}")
        return found

    def issues(self, repo: Repo) -> list[Issue]:
        """All issues and pull requests, oldest first."""
        with self._site.lock:
            return self._site.store.issues_of(repo)

    def comments(self, repo: Repo, number: int) -> list[Comment]:
        """A thread's comments, oldest first."""
        with self._site.lock:
            return self._site.store.comments_of(self.issue(repo, number))

    def reactions(self, subject: Issue | Comment) -> list[Reaction]:
        """Reactions to an issue or comment, oldest first."""
        kind = "issue" if isinstance(subject, Issue) else "comment"
        with self._site.lock:
            return [r for r in self._site.store.reactions if (r.kind, r.subject_id) == (kind, subject.id)]

    def check_runs(self, repo: Repo) -> list[CheckRun]:
        """All check runs, oldest first."""
        with self._site.lock:
            return [run for run in self._site.store.check_runs if run.repo_id == repo.id]

    def branches(self, repo: Repo) -> dict[str, str]:
        """Branches and where they stand."""
        return branches.heads_of(repo)

    def login(self, user_id: int) -> str:
        """The login behind an `author_id`."""
        return self._site.store.users[user_id].login

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """Every attempt to deliver a webhook, oldest first."""
        with self._site.lock:
            return tuple(self._site.store.deliveries)

    async def redeliver(self, guid: str) -> Delivery:
        """Send a delivery again under its GUID.

        Raises:
            LookupError: there is no such delivery.
        """
        with self._site.lock:
            for delivery in self._site.store.deliveries:
                if delivery.guid == guid:
                    return webhooks.redeliver(self._site, delivery)
        raise LookupError(f"no delivery has the GUID {guid}")
