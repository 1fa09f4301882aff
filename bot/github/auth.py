"""Identities that sign requests: the App, one of its installations, or a plain token; and the installation's tokens.

A token lasts an hour. `TokenStore` mints each once, shares it among all jobs of the installation, and replaces it
before it expires or when GitHub no longer accepts it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

log = logging.getLogger(__name__)
RENEW_SECONDS = 300.0
"""A token is replaced this long before it expires, so that there is time to finish a fetch or a push with it."""
BELIEVED_SECONDS = 60.0
"""A refusal of a token younger than this is believed. An older one may be refused for what has changed since it was
minted: a permission that the owner has accepted, a repository that was added."""
UNPROVEN_SECONDS = 5.0
"""The same for a token that the client has written nothing with: the repository may be newer than the token. A
repository in which the App may not write costs one more token in this time."""
_TOLERATED_SECONDS = 30
"""The difference between two clocks that is not worth a correction."""
_BACKDATED_SECONDS = 60
_SIGNED_SECONDS = 300
Scope = tuple[str, ...]
"""The purpose of a token: a repository and its permissions; empty for all that the installation may do."""


class AppIdentity:
    """The App's identity; every request as the App itself is signed separately, by GitHub's clock where ours is wrong.

    Args:
        app_id: the App's.
        private_key: the App's, in PEM.
    """

    def __init__(self, app_id: int | str, private_key: str) -> None:
        self._app_id, self._private_key = app_id, private_key
        self._ahead = 0

    def correct_clock(self, date: str) -> bool:
        """Learn from GitHub's `Date` header how far our clock is off; False when it is not, or there is no date."""
        try:
            ahead = round(parsedate_to_datetime(date).timestamp() - time.time())
        except ValueError:
            return False
        if abs(ahead - self._ahead) <= _TOLERATED_SECONDS:
            return False
        self._ahead = ahead
        log.warning(
            "this machine's clock is %d s %s GitHub's, so GitHub refuses the App's tokens; from now on they are "
            "signed for GitHub's time. Set the clock, e.g. `timedatectl set-ntp true`",
            abs(ahead),
            "behind" if ahead > 0 else "ahead of",
        )
        return True

    def now(self) -> datetime:
        """Return GitHub's time, as far as it is known."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def sign(self) -> str:
        """Return a JSON web token that lasts a few minutes.

        gidgethub's `get_jwt` knows no other clock than this machine's, and reads the key each time.

        Raises:
            InvalidKeyError: the private key is none.
        """
        issued_at = int(self.now().timestamp()) - _BACKDATED_SECONDS
        claims = {
            "iat": issued_at,
            "exp": issued_at + _BACKDATED_SECONDS + _SIGNED_SECONDS,
            "iss": str(self._app_id),
        }
        return jwt.encode(claims, _signing_key(self._private_key), algorithm="RS256")


@dataclass(slots=True, kw_only=True)
class InstallationAuth:
    """An installation's identity, with tokens that all its connections share.

    Attributes:
        app: the App.
        installation_id: GitHub's number of the installation.
        tokens: the installation's.
        minted: called with each token before it is used, so that it is redacted from every text.
        proven: the token with which this connection has written, in its job's repository.
    """

    app: AppIdentity
    installation_id: int
    tokens: TokenStore
    minted: Callable[[str], None] = field(repr=False)
    proven: str = field(default="", repr=False)

    async def token(self, mint: Callable[[], Awaitable[Token]]) -> str:
        """Return the token for all that the installation may do."""
        token = await self.tokens.get((), mint)
        self.minted(token)
        return token

    def refuse(self, token: str, *, outright: bool) -> bool:
        """Return whether to repeat a request with a new token, after GitHub refused it with this one."""
        return self.tokens.refuse(token, outright=outright, proven=token == self.proven)


Identity = AppIdentity | InstallationAuth | str
"""The signer of a request; a plain token signs by itself, and an empty one leaves the request unsigned."""


class TokenStore:
    """The tokens of one installation, each minted once and used by all jobs until shortly before it expires."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._locks: dict[Scope, asyncio.Lock] = {}
        self._tokens: dict[Scope, Token] = {}

    async def get(self, scope: Scope, mint: Callable[[], Awaitable[Token]]) -> str:
        """Return the token for `scope`; `mint` makes one when there is none, or it expires soon."""
        async with self._locks.setdefault(scope, asyncio.Lock()):
            token = self._tokens.get(scope)
            if token is not None and token.expires_at - self._clock() >= RENEW_SECONDS:
                return token.value
            token, now = await mint(), self._clock()
            # Installations have thousands of repositories, and a process lives for months.
            for expired in [each for each, other in self._tokens.items() if other.expires_at <= now]:
                del self._tokens[expired]
                self._locks.pop(expired, None)
            self._tokens[scope] = token
            return token.value

    def refuse(self, value: str, *, outright: bool, proven: bool = False) -> bool:
        """Forget a token that GitHub refused; return whether the request may succeed with a new one.

        Args:
            value: the token.
            outright: whether GitHub does not know it at all (401); else it may not do what was asked.
            proven: whether the caller has written with it before, in the same repository.
        """
        believed = BELIEVED_SECONDS if proven else UNPROVEN_SECONDS
        for scope, token in self._tokens.items():
            if token.value == value:
                old = outright or self._clock() - token.minted_at > believed
                if old:
                    del self._tokens[scope]
                return old
        return True  # another request has had it replaced already

    def forget(self, repo: str) -> None:
        """Forget the tokens that were narrowed to a repository."""
        for scope in [each for each in self._tokens if each[:1] == (repo,)]:
            del self._tokens[scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of an installation; `value` is the secret."""

    value: str
    minted_at: float
    expires_at: float

    @classmethod
    def lasting(cls, seconds: float, value: str) -> Token:
        """Return a token that was minted just now and expires so many seconds later."""
        now = time.time()
        return cls(value=value, minted_at=now, expires_at=now + seconds)


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    """Read the key once: each reading tests its primes, for tens of milliseconds in which nothing else runs."""
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public key")
    return key
