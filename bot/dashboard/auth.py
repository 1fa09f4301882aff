"""Sign people in, by the operator's token or by GitHub.

A sign-in is an encrypted cookie; the server keeps none. The operator sees all repositories, a person those that GitHub
lists for them.
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
"""For how long a sign-in lasts; GitHub's tokens for people expire then, too."""

Proxies = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
_CUSTOMER_BITS = 64
"""A provider gives each customer at least so many bits of IPv6 addresses to choose from (RFC 6177)."""
_ATTEMPTS, _ATTEMPTS_SECONDS = 20, 60.0
_MOST_ADDRESSES = 10_000
_MOST_SIGNED_OUT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in, as it stands in its cookie.

    Attributes:
        id: names it.
        form: the value that forms of its pages repeat.
        until: when it ends, in seconds since the epoch.
        login: the person's on GitHub; empty for the operator, who sees all repositories.
        token: the token that GitHub gave for the person.
    """

    id: str
    form: str
    until: float
    login: str = ""
    token: str = ""


_SIGN_IN = TypeAdapter(SignIn)


class SignIns:
    """Makes and reads sign-ins.

    Args:
        key: 32 bytes that encrypt the cookies.
        token: the operator's; None where nobody can sign in by one.
        clock: seconds since the epoch.
    """

    def __init__(self, key: bytes, token: SecretStr | None, *, clock: Callable[[], float] = time.time) -> None:
        self._sealed = Fernet(base64.urlsafe_b64encode(key))
        self._token, self._clock = token, clock
        self._attempts: dict[str, deque[float]] = {}
        self._signed_out: dict[str, float] = {}

    @property
    def by_token(self) -> bool:
        """Return whether the operator can sign in by a token."""
        return self._token is not None

    def may_try(self, address: str) -> bool:
        """Count an attempt from an address; return whether it may be made."""
        now = self._clock()
        made = self._attempts.pop(address, None) or deque[float]()
        while made and made[0] <= now - _ATTEMPTS_SECONDS:
            made.popleft()
        allowed = len(made) < _ATTEMPTS
        if allowed:
            made.append(now)
        self._attempts[address] = made
        while len(self._attempts) > _MOST_ADDRESSES:
            del self._attempts[next(iter(self._attempts))]
        return allowed

    def is_operator(self, shown: str) -> bool:
        """Return whether a text is the operator's token."""
        if self._token is None:
            return False
        expected = self._token.get_secret_value().encode()
        return hmac.compare_digest(shown.encode(errors="surrogateescape"), expected)

    def new(self, *, login: str = "", token: str = "") -> str:
        """A cookie with a new sign-in, of the operator unless a person is named."""
        made = SignIn(
            id=secrets.token_urlsafe(16),
            form=secrets.token_urlsafe(16),
            until=self._clock() + SIGN_IN_SECONDS,
            login=login,
            token=token,
        )
        return self.seal(asdict(made))

    def read(self, cookie: str) -> SignIn | None:
        """The sign-in of a cookie; None for one that is not ours, is over or was signed out."""
        try:
            found = _SIGN_IN.validate_python(self.unseal(cookie))
        except ValidationError:
            return None
        if found.until <= self._clock() or found.id in self._signed_out or (not found.login and not self.by_token):
            return None
        return found

    def end(self, sign_in: SignIn) -> None:
        """Let a sign-in count no more in this process, even if its cookie is sent again."""
        now = self._clock()
        self._signed_out = {each: until for each, until in self._signed_out.items() if until > now}
        if len(self._signed_out) < _MOST_SIGNED_OUT:
            self._signed_out[sign_in.id] = sign_in.until

    def seal(self, values: dict[str, str | float]) -> str:
        """Return values as a text that nobody else can read or make."""
        return self._sealed.encrypt(json.dumps(values).encode()).decode()

    def unseal(self, text: str) -> object:
        """Return the sealed values; None for any other text."""
        try:
            return json.loads(self._sealed.decrypt(text.encode(errors="replace")))
        except (InvalidToken, ValueError):
            return None


def client_of(peer: str, forwarded: str, proxies: Proxies) -> str:
    """Return the address by which a client is counted: of IPv6, the network of the customer.

    A client can write any `X-Forwarded-For`, so an address in it counts only if a proxy of the operator wrote it. Each
    adds its own client at the end.

    Args:
        peer: the address of the connection.
        forwarded: the header.
        proxies: the operator's.
    """
    address = _address(peer)
    for hop in reversed(forwarded.split(",")):
        if address is None or not any(address in network for network in proxies) or (client := _address(hop)) is None:
            break
        address = client
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), _CUSTOMER_BITS), strict=False))
    return peer if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    # A socket for both families shows IPv4 in IPv6.
    return getattr(address, "ipv4_mapped", None) or address


ATTEMPT_SECONDS = 600
"""How long a person may take on GitHub's page."""

_KNOWN_SECONDS = 300.0
_MOST_KNOWN = 1_000


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

    def __init__(self, directory: OAuthClient, sign_ins: SignIns, *, clock: Callable[[], float] = time.time) -> None:
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
