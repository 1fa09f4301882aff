"""The App's identity and its installations' tokens, for PyGithub."""

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
from github import Auth, GithubException
from github.Requester import Requester, RequestsResponse
from opentelemetry.trace import SpanKind
from typing_extensions import override

from agent_runtime import traced
from bot.github.types import GitHubError, details, explained, parsed, remedy_for

# ---- One request through PyGithub, parsed or raised; and refusals as errors, with the pause that GitHub asks for.


_RATE_LIMITED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_SECONDARY_LIMIT_SECONDS = 60.0
_GRAPHQL_TROUBLE = ("Something went wrong while executing your query", "We couldn't respond to your request in time")


_CONNECTIONS = "_Requester__connectionClass"
"""What makes a requester's connections. PyGithub lets nobody choose it for one requester."""


def follow_nothing(requester: Requester) -> None:
    """Have PyGithub follow no 301: it would leave out the query, so `GitHubConnection` does that."""
    usual = getattr(requester, _CONNECTIONS)

    def connected(*place: object, **settings: object) -> object:
        connection = usual(*place, **settings)
        asked = connection.getresponse
        connection.getresponse = lambda: _unfollowed(asked())
        return connection

    setattr(requester, _CONNECTIONS, connected)


def _unfollowed(answer: RequestsResponse) -> RequestsResponse:
    if answer.status == HTTPStatus.MOVED_PERMANENTLY:
        answer.status = HTTPStatus.PERMANENT_REDIRECT
    return answer


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


def refusal(what: str, error: GithubException, attempt: int = 1, *, in_workflow: bool = False) -> GitHubError:
    """The error for an answer that says no.

    Args:
        what: what was asked.
        error: PyGithub's account of the answer.
        attempt: how often it was asked; a limit without a time is waited for longer each time.
        in_workflow: see `remedy_for`.
    """
    data = error.data if isinstance(error.data, dict) else {}
    general = data.get("message") or error.message
    said = "; ".join(filter(None, (general, *details(data.get("errors"))))) or "no reason given"
    # Where GraphQL came to nothing by a fault of GitHub's own, the status is 200.
    troubled = any(str(each.get("message")).startswith(_GRAPHQL_TROUBLE) for each in _graphql_errors(error))
    status = HTTPStatus.BAD_GATEWAY if troubled else error.status
    pause = limit_pause(error, attempt)
    needs = headers_of(error).get("x-accepted-github-permissions", "")
    remedy = remedy_for(status, said, needs=needs, in_workflow=in_workflow)
    return GitHubError(what, status, said, remedy, limited=pause is not None, retry_after=pause or 0.0)


def graphql_status(errors: object) -> int:
    """The status that REST would have answered with."""
    kinds = {each.get("type") for each in errors if isinstance(each, dict)} if isinstance(errors, list) else set()
    if "FORBIDDEN" in kinds:
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.NOT_FOUND if kinds == {"NOT_FOUND"} else HTTPStatus.BAD_REQUEST


def _graphql_errors(error: GithubException) -> list[dict[str, Any]]:
    """What GraphQL answered with status 200, which PyGithub makes a 400 of."""
    data = error.data if isinstance(error.data, dict) else {}
    found = data.get("errors") if "data" in data or "message" not in data else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def headers_of(error: GithubException) -> dict[str, str]:
    """The headers of an answer that says no, their names in lower case."""
    return {name.lower(): value for name, value in (error.headers or {}).items()}


def limit_pause(error: GithubException, attempt: int = 1) -> float | None:
    """Seconds that GitHub wants us to wait, or None when this is no rate limit.

    The rules: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    in_graphql = any(each.get("type") == "RATE_LIMITED" for each in _graphql_errors(error))
    if error.status not in _RATE_LIMITED and not in_graphql:
        return None
    headers = headers_of(error)
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and (reset := headers.get("x-ratelimit-reset", "")).isdecimal():
        return max(0.0, int(reset) - time.time()) + 1
    message = str((error.data or {}).get("message", "")) if isinstance(error.data, dict) else ""
    return (
        _SECONDARY_LIMIT_SECONDS * 2 ** (attempt - 1)
        if in_graphql or error.status == HTTPStatus.TOO_MANY_REQUESTS or "secondary rate limit" in message.lower()
        else None
    )


log = logging.getLogger(__name__)

_TOLERATED_SECONDS = 30
"""The difference between two clocks that is not worth a correction."""

Scope = tuple[str, ...]
"""What a token is for: a repository and its permissions; empty for all that the installation may do."""

RENEW_SECONDS = 300.0
"""A token is replaced this long before it expires, so that there is time to finish a fetch or a push with it."""

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


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    """The key, read once: each reading tests its primes, for tens of milliseconds of which other jobs get nothing."""
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public key")
    return key
