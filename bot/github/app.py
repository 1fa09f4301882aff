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
from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.connection import PAGE, GitHubConnection
from bot.github.types import Account, Answer, Facts, GitHubError, Text, parse, unreadable

CALLBACK_PATH = "/dashboard/github/back"
"""Where GitHub sends people back to, whom it has signed in: the path of the App's callback URL."""
MOST_REPOSITORIES = 5_000
"""Of a person who can reach more, the others are not known."""
_LIST_DELIVERIES, _DELIVERIES = "list the deliveries to the App's webhook", "/app/hook/deliveries"
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
    what = "sign in as the App"
    async with access.connection() as connection:
        try:
            answer = await connection.request(what, "GET", "/app")
            description = parse(AppDescription, what, answer.data)
        except GitHubError as error:
            return AppDescription(permissions={}, clock=_clock(error.answer), refused=str(error))
    return description.model_copy(update={"clock": _clock(answer)})


class AppDescription(Facts):
    """The App as GitHub describes it.

    Attributes:
        slug: the App's name in addresses; empty after a refusal.
        permissions: `read` or `write` by name.
        events: the events that it receives.
        clock: GitHub's time when it answered; None when no answer came.
        refused: the reason of a refusal; else empty.
    """

    slug: str = Field(default="", validation_alias=AliasChoices("slug", "name"))
    permissions: Mapping[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()
    clock: datetime | None = None
    refused: str = ""


async def app_use(access: AppAccess) -> AppUse:
    """Ask about the App's webhook, its last deliveries and its installations.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    async with access.connection() as connection:
        hook = await connection.read(_Webhook, "read the configuration of the App's webhook", "/app/hook/config")
        attempts = await connection.read(tuple[Attempt, ...], _LIST_DELIVERIES, _DELIVERIES, {"per_page": PAGE})
        installations = await _installations(connection)
    return AppUse(
        webhook=hook.url,
        checks_certificate=str(hook.insecure_ssl) == "0",
        attempts=attempts,
        installations=len(installations),
    )


class _Webhook(Facts):
    url: Text = ""
    insecure_ssl: str | int = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppUse:
    """The use of an App, as GitHub sees it.

    Attributes:
        webhook: the address of its deliveries; empty when the webhook is off.
        checks_certificate: whether GitHub checks the certificate there.
        attempts: the newest attempts to deliver, at most 100, newest first.
        installations: the number of accounts on which it is installed.
    """

    webhook: str
    checks_certificate: bool
    attempts: tuple[Attempt, ...]
    installations: int


async def installation_of(repo: str, access: AppAccess) -> Installation | None:
    """Return the App's installation on a repository; None when there is none, or no such repository.

    Args:
        repo: `owner/name`.
        access: the App's.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    what, path = f"find the App's installation on {repo}", f"/repos/{repo}/installation"
    async with access.connection() as connection:
        return await connection.find(Installation, what, path)


class Installation(Facts):
    """An App on an account.

    Attributes:
        permissions: `read` or `write` by name, as the account's owner has accepted them.
        events: the events that the App receives from there.
    """

    id: int
    permissions: Mapping[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()
    suspended_at: Text = ""


async def installation_ids(access: AppAccess) -> tuple[int, ...]:
    """Return the App's installations that are not suspended.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    async with access.connection() as connection:
        return tuple(each.id for each in await _installations(connection) if not each.suspended_at)


async def _installations(connection: GitHubConnection) -> list[Installation]:
    entries = connection.entries(Installation, "list the App's installations", "/app/installations")
    return [each async for each in entries]


@asynccontextmanager
async def app_deliveries(access: AppAccess) -> AsyncIterator[AppDeliveries]:
    """Open the deliveries of an App."""
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
        """Yield the attempts of the last days, newest first; the next page is requested when it is needed.

        Raises:
            GitHubError: GitHub did not answer, or does not know the App.
        """
        cursor = ""
        while True:
            query = {"per_page": PAGE, **({"cursor": cursor} if cursor else {})}
            answer = await self._connection.request(_LIST_DELIVERIES, "GET", _DELIVERIES, query=query)
            for attempt in parse(tuple[Attempt, ...], _LIST_DELIVERIES, answer.data):
                yield attempt
            link = _NEXT.search(answer.headers.get("link", ""))
            cursor = parse_qs(urlsplit(link[1]).query).get("cursor", [""])[0] if link else ""
            if not cursor:
                return

    async def redeliver(self, attempt: int) -> None:
        """Have GitHub deliver again, under the same GUID.

        Raises:
            GitHubError: GitHub did not answer, or will not.
        """
        path = f"{_DELIVERIES}/{attempt}/attempts"
        await self._connection.request(f"redeliver {attempt}", "POST", path, as_app=True)


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
        return await connection.json(RegisteredApp, what, "POST", path, repeat=False)


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
    webhook_secret: Text = Field(default="", repr=False)
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
        what = "read the App's installation"
        installation = await self.connection.json(Installation, what, "GET", path, as_app=True)
        return installation.permissions.get("workflows") == "write"

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        auth = self.connection.auth
        if not isinstance(auth, InstallationAuth):
            return (await self.connection.token())[1]
        scope = (repo, *(f"{name}: {level}" for name, level in sorted(permissions.items())))
        token = await auth.tokens.get(scope, partial(self.connection.mint, auth, repo, permissions))
        self.minted(token)
        return token


class _Repository(Facts):
    id: int


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
        path, accept = "/login/oauth/access_token", "application/json"
        async with GitHubConnection("", self.server_url, ca_file=self.ca_file) as connection:
            answer = await connection.request(what, "POST", path, body, accept=accept, repeat=False)
        token = answer.data.get("access_token") if isinstance(answer.data, dict) else None
        if not isinstance(token, str) or not token:
            # GitHub's status is 200 for any failure; the description may repeat the secret.
            raise unreadable(what, HTTPStatus.OK, "no token; was the code used before, or the client secret changed?")
        return token

    async def login(self, token: str) -> str:
        """The login of the person whose token it is.

        Raises:
            GitHubError: GitHub did not answer, or refuses the token.
        """
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            return (await connection.read(Account, "read the account that signs in", "/user")).login

    async def repositories(self, token: str) -> frozenset[int] | None:
        """The ids of the repositories that a person can reach and the App is installed on; None for a token that ended.

        Raises:
            GitHubError: GitHub did not answer.
        """
        found = set[int]()
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            try:
                async for each in connection.entries(
                    Installation, "list a person's installations", "/user/installations", within="installations"
                ):
                    path = f"/user/installations/{each.id}/repositories"
                    listed = connection.entries(
                        _Repository, "list a person's repositories", path, within="repositories"
                    )
                    try:
                        async for repo in listed:
                            found.add(repo.id)
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
