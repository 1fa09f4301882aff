"""Identities for PyGithub: the App, one of its installations, or nobody; and the installation's tokens.

A token lasts an hour. `TokenStore` mints each once, shares it among all jobs of the installation, and replaces it
before it expires or when GitHub no longer accepts it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from github import Auth
from github.Requester import Requester
from opentelemetry.trace import SpanKind
from typing_extensions import override

from agent_runtime import traced
from bot.github.types import explained, parsed

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
Scope = tuple[str, ...]
"""What a token is for: a repository and its permissions; empty for all that the installation may do."""


class AppIdentity(Auth.AppAuth):
    """The App's identity; every request as the App itself is signed separately, by GitHub's clock where ours is wrong.

    Args:
        app_id: the App's.
        private_key: the App's, in PEM.
    """

    def __init__(self, app_id: int | str, private_key: str) -> None:
        super().__init__(app_id, sign_func=self._signed)
        self._private_key = private_key
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
        """GitHub's time, as far as it is known."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def _signed(self, payload: dict[str, Any]) -> str:
        times = {name: payload[name] + self._ahead for name in ("iat", "exp")}
        return jwt.encode({**payload, **times}, _signing_key(self._private_key), algorithm="RS256")


class InstallationAuth(Auth.AppInstallationAuth):
    """PyGithub's own, with tokens that all clients of the installation share.

    Args:
        app: who we are.
        installation_id: GitHub's number of the installation.
        tokens: where its tokens are kept.
        minted: called with each token before it is used, so that it is taken out of whatever leaves.
    """

    def __init__(
        self, app: AppIdentity, installation_id: int, *, tokens: TokenStore, minted: Callable[[str], None]
    ) -> None:
        super().__init__(app, installation_id)
        self.tokens = tokens
        self.app = app
        self._minted = minted
        self._used = ""
        self._proven = ""

    @property
    @override
    def token(self) -> str:
        self._used = self.tokens.get((), self.mint)
        self._minted(self._used)
        return self._used

    def mint(self, repo: str = "", permissions: Mapping[str, str] | None = None) -> Token:
        """Ask for a token, for one repository and some permissions or for all that the installation may do.

        PyGithub's `get_access_token` cannot narrow a token to a repository, and takes a page of HTML for an answer.
        """
        what = f"mint a token for {repo or 'the installation'}"
        body = {"repositories": [repo.partition("/")[2]]} if repo else {}
        path = f"/app/installations/{self.installation_id}/access_tokens"
        # PyGithub gives this class a requester that signs as the App.
        _, answer = checked(what, self.requester, "POST", path, input={**body, "permissions": dict(permissions or {})})
        expires_at = datetime.fromisoformat(answer["expires_at"])  # by GitHub's clock
        return Token.lasting((expires_at - self.app.now()).total_seconds(), str(answer["token"]))

    def refused(self, *, outright: bool) -> bool:
        """Whether to ask again with a new token, now that GitHub refused the one that was used last."""
        return self.tokens.refused(self._used, outright=outright, proven=self._used == self._proven)

    def wrote(self) -> None:
        """Take note that the token which was used last may write where this client writes: in its job's repository."""
        self._proven = self._used


class Anonymous(Auth.Auth):
    """Nobody: for the few things that GitHub tells without a signature."""

    @property
    @override
    def token_type(self) -> str:
        return ""

    @property
    @override
    def token(self) -> str:
        return ""

    @override
    def authentication(self, headers: dict[str, str]) -> None:
        """Add nothing."""


class TokenStore:
    """The tokens of one installation, each minted once and used by all jobs until shortly before it expires.

    It is called from the threads of connections: who needs a token that is being minted waits for it there.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._locks: dict[Scope, threading.Lock] = {}
        self._tokens: dict[Scope, Token] = {}

    def get(self, scope: Scope, mint: Callable[[], Token]) -> str:
        """The token for `scope`; `mint` makes one when there is none, or it expires soon."""
        with self._guard:
            lock = self._locks.setdefault(scope, threading.Lock())
        with lock:
            token = self._tokens.get(scope)
            if token is not None and token.expires_at - self._clock() >= RENEW_SECONDS:
                return token.value
            token, now = mint(), self._clock()
            with self._guard:
                # Installations have thousands of repositories, and a process lives for months.
                for each in [each for each, kept in self._tokens.items() if kept.expires_at <= now]:
                    del self._tokens[each]
                    self._locks.pop(each, None)
                self._tokens[scope] = token
            return token.value

    def refused(self, value: str, *, outright: bool, proven: bool = False) -> bool:
        """Forget a token that GitHub refused, and say whether it is worth asking with a new one.

        Args:
            value: the token.
            outright: whether GitHub does not know it at all (401); else it may not do what was asked.
            proven: whether the caller has written with it before, in the same repository.
        """
        believed = BELIEVED_SECONDS if proven else UNPROVEN_SECONDS
        with self._guard:
            for scope, token in self._tokens.items():
                if token.value == value:
                    old = outright or self._clock() - token.minted_at > believed
                    if old:
                        del self._tokens[scope]
                    return old
        return True  # somebody else has had it replaced already

    def forget(self, repo: str) -> None:
        """Forget the tokens that were narrowed to a repository."""
        with self._guard:
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
        """A token that was minted just now and expires so many seconds later."""
        now = time.time()
        return cls(value=value, minted_at=now, expires_at=now + seconds)


def checked(what: str, requester: Requester, verb: str, path: str, **parts: Any) -> tuple[dict[str, Any], Any]:  # noqa: ANN401 - PyGithub's
    """One request's headers and parsed answer.

    PyGithub's own `requestJsonAndCheck` takes a page of HTML for an answer, and stumbles over lists.
    """
    # The part of the address that is the same for all: no name that a stranger chose.
    first, *rest = urlsplit(path).path.strip("/").split("/")
    route = "/graphql" if rest[-1:] == ["graphql"] else f"/{first}"
    if first == "repos":
        route = "/".join(("/repos/{owner}/{repo}", *rest[2:3]))
    asked = {"http.request.method": verb, "url.template": route}
    with traced(f"{verb} {route}", asked, kind=SpanKind.CLIENT) as span:
        status, headers, text = requester.requestJson(verb, path, **parts)
        span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.BAD_REQUEST:
        raise requester.createException(status, headers, explained(text))
    return headers, parsed(what, text, status=status)


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    """The key, read once: each reading tests its primes, for tens of milliseconds of which other jobs get nothing."""
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public key")
    return key
