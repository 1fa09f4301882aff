"""Requests as the App itself: its description, installations, webhook deliveries and tokens; and people's sign-in.

https://docs.github.com/webhooks/using-webhooks/automatically-redelivering-failed-deliveries-for-a-github-app-webhook
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

from jwt.exceptions import InvalidKeyError
from pydantic import AliasPath, BeforeValidator, Field

from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.connection import PAGE, GitHubConnection
from bot.github.types import Answer, Facts, GitHubError, unreadable

CALLBACK_PATH = "/dashboard/github/back"
"""Where GitHub sends people back to, whom it has signed in: the path of the App's callback URL."""
MOST_REPOSITORIES = 5_000
"""Of a person who can reach more, the others are not known."""
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


def _timestamp(value: object) -> object:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class AppAccess:
    """What it takes to ask GitHub as the App itself.

    Attributes:
        app_id: the App's.
        private_key: the App's, in PEM.
        api_url: GitHub's REST address.
        ca_file: see `GitHubConnection`.
    """

    app_id: int
    private_key: str = field(repr=False)
    api_url: str
    ca_file: Path | None = None

    @property
    def identity(self) -> AppIdentity:
        """The identity that signs the requests."""
        return AppIdentity(self.app_id, self.private_key)

    def connection(self) -> GitHubConnection:
        """Return a connection as the App itself."""
        return GitHubConnection(self.identity, self.api_url, ca_file=self.ca_file)


async def describe_app(access: AppAccess) -> AppDescription:
    """Sign in as the App itself (`GET /app`)."""
    try:
        access.identity.sign()
    except InvalidKeyError as error:
        return AppDescription(permissions={}, clock=None, refused=f"the private key cannot be used: {error}")
    async with access.connection() as connection:
        try:
            answer = await connection.request("sign in as the App", "GET", "/app")
        except GitHubError as error:
            return AppDescription(permissions={}, clock=_clock(error.answer), refused=str(error))
    app = answer.data
    return AppDescription(
        slug=str(app.get("slug") or app.get("name")),
        permissions={str(name): str(level) for name, level in (app.get("permissions") or {}).items()},
        events=tuple(map(str, app.get("events") or ())),
        clock=_clock(answer),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppDescription:
    """What GitHub answered.

    Attributes:
        slug: the App's name in addresses; empty when GitHub did not accept us.
        permissions: what the App may do, `read` or `write` by name.
        events: the events that it receives.
        clock: GitHub's time when it answered; None when no answer came.
        refused: why GitHub did not accept us; empty when it did.
    """

    slug: str = ""
    permissions: Mapping[str, str]
    events: tuple[str, ...] = ()
    clock: datetime | None
    refused: str = ""


async def app_use(access: AppAccess) -> AppUse:
    """Ask about the App's webhook, its last deliveries and its installations.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    what, newest = "list the deliveries to the App's webhook", {"per_page": PAGE}
    async with access.connection() as connection:
        hook = await connection.json("read where the App's webhook points", "GET", "/app/hook/config")
        attempts = await connection.read(what, "/app/hook/deliveries", newest)
        installed = [each async for each in connection.entries("list the App's installations", "/app/installations")]
    return AppUse(
        webhook=str(hook.get("url") or ""),
        checks_certificate=str(hook.get("insecure_ssl", "0")) == "0",
        attempts=tuple(Attempt.parse(what, each) for each in attempts),
        installations=len(installed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppUse:
    """How an App is used, as GitHub sees it.

    Attributes:
        webhook: where its deliveries go; empty when the webhook is off.
        checks_certificate: whether GitHub checks the certificate there.
        attempts: the newest attempts to deliver, at most 100, newest first.
        installations: on how many accounts it is installed.
    """

    webhook: str
    checks_certificate: bool
    attempts: tuple[Attempt, ...]
    installations: int


async def installation_of(repo: str, access: AppAccess) -> Installation | None:
    """The App's installation on a repository; None when it is not installed there, or there is no such repository.

    Args:
        repo: `owner/name`.
        access: the App's.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    what, path = f"find the App's installation on {repo}", f"/repos/{repo}/installation"
    async with access.connection() as connection:
        found = await connection.find(what, path)
    return None if found is None else Installation.parse(what, found)


class Installation(Facts):
    """An App on an account.

    Attributes:
        permissions: what the account's owner lets the App do there, `read` or `write` by name: what an App wants anew
            has to be accepted first.
        events: the events that the App receives from there.
    """

    id: int
    permissions: Mapping[str, str]
    events: tuple[str, ...] = ()


async def installation_ids(access: AppAccess) -> tuple[int, ...]:
    """The App's installations that are not suspended.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    async with access.connection() as connection:
        entries = connection.entries("list the App's installations", "/app/installations")
        return tuple([int(each["id"]) async for each in entries if not each.get("suspended_at")])


@asynccontextmanager
async def app_deliveries(access: AppAccess) -> AsyncIterator[AppDeliveries]:
    """The deliveries of an App."""
    async with access.connection() as connection:
        yield AppDeliveries(connection)


class AppDeliveries:
    """The App's deliveries; see `app_deliveries`.

    Args:
        connection: as the App itself.
    """

    def __init__(self, connection: GitHubConnection) -> None:
        self._connection = connection

    async def attempts(self) -> AsyncIterator[Attempt]:
        """The attempts of the last days, newest first; the next page is asked for when it is needed.

        Raises:
            GitHubError: GitHub did not answer, or does not know the App.
        """
        cursor = ""
        while True:
            query = {"per_page": PAGE, **({"cursor": cursor} if cursor else {})}
            what = "list the deliveries to the App's webhook"
            answer = await self._connection.request(what, "GET", "/app/hook/deliveries", query=query)
            for each in answer.data:
                yield Attempt.parse(what, each)
            link = _NEXT.search(answer.headers.get("link", ""))
            cursor = parse_qs(urlsplit(link[1]).query).get("cursor", [""])[0] if link else ""
            if not cursor:
                return

    async def redeliver(self, attempt: int) -> None:
        """Have GitHub deliver again, under the same GUID.

        Raises:
            GitHubError: GitHub did not answer, or will not.
        """
        path = f"/app/hook/deliveries/{attempt}/attempts"
        await self._connection.json(f"redeliver {attempt}", "POST", path, as_app=True)


class Attempt(Facts):
    """One attempt to deliver an event.

    Attributes:
        guid: of the delivery, the same for all its attempts.
        event: the event's name.
        at: in seconds since the epoch.
        status: the HTTP status that came back; 0 when nothing did.
    """

    id: int
    guid: str
    event: str
    at: Annotated[float, BeforeValidator(_timestamp)] = Field(validation_alias="delivered_at")
    status: int = Field(validation_alias="status_code")

    @property
    def unheard(self) -> bool:
        """Whether the receiver did not accept it: no answer, or a server's failure. A refusal was heard."""
        return self.status < HTTPStatus.OK or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def register_app(code: str, api_url: str, ca_file: Path | None = None) -> RegisteredApp:
    """Exchange the code that GitHub gives out once an App was made of a manifest, for the App and its secrets.

    https://docs.github.com/rest/apps/apps#create-a-github-app-from-a-manifest

    Args:
        code: what GitHub sent; it works once, within an hour.
        api_url: GitHub's REST address.
        ca_file: see `GitHubConnection`.

    Raises:
        GitHubError: GitHub did not answer, or does not know the code.
    """
    what, path = "exchange the code for the new App", f"/app-manifests/{quote(code, safe='')}/conversions"
    async with GitHubConnection("", api_url, ca_file=ca_file) as connection:
        found = await connection.json(what, "POST", path, repeat=False)
    return RegisteredApp.parse(what, found)


class RegisteredApp(Facts):
    """An App that was made of a manifest.

    Attributes:
        slug: its name in addresses.
        owner: the account that it belongs to.
        private_key: its key, in PEM; GitHub tells it once.
        webhook_secret: the key of its deliveries' signatures; GitHub tells it once.
        client_id: its name where people sign in.
        client_secret: its password there.
    """

    id: int
    slug: str
    owner: str = Field(validation_alias=AliasPath("owner", "login"))
    html_url: str
    private_key: str = Field(validation_alias="pem", repr=False)
    webhook_secret: Annotated[str, BeforeValidator(lambda secret: secret or "")] = Field(repr=False)
    client_id: str
    client_secret: str = Field(repr=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of the installation; `minted` is called with each before it is used."""

    connection: GitHubConnection
    minted: Callable[[str], None] = field(repr=False)

    async def for_clone(self, repo: str) -> str:
        """A token that may read this repository's files and nothing else; a plain token gives itself."""
        return await self._token(repo, {"contents": "read"})

    async def for_push(self, repo: str, *, workflows: bool = False) -> str:
        """A token that may write this repository's files and nothing else; a plain token gives itself.

        Args:
            repo: `owner/name`.
            workflows: whether workflow files are among them, for which the installation must have a permission.
        """
        await self.connection.before_write()
        return await self._token(repo, {"contents": "write", **({"workflows": "write"} if workflows else {})})

    def forget(self, repo: str) -> None:
        """Mint new ones the next time: git could not be served with those that there are."""
        if isinstance(self.connection.auth, InstallationAuth):
            self.connection.auth.tokens.forget(repo)

    async def may_write_workflows(self) -> bool | None:
        """Whether we may add and change workflow files; None for a plain token, which cannot be asked."""
        app, auth = self.connection.app, self.connection.auth
        if app is None or not isinstance(auth, InstallationAuth):
            return None
        path = f"/app/installations/{auth.installation_id}"
        answer = await self.connection.json("read the App's installation", "GET", path, as_app=True)
        return bool(answer["permissions"].get("workflows") == "write")

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        auth = self.connection.auth
        if not isinstance(auth, InstallationAuth):
            return (await self.connection.token())[1]
        scope = (repo, *(f"{name}: {level}" for name, level in sorted(permissions.items())))
        token = await auth.tokens.get(scope, partial(self.connection.mint, auth, repo, permissions))
        self.minted(token)
        return token


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The App as it signs people in.

    Attributes:
        client_id: the App's.
        client_secret: the App's.
        server_url: GitHub's address for people.
        api_url: its REST address.
        ca_file: see `GitHubConnection`.
    """

    client_id: str
    client_secret: str
    server_url: str
    api_url: str
    ca_file: Path | None = None

    async def exchange(self, code: str, verifier: str) -> str:
        """Exchange the code that GitHub sent a person back with for their token.

        Args:
            code: what GitHub sent; it works once.
            verifier: what the challenge was made from that the person was sent to GitHub with.

        Raises:
            GitHubError: GitHub did not answer, or does not take the code.
        """
        what = "exchange the code of a sign-in"
        body = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "code": code,
            "code_verifier": verifier,
        }
        async with GitHubConnection("", self.server_url, ca_file=self.ca_file) as connection:
            found = await connection.json(
                what, "POST", "/login/oauth/access_token", body, accept="application/json", repeat=False
            )
        token = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            # GitHub answers 200 whatever went wrong; the description may repeat what it was sent.
            raise unreadable(what, HTTPStatus.OK, "no token; was the code used before, or the client secret changed?")
        return token

    async def login(self, token: str) -> str:
        """The login of the person whose token it is.

        Raises:
            GitHubError: GitHub did not answer, or refuses the token.
        """
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            return str((await connection.read("see who signs in", "/user"))["login"])

    async def repositories(self, token: str) -> frozenset[int] | None:
        """The ids of the repositories that a person can reach and the App is installed on; None for a token that ended.

        Raises:
            GitHubError: GitHub did not answer.
        """
        found = set[int]()
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            try:
                async for each in connection.entries(
                    "list a person's installations", "/user/installations", within="installations"
                ):
                    path = f"/user/installations/{int(each['id'])}/repositories"
                    listed = connection.entries("list a person's repositories", path, within="repositories")
                    try:
                        async for repo in listed:
                            found.add(int(repo["id"]))
                            if len(found) >= MOST_REPOSITORIES:
                                return frozenset(found)
                    except GitHubError as error:
                        # Suspended, or removed meanwhile: its repositories are not known, those of the others are.
                        if error.limited or error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                            raise
            except GitHubError as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    return None
                raise
        return frozenset(found)


def _clock(answer: Answer | None) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")) if answer else None
    except ValueError:
        return None
