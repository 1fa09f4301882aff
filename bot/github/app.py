"""Requests as the App itself, git tokens, and the sign-in of users. A failed request raises `GitHubError`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
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

from bot.domain.job import Actor
from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.connection import PAGE, GitHubConnection
from bot.github.types import Answer, Facts, GitHubError, Text, parse, unreadable_answer

CALLBACK_PATH = "/dashboard/github/back"
"""Path of the App's callback URL."""
MAX_REPOSITORIES = 5_000
"""The most repositories read for one user."""
_LIST_DELIVERIES, _DELIVERIES = "list the deliveries to the App's webhook", "/app/hook/deliveries"
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


def _timestamp(value: object) -> object:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class AppAccess:
    app_id: int
    private_key: str = field(repr=False)
    api_url: str
    ca_file: Path | None = None

    @property
    def identity(self) -> AppIdentity:
        return AppIdentity(self.app_id, self.private_key)

    def connection(self) -> GitHubConnection:
        return GitHubConnection(self.identity, self.api_url, ca_file=self.ca_file)


async def describe_app(access: AppAccess) -> AppDescription:
    try:
        access.identity.sign()
    except InvalidKeyError as error:
        return AppDescription(permissions={}, clock=None, refused=f"the private key cannot be used: {error}")
    action = "sign in as the App"
    async with access.connection() as connection:
        try:
            answer = await connection.request(action, "GET", "/app")
            description = parse(AppDescription, action, answer.data)
        except GitHubError as error:
            return AppDescription(permissions={}, clock=_server_time(error.answer), refused=str(error))
    return description.model_copy(update={"clock": _server_time(answer)})


class AppDescription(Facts):
    """The App by GitHub's description.

    Attributes:
        clock: GitHub's time.
        refused: the reason of a refusal, else empty.
    """

    slug: str = Field(default="", validation_alias=AliasChoices("slug", "name"))
    permissions: Mapping[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()
    clock: datetime | None = None
    refused: str = ""


async def read_app_usage(access: AppAccess) -> AppUsage:
    async with access.connection() as connection:
        hook = await connection.read(_Webhook, "read the configuration of the App's webhook", "/app/hook/config")
        attempts = await connection.read(tuple[Attempt, ...], _LIST_DELIVERIES, _DELIVERIES, {"per_page": PAGE})
        installations = await _installations(connection)
    return AppUsage(
        webhook=hook.url,
        checks_certificate=str(hook.insecure_ssl) == "0",
        attempts=attempts,
        installations=len(installations),
        suspended=sum(bool(installation.suspended_at) for installation in installations),
    )


class _Webhook(Facts):
    url: Text = ""
    insecure_ssl: str | int = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppUsage:
    """The webhook and installations of an App.

    Attributes:
        webhook: its URL; empty when off.
        attempts: the newest 100, newest first.
        suspended: how many of the installations are suspended.
    """

    webhook: str
    checks_certificate: bool
    attempts: tuple[Attempt, ...]
    installations: int
    suspended: int = 0


class Installation(Facts):
    """The App on an account, with the permissions accepted there."""

    id: int
    permissions: Mapping[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()
    suspended_at: Text = ""


async def list_installation_ids(access: AppAccess) -> tuple[int, ...]:
    """Return the ids of the installations that are not suspended."""
    async with access.connection() as connection:
        return tuple(
            installation.id for installation in await _installations(connection) if not installation.suspended_at
        )


async def _installations(connection: GitHubConnection) -> list[Installation]:
    entries = connection.entries(Installation, "list the App's installations", "/app/installations")
    return [installation async for installation in entries]


@asynccontextmanager
async def open_deliveries(access: AppAccess) -> AsyncIterator[AppDeliveries]:
    async with access.connection() as connection:
        yield AppDeliveries(connection)


class AppDeliveries:
    """The webhook deliveries of an App.

    https://docs.github.com/webhooks/using-webhooks/automatically-redelivering-failed-deliveries-for-a-github-app-webhook
    """

    def __init__(self, connection: GitHubConnection) -> None:
        self._connection = connection

    async def attempts(self) -> AsyncIterator[Attempt]:
        """Yield the attempts of the last days, newest first."""
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
        """Request another delivery under the same GUID."""
        path = f"{_DELIVERIES}/{attempt}/attempts"
        await self._connection.request(f"redeliver {attempt}", "POST", path, as_app=True)


class Attempt(Facts):
    """An attempt to deliver an event.

    Attributes:
        guid: shared by all attempts of a delivery.
        status: HTTP status; 0 without an answer.
    """

    id: int
    guid: str
    event: str
    at: Annotated[float, BeforeValidator(_timestamp)] = Field(validation_alias="delivered_at")
    status: int = Field(validation_alias="status_code")

    @property
    def failed(self) -> bool:
        """Whether the receiver gave no answer, or a server error."""
        return self.status < HTTPStatus.OK or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def register_app(code: str, api_url: str, ca_file: Path | None = None) -> RegisteredApp:
    """Exchange the code of an App manifest; it works once, within an hour.

    https://docs.github.com/rest/apps/apps#create-a-github-app-from-a-manifest
    """
    action, path = "exchange the code for the new App", f"/app-manifests/{quote(code, safe='')}/conversions"
    async with GitHubConnection("", api_url, ca_file=ca_file) as connection:
        return await connection.json(RegisteredApp, action, "POST", path, repeat=False, secret=True)


class RegisteredApp(Facts):
    """An App created from a manifest; GitHub returns the secrets once."""

    id: int
    slug: str
    owner: str = Field(validation_alias=AliasPath("owner", "login"))
    html_url: str
    private_key: str = Field(validation_alias="pem", repr=False)
    webhook_secret: Text = Field(default="", repr=False)
    client_id: str
    client_secret: str = Field(repr=False)


_INVALID: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "contents": ("git/refs", {"ref": "codepilot", "sha": "0" * 40}),
    "pull_requests": ("pulls", {"title": "", "head": "", "base": ""}),
}
"""Requests that can never succeed, by the permission that they need."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens for git; `on_mint` is called with each before its use. A plain token is returned unchanged."""

    connection: GitHubConnection
    on_mint: Callable[[str], None] = field(repr=False)

    async def for_clone(self, repo: str) -> str:
        """Return a token that can only read this repository's files."""
        return await self._token(repo, {"contents": "read"})

    async def for_push(self, repo: str, *, workflows: bool = False) -> str:
        """Return a token that can only write this repository's files."""
        await self.connection.before_write()
        return await self._token(repo, {"contents": "write", **({"workflows": "write"} if workflows else {})})

    def forget(self, repo: str) -> None:
        if isinstance(self.connection.auth, InstallationAuth):
            self.connection.auth.tokens.forget(repo)

    async def can_write_workflows(self) -> bool | None:
        """Whether workflow files can be changed; None if unknown, with a plain token."""
        auth = self.connection.auth
        if not isinstance(auth, InstallationAuth):
            return None
        return (await self._granted(auth)).get("workflows") == "write"

    async def find_missing(self, repo: str, names: Collection[str]) -> tuple[str, ...]:
        """Return the permissions, of `contents` and `pull_requests`, to write with which the token surely lacks.

        GitHub tells a workflow's token nothing about its permissions. It refuses an invalid request for a missing
        permission first.
        """
        auth = self.connection.auth
        if isinstance(auth, InstallationAuth):
            await self.connection.token()
            held = auth.tokens.permissions(())
            if held and not all(held.get(name) == "write" for name in names):
                held = await self._granted(auth)  # perhaps accepted since
            return tuple(name for name in names if held and held.get(name) != "write")
        missing = []
        for name in names:
            path, body = _INVALID[name]
            try:
                action = f"check the permission {name}"
                await self.connection.request(action, "POST", f"/repos/{repo}/{path}", body, writes=False)
            except GitHubError as error:
                missing += [name] if error.lacks_permission else []
        return tuple(missing)

    async def _granted(self, auth: InstallationAuth) -> Mapping[str, str]:
        path, action = f"/app/installations/{auth.installation_id}", "read the App's installation"
        return (await self.connection.json(Installation, action, "GET", path, as_app=True)).permissions

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        auth = self.connection.auth
        if not isinstance(auth, InstallationAuth):
            return (await self.connection.token())[1]
        scope = (repo, *(f"{name}: {level}" for name, level in sorted(permissions.items())))
        token = await auth.tokens.get(scope, partial(self.connection.mint, auth, repo, permissions))
        self.on_mint(token)
        return token


class _Repository(Facts):
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    client_id: str
    client_secret: str
    server_url: str
    api_url: str
    ca_file: Path | None = None

    async def exchange(self, code: str, verifier: str) -> str:
        """Exchange a sign-in code and PKCE verifier for the user's token."""
        action = "exchange the code of a sign-in"
        body = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "code": code,
            "code_verifier": verifier,
        }
        path, accept = "/login/oauth/access_token", "application/json"
        async with GitHubConnection("", self.server_url, ca_file=self.ca_file) as connection:
            answer = await connection.request(action, "POST", path, body, accept=accept, repeat=False, secret=True)
        token = answer.data.get("access_token") if isinstance(answer.data, dict) else None
        if not isinstance(token, str) or not token:
            # GitHub's status is 200 for any failure; the description may repeat the secret.
            raise unreadable_answer(
                action, HTTPStatus.OK, "no token; was the code used before, or the client secret changed?"
            )
        return token

    async def login(self, token: str) -> str:
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            return (await connection.read(Actor, "read the account that signs in", "/user")).login

    async def repositories(self, token: str) -> frozenset[int] | None:
        """Return the ids of repositories accessible to user and App; None for an expired token."""
        repository_ids = set[int]()
        async with GitHubConnection(token, self.api_url, ca_file=self.ca_file) as connection:
            try:
                async for installation in connection.entries(
                    Installation, "list a person's installations", "/user/installations", within="installations"
                ):
                    path = f"/user/installations/{installation.id}/repositories"
                    listed = connection.entries(
                        _Repository, "list a person's repositories", path, within="repositories"
                    )
                    try:
                        async for repo in listed:
                            repository_ids.add(repo.id)
                            if len(repository_ids) >= MAX_REPOSITORIES:
                                return frozenset(repository_ids)
                    except GitHubError as error:
                        # Suspended, or removed meanwhile: its repositories are not known, those of the others are.
                        if error.limited or error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                            raise
            except GitHubError as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    return None
                raise
        return frozenset(repository_ids)


def _server_time(answer: Answer | None) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")) if answer else None
    except (OverflowError, ValueError):
        return None
