"""Connections to GitHub: gidgethub's client on aiohttp, with limits, pacing and retries."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urlencode, urlsplit
from weakref import WeakValueDictionary

import aiohttp
from gidgethub import HTTPException
from gidgethub.abc import GitHubAPI
from gidgethub.sansio import accept_format
from opentelemetry.trace import SpanKind
from pydantic import Field
from typing_extensions import override
from yarl import URL

from agent_runtime import traced
from bot.git.process import (
    CA_FILE_UNREADABLE,
    RESTORE_CA_FILE,
    UNKNOWN_AUTHORITY,
    AuthoritiesError,
    make_connector,
    proxy_options,
)
from bot.github.auth import AppIdentity, Identity, InstallationAuth, Token, TokenStore
from bot.github.rate_limit import Limits, RequestBudget, RequestPace, Reserve, Urgency, parse_number
from bot.github.types import (
    APP_REMOVED,
    Answer,
    AppRemovedError,
    BotIdentity,
    Facts,
    GitHubError,
    Shape,
    error_messages,
    parse,
    parse_json,
    parse_json_object,
    remedy_for,
    unreadable_answer,
)

USER_AGENT = "codepilot-bot"
SECONDS_BETWEEN_WRITES = 1.0
WAIT_SECONDS = 30.0
"""Longer pauses are left to the caller; the worker defers the job."""
PAGE = 100
"""GitHub's largest page."""
MAX_IDLE_INSTALLATIONS = 1_000
"""Idle installations whose tokens and limits are kept."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ANSWER_VALUES = 1_500_000
"""Commas and brackets; an answer is parsed on the event loop. The largest: a tree of 100,000 entries of six fields."""
_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.5
_SILENCE_SECONDS = 30.0
"""Timeout for connecting, and for the next part of an answer."""
_REQUEST_SECONDS = 600.0
_PIECE_BYTES = 64 * 1024
_REDIRECTION = frozenset({"message", "url", "documentation_url"})
_RATE_LIMITED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_SECONDARY_LIMIT_SECONDS = 60.0
_GRAPHQL_TROUBLE = ("Something went wrong while executing your query", "We couldn't respond to your request in time")


class RequestOptions(TypedDict, total=False):
    """Options of a request.

    Attributes:
        repeat: whether it can be sent twice; by default all but POST.
        accept: the media type.
        may_be_absent: whether 404 is expected.
        secret: whether the answer contains a secret, so that no error quotes it.
        needs: the required field of a GraphQL answer.
        writes: whether it waits its turn to write; by default all but GET.
    """

    repeat: bool
    accept: str
    as_app: bool
    urgency: Urgency | None
    may_be_absent: bool
    secret: bool
    needs: str
    writes: bool


class Closeable(ABC):
    """An object that is closed at the end of its `async with` block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None: ...


class GitHubConnection(Closeable):
    """One identity's connection to GitHub, with one request at a time.

    https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#avoid-concurrent-requests

    Args:
        auth: the identity.
        base_url: of the REST API, e.g. `https://api.github.com`.
        ca_file: authorities in addition to the system's.
        max_wait_seconds: for rate limits, in a call.
        session: shared with the installation's other connections.
        before_write: awaited before each write; its error prevents it.
    """

    def __init__(
        self,
        auth: Identity,
        base_url: str,
        *,
        ca_file: Path | None = None,
        max_wait_seconds: float = WAIT_SECONDS,
        session: InstallationSession | None = None,
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.auth = auth
        self.base_url = base_url.rstrip("/")
        self.max_wait_seconds = max_wait_seconds
        self.before_write = before_write or _no_op
        self.session = session or AppSession(SECONDS_BETWEEN_WRITES).for_installation(0)
        self.urgency = Urgency.NORMAL
        self._ca_file = ca_file
        self._client: aiohttp.ClientSession | None = None
        self._sending = asyncio.Lock()

    @override
    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    @property
    def app(self) -> AppIdentity | None:
        return self.auth.app if isinstance(self.auth, InstallationAuth) else None

    async def request(
        self,
        action: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Answer:
        """Make one REST request; `action` completes "Could not …", e.g. `read o/r#1`.

        Raises:
            GitHubError: it was refused, or retries or time ran out.
        """
        address = f"{path}?{urlencode(query)}" if query else path
        return await _Request(self, action, verb, options).send(address, body)

    async def json(
        self,
        shape: type[Shape],
        action: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Shape:
        return parse(shape, action, (await self.request(action, verb, path, body, query=query, **options)).data)

    async def read(self, shape: type[Shape], action: str, path: str, query: Mapping[str, Any] | None = None) -> Shape:
        return await self.json(shape, action, "GET", path, query=query)

    async def find(
        self, shape: type[Shape], action: str, path: str, query: Mapping[str, Any] | None = None
    ) -> Shape | None:
        """Parse the answer to GET; None for 404."""
        try:
            return await self.json(shape, action, "GET", path, query=query, may_be_absent=True)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def entries(
        self,
        shape: type[Shape],
        action: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        within: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[Shape]:
        """Yield the entries of a list, page by page; `within` is the field of the answer with the list, if any."""
        for page in itertools.count(1):
            data = (
                await self.request(action, "GET", path, query={**(query or {}), "per_page": PAGE, "page": page})
            ).data
            entries = data.get(within) if within and isinstance(data, dict) else data
            if not isinstance(entries, list):
                raise unreadable_answer(action, HTTPStatus.OK, "no list")
            for entry in entries[: None if limit is None else limit - PAGE * (page - 1)]:
                yield parse(shape, action, entry)
            if len(entries) < PAGE or (limit is not None and PAGE * page >= limit):
                return

    async def graphql(
        self,
        action: str,
        query: str,
        variables: Mapping[str, Any],
        *,
        needs: str,
        writes: bool = True,
        repeat: bool = True,
    ) -> dict[str, Any]:
        url, body = f"{self.base_url.removesuffix('/v3')}/graphql", {"query": query, "variables": variables}
        answer = await self.request(action, "POST", url, body, needs=needs, writes=writes, repeat=repeat)
        return dict(answer.data["data"])

    async def token(self, *, as_app: bool = False) -> tuple[str, str]:
        """Return the scheme and token of a request."""
        auth = self.app if as_app and self.app else self.auth
        if isinstance(auth, AppIdentity):
            return "bearer", auth.sign()
        if isinstance(auth, InstallationAuth):
            return "token", await auth.token(partial(self.mint, auth))
        return "token", auth

    async def mint(self, auth: InstallationAuth, repo: str = "", permissions: Mapping[str, str] | None = None) -> Token:
        action, path = f"create a token for {repo or 'the installation'}", f"/app/installations/{auth.installation_id}"
        repos = {"repositories": [repo.partition("/")[2]]} if repo else {}
        body = repos | {"permissions": dict(permissions or {})}
        try:
            answer = await self.json(
                _MintedToken,
                action,
                "POST",
                f"{path}/access_tokens",
                body,
                as_app=True,
                repeat=True,
                secret=True,
            )
        except GitHubError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                await self._check_installation(action, path)
            raise
        lifetime = (answer.expires_at - auth.app.now()).total_seconds()
        return Token.expiring_in(lifetime, answer.token, answer.permissions)

    async def _check_installation(self, action: str, path: str) -> None:
        """Raise `AppRemovedError` if GitHub says 404 to a second question, too; it also sends one by mistake."""
        try:
            await self.request(action, "GET", path, as_app=True)
        except GitHubError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise AppRemovedError(action, error.status, error.message, APP_REMOVED) from error

    async def exchange(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request over the network.

        Raises:
            AuthoritiesError: the CA file cannot be read.
            OSError: no answer arrived; or an `aiohttp.ClientError`.
        """
        async with self._sending:
            if self._client is None:
                self._client = aiohttp.ClientSession(
                    connector=make_connector(self._ca_file),
                    timeout=aiohttp.ClientTimeout(
                        total=_REQUEST_SECONDS, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS
                    ),
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            # The proxy is named here because `trust_env` would also send passwords from `.netrc`.
            async with self._client.request(
                verb,
                URL(url, encoded=True),
                headers=headers,
                data=BytesIO(body) if body else None,
                allow_redirects=False,
                **proxy_options(url),
            ) as response:
                content = bytearray()
                async for piece in response.content.iter_chunked(_PIECE_BYTES):
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise aiohttp.ClientPayloadError(f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
                if len(content) - len(content.translate(None, b",[{")) > MAX_ANSWER_VALUES:
                    raise aiohttp.ClientPayloadError(f"an answer of more than {MAX_ANSWER_VALUES:,} values")
                received = {name.lower(): value for name, value in response.headers.items()}
                return response.status, received, bytes(content)


class _MintedToken(Facts):
    token: str = Field(repr=False)
    expires_at: datetime
    """By GitHub's clock."""
    permissions: Mapping[str, str] | None = None


class _Request(GitHubAPI):
    """One request in gidgethub's loop, with its waits and retries.

    GitHub does nothing for a rate-limited request, so it is retried. After a server error or broken connection only
    requests with `repeat` are. A rejected token is replaced once. gidgethub's errors lose details.
    """

    def __init__(self, connection: GitHubConnection, action: str, verb: str, options: RequestOptions) -> None:
        super().__init__(USER_AGENT, base_url=connection.base_url)
        self._connection, self._action, self._verb = connection, action, verb
        self._as_app = options.get("as_app", False)
        self._repeat = options.get("repeat", verb != "POST")
        # A request as the App changes nothing that people read, so it waits for no turn.
        self._writes = options.get("writes", verb != "GET") and not self._as_app
        self._urgency = options.get("urgency") or connection.urgency
        self._accept = options.get("accept") or accept_format()
        self._may_be_absent = options.get("may_be_absent", False)
        self._secret = options.get("secret", False)
        self._needs = options.get("needs", "")
        self._waited, self._attempt, self._renewed = 0.0, 0, False
        self._token = ""
        self._outcome: Answer | GitHubError = GitHubError(action, 0, "the request was not sent", "")

    async def send(self, address: str, body: Mapping[str, Any] | None) -> Answer:
        with suppress(HTTPException):
            await self._make_request(self._verb, address, None, b"" if body is None else body, self._accept)
        if isinstance(self._outcome, GitHubError):
            raise self._outcome
        return self._outcome

    @override
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @override
    async def manage_rate_limit(self, *, method: str, url: str) -> None:
        self._waited += await self._wait_until_open(self._connection.max_wait_seconds - self._waited)

    @override
    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection, session = self._connection, self._connection.session
        self._attempt += 1
        async with session.pace.turn(self._urgency) if self._writes else nullcontext():
            try:
                if self._writes:
                    await self._wait_until_open(0.0)  # another request may have met a limit while this one was queued
                    await connection.before_write()
            except GitHubError as error:
                self._outcome = error
            else:
                await self._exchange(method, url, headers, body)
        if isinstance(self._outcome, GitHubError):
            return HTTPStatus.BAD_GATEWAY, {}, b""
        if self._writes and isinstance(connection.auth, InstallationAuth):
            connection.auth.proven_token = self._token
        return HTTPStatus.NO_CONTENT, {}, b""

    @override
    async def handle_rate_limit_error(self, *, method: str, url: str, exception: HTTPException, attempt: int) -> bool:
        failure = self._outcome
        if not isinstance(failure, GitHubError):
            return False
        if not self._renewed and self._replace_token(failure):
            self._renewed = True
            return True
        attempt -= self._renewed
        pause = failure.retry_after if failure.limited else _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
        if failure.limited:
            self._connection.session.limits.suspend(pause)
        may_help = failure.limited or (self._repeat and failure.is_transient)
        if not may_help or attempt == _TRIES or self._waited + pause > self._connection.max_wait_seconds:
            return False
        self._waited += pause
        await self.sleep(pause)
        return True

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send the signed request and store its outcome. A failure to create a token is raised: it was retried."""
        scheme, self._token = await self._connection.token(as_app=self._as_app)
        signed = {**headers, "authorization": f"{scheme} {self._token}"} if self._token else headers
        try:
            answer = await self._follow(method, url, signed, body)
            self._outcome = self._error_in(answer) or answer
        except GitHubError as error:
            self._outcome = error
        except (aiohttp.ClientError, OSError, AuthoritiesError, ValueError) as error:  # aiohttp's for a header
            self._outcome = _network_error(self._action, error)
            self._outcome.__cause__ = error

    async def _wait_until_open(self, max_seconds: float) -> float:
        seconds = self._connection.session.limits.pause_seconds
        if seconds > max_seconds:
            message = f"GitHub asked for a pause, {seconds:.0f} s of it remain"
            status = HTTPStatus.TOO_MANY_REQUESTS
            remedy = remedy_for(status, "rate limit")
            raise GitHubError(self._action, status, message, remedy, limited=True, retry_after=seconds)
        await asyncio.sleep(seconds)
        return seconds

    async def _follow(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Follow the redirection of a renamed repository.

        https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#follow-redirects
        """
        answer = await self._send_once(method, url, headers, body)
        location = answer.headers.get("location", "")
        # A created object or an error can have an address in the headers, too.
        is_redirection = HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
        is_explained = isinstance(answer.data, dict) and answer.data.keys() <= _REDIRECTION
        if is_redirection and is_explained and location.startswith(f"{self.base_url}/"):
            parameters = urlsplit(url).query
            location = location.partition("?")[0] + (f"?{parameters}" if parameters else "")
            answer = await self._send_once(method, location, headers, body)
        return answer

    async def _send_once(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        # The part of the address that is the same for all: no name that a stranger chose.
        first, *rest = urlsplit(url.removeprefix(self.base_url)).path.strip("/").split("/")
        route = "/graphql" if self._needs else f"/{first}"
        if first == "repos":
            route = "/".join(("/repos/{owner}/{repo}", *rest[2:3]))
        attributes = {"http.request.method": method, "url.template": route}
        with traced(f"{method} {route}", attributes, kind=SpanKind.CLIENT) as span:
            status, received, content = await self._connection.exchange(method, url, headers, body)
            span.set_attribute("http.response.status_code", status)
        if not self._as_app or status >= HTTPStatus.BAD_REQUEST:
            self._connection.session.limits.record(received)
        text = content.decode(errors="replace")
        refused = status >= HTTPStatus.BAD_REQUEST
        data = (
            parse_json_object(text)
            if refused
            else parse_json(self._action, text, status=status, quotable=not self._secret)
        )
        return Answer(status=status, headers=received, data=data)

    def _error_in(self, answer: Answer) -> GitHubError | None:
        in_workflow = self._connection.app is None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            return refusal_error(self._action, answer, self._attempt - self._renewed, in_workflow=in_workflow)
        content = answer.data if isinstance(answer.data, dict) else {}
        data = content.get("data")
        if not self._needs or (isinstance(data, dict) and data.get(self._needs) is not None):
            return None
        # GitHub's status is 200 for any failure: https://docs.github.com/graphql/guides/forming-calls-with-graphql
        if errors := content.get("errors"):
            answer = replace(answer, status=graphql_status(errors))
            return refusal_error(self._action, answer, self._attempt - self._renewed, in_workflow=in_workflow)
        return unreadable_answer(self._action, HTTPStatus.OK, f"an answer without `{self._needs}`")

    def _replace_token(self, failure: GitHubError) -> bool:
        """Return whether to retry with a new token, or one signed for GitHub's time."""
        auth, answer = self._connection.auth, failure.answer
        if answer is None:
            return False
        if answer.status == HTTPStatus.UNAUTHORIZED:
            app = self._connection.app or auth
            corrected = isinstance(app, AppIdentity) and app.correct_clock(answer.headers.get("date", ""))
            return (isinstance(auth, InstallationAuth) and auth.refuse(self._token, outright=True)) or corrected
        absent = answer.status == HTTPStatus.NOT_FOUND and not self._may_be_absent
        denied = absent or (answer.status == HTTPStatus.FORBIDDEN and not failure.limited)
        if not denied or self._as_app or not isinstance(auth, InstallationAuth):
            return False
        return auth.refuse(self._token, outright=False)


class AppSession:
    def __init__(self, seconds: float, reserve_for: Callable[[int], Reserve] | None = None) -> None:
        self._seconds, self._reserve_for = seconds, reserve_for
        # A session in use must be the same one for all its connections; of the others only the last ones stay.
        self._live = WeakValueDictionary[int, InstallationSession]()
        self._recent = OrderedDict[int, InstallationSession]()
        self.identity: BotIdentity | None = None

    def for_installation(self, installation: int) -> InstallationSession:
        session = self._live.get(installation)
        if session is None:
            reserve = () if self._reserve_for is None else (self._reserve_for(installation),)
            session = self._live[installation] = InstallationSession(self, RequestPace(self._seconds, *reserve))
        self._recent[installation] = session
        self._recent.move_to_end(installation)
        if len(self._recent) > MAX_IDLE_INSTALLATIONS:
            self._recent.popitem(last=False)
        return session

    def budgets(self) -> Iterator[tuple[int, str, RequestBudget]]:
        for installation, session in tuple(self._live.items()):
            for resource, budget in session.limits.budgets.items():
                yield installation, resource, budget


class InstallationSession:
    """State shared by an installation's connections."""

    def __init__(self, app: AppSession, pace: RequestPace) -> None:
        self.app = app
        self.pace = pace
        self.tokens = TokenStore()
        self.limits = Limits()


def refusal_error(action: str, answer: Answer, attempt: int = 1, *, in_workflow: bool = False) -> GitHubError:
    """Return the error for a refusal; an unspecified pause doubles with each `attempt`."""
    general = answer.data.get("message")
    message = (
        "; ".join(filter(None, (general and str(general), *error_messages(answer.data.get("errors")))))
        or "no reason given"
    )
    # The status of a GraphQL answer is 200 even where GitHub itself failed.
    troubled = any(str(error.get("message")).startswith(_GRAPHQL_TROUBLE) for error in _graphql_errors(answer))
    status = HTTPStatus.BAD_GATEWAY if troubled else answer.status
    pause = limit_pause(answer, attempt)
    needs = answer.headers.get("x-accepted-github-permissions", "")
    remedy = remedy_for(status, message, needs=needs, in_workflow=in_workflow)
    return GitHubError(
        action, status, message, remedy, limited=pause is not None, retry_after=pause or 0.0, answer=answer
    )


def limit_pause(answer: Answer, attempt: int = 1) -> float | None:
    """Return the seconds of a rate limit; None for any other refusal.

    https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    in_graphql = any(error.get("type") == "RATE_LIMITED" for error in _graphql_errors(answer))
    if answer.status not in _RATE_LIMITED and not in_graphql:
        return None
    headers = answer.headers
    if (after := parse_number(headers.get("retry-after", ""))) is not None:
        return float(after)
    reset = parse_number(headers.get("x-ratelimit-reset", ""))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        return max(0.0, reset - time.time()) + 1
    secondary = "secondary rate limit" in str(answer.data.get("message", "")).lower()
    if in_graphql or secondary or answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return _SECONDARY_LIMIT_SECONDS * 2.0 ** (attempt - 1)
    return None


def graphql_status(errors: object) -> int:
    """Return the equivalent REST status."""
    listed = errors if isinstance(errors, list) else []
    kinds = {str(error.get("type")) for error in listed if isinstance(error, dict)}
    if "FORBIDDEN" in kinds:
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.NOT_FOUND if kinds == {"NOT_FOUND"} else HTTPStatus.BAD_REQUEST


def _graphql_errors(answer: Answer) -> list[dict[str, Any]]:
    errors = answer.data.get("errors") if "data" in answer.data or "message" not in answer.data else None
    return [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []


def _network_error(action: str, error: Exception) -> GitHubError:
    if isinstance(error, AuthoritiesError):
        return GitHubError(action, 0, CA_FILE_UNREADABLE, RESTORE_CA_FILE)
    remedy = UNKNOWN_AUTHORITY if isinstance(error, aiohttp.ClientSSLError) else remedy_for(0, "")
    errno = getattr(error, "errno", None) or 0
    reason = os.strerror(errno) if errno > 0 else str(error)

    return GitHubError(action, 0, f"{type(error).__name__}: {reason}".rstrip(": "), remedy)


async def _no_op() -> None:
    pass
