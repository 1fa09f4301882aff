"""Sign-in with the operator's token or with GitHub, stored in encrypted cookies only.

Operators see all repositories, people those that GitHub lists for them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr, TypeAdapter, ValidationError

from bot.github.app import OAuthClient

SIGN_IN_SECONDS = 8 * 3600
"""Lifetime of a sign-in, as of GitHub's user tokens."""

Proxies = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
_CUSTOMER_BITS = 64
"""Prefix length of a customer's IPv6 network (RFC 6177)."""
_ATTEMPTS, _ATTEMPTS_SECONDS = 20, 60.0
_MAX_ADDRESSES = 10_000
_MAX_SIGNED_OUT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in, as stored in its cookie.

    Attributes:
        form: CSRF token.
        until: seconds since the epoch.
        login: empty for the operator.
        token: the person's GitHub token.
    """

    id: str
    form: str
    until: float
    login: str = ""
    token: str = ""


_SIGN_IN = TypeAdapter(SignIn)


class SignIns:
    """Create and read sign-ins."""

    def __init__(self, key: bytes, token: SecretStr | None, *, clock: Callable[[], float] = time.time) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(key))
        self._token, self._clock = token, clock
        self._attempts: dict[str, deque[float]] = {}
        self._signed_out: dict[str, float] = {}

    @property
    def has_token(self) -> bool:
        return self._token is not None

    def count_attempt(self, address: str) -> bool:
        """Count an attempt; return whether it is within the limit."""
        now = self._clock()
        attempts = self._attempts.pop(address, None) or deque[float]()
        while attempts and attempts[0] <= now - _ATTEMPTS_SECONDS:
            attempts.popleft()
        allowed = len(attempts) < _ATTEMPTS
        if allowed:
            attempts.append(now)
        self._attempts[address] = attempts
        while len(self._attempts) > _MAX_ADDRESSES:
            del self._attempts[next(iter(self._attempts))]
        return allowed

    def is_operator(self, token: str) -> bool:
        if self._token is None:
            return False
        expected = self._token.get_secret_value().encode()
        return hmac.compare_digest(token.encode(errors="surrogateescape"), expected)

    def create(self, *, login: str = "", token: str = "") -> str:
        """Return a cookie for a new sign-in, the operator's by default."""
        sign_in = SignIn(
            id=secrets.token_urlsafe(16),
            form=secrets.token_urlsafe(16),
            until=self._clock() + SIGN_IN_SECONDS,
            login=login,
            token=token,
        )
        return self.seal(asdict(sign_in))

    def read(self, cookie: str) -> SignIn | None:
        """Return a cookie's sign-in; None if invalid, expired or signed out."""
        try:
            sign_in = _SIGN_IN.validate_python(self.unseal(cookie))
        except ValidationError:
            return None
        if (
            sign_in.until <= self._clock()
            or sign_in.id in self._signed_out
            or (not sign_in.login and not self.has_token)
        ):
            return None
        return sign_in

    def revoke(self, sign_in: SignIn) -> None:
        """Revoke a sign-in in this process."""
        now = self._clock()
        self._signed_out = {sign_in_id: until for sign_in_id, until in self._signed_out.items() if until > now}
        if len(self._signed_out) < _MAX_SIGNED_OUT:
            self._signed_out[sign_in.id] = sign_in.until

    def seal(self, values: dict[str, str | float]) -> str:
        return self._fernet.encrypt(json.dumps(values).encode()).decode()

    def unseal(self, text: str) -> object:
        """Decrypt values; None if invalid."""
        try:
            return json.loads(self._fernet.decrypt(text.encode(errors="replace")))
        except (InvalidToken, ValueError):
            return None


def client_address(peer: str, forwarded: str, proxies: Proxies) -> str:
    """Return the address by which to limit a client: for IPv6, its customer's network.

    Clients can send any `X-Forwarded-For`; only entries added by the operator's proxies count, the last first.
    """
    address = _parse_address(peer)
    for hop in reversed(forwarded.split(",")):
        if (
            address is None
            or not any(address in network for network in proxies)
            or (client := _parse_address(hop)) is None
        ):
            break
        address = client
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), _CUSTOMER_BITS), strict=False))
    return peer if address is None else str(address)


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 addresses mapped to IPv6.
    return getattr(address, "ipv4_mapped", None) or address


ATTEMPT_SECONDS = 600
"""Time limit for GitHub's page."""

_CACHE_SECONDS = 300.0
_MAX_CACHED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _SignInAttempt:
    """A started GitHub sign-in, as stored in its cookie."""

    state: str
    verifier: str
    next: str
    until: float


_ATTEMPT = TypeAdapter(_SignInAttempt)


class People:
    def __init__(self, directory: OAuthClient, sign_ins: SignIns, *, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._sign_ins, self._clock = directory, sign_ins, clock
        self._cache: dict[str, tuple[float, asyncio.Future[frozenset[int] | None]]] = {}

    def start(self, next_page: str) -> tuple[str, str]:
        """Return GitHub's address and a cookie for the callback."""
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
        """Return the sign-in's cookie and the next page; None if the callback does not match, or has no login.

        Raises:
            GitHubError: no answer, or an invalid code.
        """
        try:
            attempt = _ATTEMPT.validate_python(self._sign_ins.unseal(cookie))
        except ValidationError:
            return None
        is_same = hmac.compare_digest(attempt.state.encode(), state.encode(errors="replace"))
        if not is_same or attempt.until <= self._clock() or not code:
            return None
        token = await self._directory.exchange(code, attempt.verifier)
        login = await self._directory.login(token)
        # A sign-in without a login is the operator's.
        return (self._sign_ins.create(login=login, token=token), attempt.next) if login else None

    async def repositories(self, token: str) -> frozenset[int] | None:
        """Return the visible repositories, cached for five minutes; None for an invalid token.

        Raises:
            GitHubError: no answer.
        """
        key = hashlib.sha256(token.encode()).hexdigest()
        until, request = self._cache.get(key, (0.0, None))
        if request is None or until <= self._clock() or (request.done() and request.exception() is not None):
            request = asyncio.ensure_future(self._directory.repositories(token))
            self._cache.pop(key, None)
            self._cache[key] = (self._clock() + _CACHE_SECONDS, request)
            while len(self._cache) > _MAX_CACHED:
                del self._cache[next(iter(self._cache))]
        # Several pages may share one request, which must survive the cancellation of one.
        return await asyncio.shield(request)
