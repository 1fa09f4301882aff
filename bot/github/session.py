"""What is known of an App for as long as the process lives: who it is, its tokens, and whose turn it is to write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bot.github.facts import BotIdentity
from bot.github.limits import Limits
from bot.github.pace import RequestPace

Scope = tuple[str, ...]
"""What a token is for: a repository and its permissions; empty for all that the installation may do."""

RENEW_SECONDS = 300.0
"""A token is replaced this long before it expires, so that whoever is given one can finish a fetch or a push."""

BELIEVED_SECONDS = 60.0
"""A refusal of a token younger than this is believed. An older one may be refused for what has changed since it was
minted: a permission that the owner has accepted, a repository that was added."""

UNPROVEN_SECONDS = 5.0
"""The same for a token that the client has written nothing with: the repository may be newer than the token. A
repository in which the App may not write costs one more token in this time."""


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
        with self._lock_of(scope):
            token = self._tokens.get(scope)
            if token is None or token.expires_at - self._clock() < RENEW_SECONDS:
                token = mint()
                self._keep(scope, token)
            return token.value

    def refused(self, value: str, *, outright: bool, proven: bool = False) -> bool:
        """Forget a token that GitHub refused, and say whether it is worth asking with a new one.

        Args:
            value: the token.
            outright: whether GitHub does not know it at all (401); else it may not do what was asked.
            proven: whether whoever asks has written with it before, in the same repository.
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

    def _keep(self, scope: Scope, token: Token) -> None:
        now = self._clock()
        with self._guard:
            # Installations have thousands of repositories, and a process lives for months.
            for each in [each for each, kept in self._tokens.items() if kept.expires_at <= now]:
                del self._tokens[each]
                self._locks.pop(each, None)
            self._tokens[scope] = token

    def _lock_of(self, scope: Scope) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(scope, threading.Lock())


class AppSession:
    """One App, in one process.

    Args:
        seconds: between two writes of one installation; see `RequestPace`.

    Attributes:
        identity: who the App is, once somebody has asked.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._installations: dict[int, InstallationSession] = {}
        self.identity: BotIdentity | None = None

    def of(self, installation: int) -> InstallationSession:
        """The same one for the same installation."""
        return self._installations.setdefault(installation, InstallationSession(self, RequestPace(self._seconds)))


class InstallationSession:
    """One installation of the App, shared by the clients of all its jobs.

    Attributes:
        app: the App.
        pace: whose turn it is to write.
        tokens: those that were minted and still serve.
        limits: what GitHub says of its limits.
    """

    def __init__(self, app: AppSession, pace: RequestPace) -> None:
        self.app = app
        self.pace = pace
        self.tokens = TokenStore()
        self.limits = Limits()
