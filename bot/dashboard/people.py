"""Sign people in by GitHub, and know which repositories each of them may see."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from bot.dashboard.sign_in import SignIns

ATTEMPT_SECONDS = 600
"""How long a person may take on GitHub's page."""

_KNOWN_SECONDS = 300.0
_MOST_KNOWN = 1_000


class PeopleDirectory(Protocol):
    """GitHub, as it signs people in; every method may raise `GitHubError`. `OAuthClient` is one."""

    @property
    def client_id(self) -> str:
        """The App's."""
        ...

    @property
    def server_url(self) -> str:
        """GitHub's address for people."""
        ...

    async def exchange(self, code: str, verifier: str) -> str:
        """The token for the code that a person came back with."""
        ...

    async def login(self, token: str) -> str:
        """The login of the person whose token it is."""
        ...

    async def repositories(self, token: str) -> frozenset[int] | None:
        """The repositories that a person may see; None for a token that ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _SignInAttempt:
    """A person who was sent to GitHub, as it stands in their cookie."""

    state: str
    verifier: str
    next: str
    until: float


_ATTEMPT = TypeAdapter(_SignInAttempt)


class People:
    """Sends people to GitHub, takes them back, and looks up what they may see.

    Args:
        directory: GitHub.
        sign_ins: makes their cookies.
        clock: seconds since the epoch.
    """

    def __init__(
        self, directory: PeopleDirectory, sign_ins: SignIns, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory, self._sign_ins, self._clock = directory, sign_ins, clock
        self._known: dict[str, tuple[float, asyncio.Future[frozenset[int] | None]]] = {}

    def begin(self, next_page: str) -> tuple[str, str]:
        """The address of GitHub's page, and the cookie by which the person is known again."""
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "client_id": self._directory.client_id,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        until = self._clock() + ATTEMPT_SECONDS
        cookie = self._sign_ins.seal({"state": state, "verifier": verifier, "next": next_page, "until": until})
        return f"{self._directory.server_url}/login/oauth/authorize?{urlencode(query)}", cookie

    async def finish(self, cookie: str, *, state: str, code: str) -> tuple[str, str] | None:
        """Take a person back: the cookie of their sign-in, and the page that they wanted.

        None when it was not this browser that was sent to GitHub, or not lately, or GitHub does not say who it is.

        Raises:
            GitHubError: GitHub did not answer, or does not take the code.
        """
        try:
            begun = _ATTEMPT.validate_python(self._sign_ins.unseal(cookie))
        except ValidationError:
            return None
        same = hmac.compare_digest(begun.state.encode(), state.encode(errors="replace"))
        if not same or begun.until <= self._clock() or not code:
            return None
        token = await self._directory.exchange(code, begun.verifier)
        login = await self._directory.login(token)
        # A sign-in without a login is the operator's.
        return (self._sign_ins.new(login=login, token=token), begun.next) if login else None

    async def repositories(self, token: str) -> frozenset[int] | None:
        """The repositories that a person may see, as of the last five minutes; None for a token that ended.

        Raises:
            GitHubError: GitHub did not answer.
        """
        key = hashlib.sha256(token.encode()).hexdigest()
        until, asked = self._known.get(key, (0.0, None))
        if asked is None or until <= self._clock() or (asked.done() and asked.exception() is not None):
            asked = asyncio.ensure_future(self._directory.repositories(token))
            self._known.pop(key, None)
            self._known[key] = (self._clock() + _KNOWN_SECONDS, asked)
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        # Several pages may wait for one answer; that one of them is closed must not end it for the others.
        return await asyncio.shield(asked)
