"""Identities that sign requests: the App, an installation or a plain token; and the shared installation tokens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

log = logging.getLogger(__name__)
RENEW_SECONDS = 300.0
"""A token is replaced this long before it expires, so that a fetch or push can finish."""
BELIEVED_SECONDS = 60.0
"""A refusal of a younger token is final. An older token may lack a permission or repository that was added since."""
UNPROVEN_SECONDS = 5.0
"""The same for a token that has not written yet: the repository may be newer than the token."""
_TOLERATED_SECONDS = 30
"""A smaller clock difference is not corrected."""
_BACKDATED_SECONDS = 60
_SIGNED_SECONDS = 300
Scope = tuple[str, ...]
"""A repository and its permissions; empty for the whole installation."""


class AppIdentity:
    """The App's identity, which corrects for a wrong local clock."""

    def __init__(self, app_id: int | str, private_key: str) -> None:
        self._app_id, self._private_key = app_id, private_key
        self._ahead = 0

    def correct_clock(self, date: str) -> bool:
        """Adjust to GitHub's `Date` header; return whether it helped."""
        try:
            ahead = round(parsedate_to_datetime(date).timestamp() - time.time())
        except (OverflowError, ValueError):
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
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def sign(self) -> str:
        """Return a JSON web token.

        Raises:
            InvalidKeyError: the private key is invalid.
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
    """An installation's identity.

    Attributes:
        on_mint: called with each token before its use, so that it is redacted.
        proven_token: the last one used to write.
    """

    app: AppIdentity
    installation_id: int
    tokens: TokenStore
    on_mint: Callable[[str], None] = field(repr=False)
    proven_token: str = field(default="", repr=False)

    async def token(self, mint: Callable[[], Awaitable[Token]]) -> str:
        token = await self.tokens.get((), mint)
        self.on_mint(token)
        return token

    def refuse(self, token: str, *, outright: bool) -> bool:
        """Return whether to retry with a new token after a refusal of this one."""
        return self.tokens.refuse(token, outright=outright, proven=token == self.proven_token)


Identity = AppIdentity | InstallationAuth | str
"""The signer of a request; an empty string leaves it unsigned."""


class TokenStore:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._locks: dict[Scope, asyncio.Lock] = {}
        self._tokens: dict[Scope, Token] = {}

    async def get(self, scope: Scope, mint: Callable[[], Awaitable[Token]]) -> str:
        async with self._locks.setdefault(scope, asyncio.Lock()):
            token = self._tokens.get(scope)
            if token is not None and token.expires_at - self._clock() >= RENEW_SECONDS:
                return token.value
            token, now = await mint(), self._clock()
            # Installations have thousands of repositories, and a process lives for months.
            for expired in [key for key, stored in self._tokens.items() if stored.expires_at <= now]:
                del self._tokens[expired]
                self._locks.pop(expired, None)
            self._tokens[scope] = token
            return token.value

    def permissions(self, scope: Scope) -> Mapping[str, str]:
        token = self._tokens.get(scope)
        return token.permissions if token is not None else {}

    def refuse(self, value: str, *, outright: bool, proven: bool = False) -> bool:
        """Forget a refused token; return whether to retry with a new one.

        Args:
            value: the token.
            outright: whether the refusal was a 401.
            proven: whether the caller has written with it.
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
        for scope in [key for key in self._tokens if key[:1] == (repo,)]:
            del self._tokens[scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    value: str
    minted_at: float
    expires_at: float
    permissions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def expiring_in(cls, seconds: float, value: str, permissions: Mapping[str, str] | None = None) -> Token:
        now = time.time()
        return cls(value=value, minted_at=now, expires_at=now + seconds, permissions=permissions or {})


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public key")
    return key
