"""A plain client for the local hub's API: what goes over the wire and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import aiohttp
import jwt

from localhub import App, LocalHub


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer; `body` is the parsed JSON, or the text."""

    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Client:
    """Asks the API with one token; `follows` tells whether it goes where a redirection leads."""

    hub: LocalHub
    session: aiohttp.ClientSession
    token: str
    follows: bool = True

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """One request to a path below the API's root, or to a whole address."""
        url = path if path.startswith("http") else f"{self.hub.api_url}{path}"
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        async with self.session.request(method, url, json=body, headers=sent, allow_redirects=self.follows) as response:
            text = await response.text()
            parsed = json.loads(text) if "json" in response.content_type and text else text
            return Reply(status=response.status, body=parsed, headers=response.headers)

    def with_token(self, token: str) -> Client:
        """The same with another token; an empty one is nobody."""
        return replace(self, token=token)

    def staying(self) -> Client:
        """The same, but showing redirections instead of following them."""
        return replace(self, follows=False)


@asynccontextmanager
async def client(hub: LocalHub, token: str = "") -> AsyncIterator[Client]:
    """A client that closes its connections at the end."""
    async with aiohttp.ClientSession() as session:
        yield Client(hub, session, token)


def app_jwt(app: App, *, now: datetime | None = None, life: int = 300, key: str | None = None) -> str:
    """An App's own JWT."""
    issued = int((now or datetime.now(UTC)).timestamp())
    claims = {"iat": issued - 60, "exp": issued + life, "iss": str(app.id)}
    return jwt.encode(claims, _read(key or app.private_key_pem), algorithm="RS256")


@cache
def _read(pem: str) -> Any:  # noqa: ANN401 - whatever PyJWT signs with
    """A key, read once, as each reading tests its primes for tens of milliseconds."""
    return jwt.get_algorithm_by_name("RS256").prepare_key(pem)


async def installation_token(asking: Client, app: App, installation: int, **narrowed: object) -> str:
    """A fresh installation token."""
    path = f"/app/installations/{installation}/access_tokens"
    reply = await asking.with_token(app_jwt(app)).ask("POST", path, narrowed)
    assert reply.status == 201, reply.body
    return str(reply.body["token"])
