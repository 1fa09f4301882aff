"""Connections to GitHub: PyGithub in a thread, one request at a time, waiting and asking again where that is safe.

`GitHubConnection` signs as one identity. `InstallationSession` is shared by the connections of an installation's jobs:
its tokens, its turns to write and GitHub's limits. `AppSession` keeps these sessions for as long as the process lives.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack
from weakref import WeakValueDictionary

import requests
from github import Auth, Github, GithubException
from github.Requester import Requester, RequestsResponse
from urllib3.util import Retry

from bot.git.process import FOREIGN_CERTIFICATE, NO_AUTHORITIES, PUT_BACK
from bot.github.auth import AppIdentity, InstallationAuth, TokenStore, checked
from bot.github.rate_limit import Limits, RequestBudget, RequestPace, Reserve, Urgency
from bot.github.types import BotIdentity, GitHubError, details, remedy_for, unreadable

T = TypeVar("T")
SECONDS_BETWEEN_WRITES = 1.0
WAIT_SECONDS = 30.0
"""A longer pause is left to the caller, which can do something else: the worker defers the job, and takes another."""
PAGE = 100
"""The most entries that GitHub puts on a page."""
MOST_INSTALLATIONS = 1_000
"""Of how many installations tokens and limits are kept while none of their jobs is run."""
_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.5
_REDIRECTION = frozenset({"message", "url", "documentation_url"})
_RATE_LIMITED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_SECONDARY_LIMIT_SECONDS = 60.0
_GRAPHQL_TROUBLE = ("Something went wrong while executing your query", "We couldn't respond to your request in time")
_CONNECTIONS = "_Requester__connectionClass"
"""What makes a requester's connections. PyGithub lets nobody choose it for one requester."""


class GitHubConnection:
    """One identity's way to GitHub, in a thread of its own: who waits for a silent server holds up nobody else.

    PyGithub's requester keeps a request's parts in itself, so calls go one by one.

    Args:
        auth: who we are.
        base_url: of the REST API, e.g. `https://api.github.com`.
        ca_file: the authorities that may have signed its certificate; None for the usual ones.
        max_wait_seconds: the longest wait for a rate limit that one call may cost.
        session: what it shares with the other connections of the installation.
        before_write: awaited immediately before each request that changes anything; what it raises prevents that.

    Attributes:
        urgency: of the writes that say nothing else.
        before_write: as given.
    """

    def __init__(
        self,
        auth: Auth.Auth,
        base_url: str,
        *,
        ca_file: Path | None = None,
        max_wait_seconds: float = WAIT_SECONDS,
        session: InstallationSession | None = None,
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        # At DEBUG PyGithub logs whole answers, and an answer can be an installation token.
        logging.getLogger("github.Requester").setLevel(logging.INFO)
        self._base_url, self._ca_file = base_url.rstrip("/"), ca_file
        settings: dict[str, Any] = {
            "base_url": self._base_url,
            "verify": True if ca_file is None else str(ca_file),
            "timeout": 30,
            "per_page": PAGE,
            "retry": Retry(0, respect_retry_after_header=False, raise_on_status=False),
            "seconds_between_requests": 0,
            "seconds_between_writes": 0,
            "user_agent": "codepilot-bot",
        }
        self.github = Github(auth=auth, lazy=True, **settings)
        self.auth = auth
        # PyGithub has given the installation's identity a requester that signs as the App.
        self.app = auth.requester if isinstance(auth, InstallationAuth) else None
        for requester in filter(None, (self.github.requester, self.app)):
            follow_nothing(requester)
        self._max_wait = max_wait_seconds
        self.before_write = before_write or _nothing
        self.session = session or AppSession(SECONDS_BETWEEN_WRITES).of(0)
        self.urgency = Urgency.BEGINNING
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="github")

    def close(self) -> None:
        """Close the connections to the server; a request that is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.github.close()
        if self.app is not None:
            self.app.close()

    async def call(
        self,
        what: str,
        ask: Callable[[], T],
        *,
        repeat: bool = True,
        writes: bool = False,
        urgency: Urgency | None = None,
        may_be_absent: bool = False,
    ) -> T:
        """Run `ask` in the connection's thread and give back its answer.

        A rate limit is waited for, since GitHub has not acted then; so is one that another client of the installation
        met. A server error or a broken connection leaves open whether it has: only what may happen twice is asked
        again. A token that GitHub rejects is replaced once: it may have been revoked, or this machine's clock
        be wrong, or what it may do be out of date.

        Args:
            what: for the error's text, e.g. `read o/r#1`.
            ask: makes the requests.
            repeat: whether doing it twice is the same as once.
            writes: whether it changes anything on GitHub, and has to wait its turn.
            urgency: of a write; without one that of all this connection does.
            may_be_absent: whether 404 is an answer as good as another.

        Raises:
            GitHubError: it was refused, or the tries or the time are used up.
        """
        waited, renewed, attempt = 0.0, False, 1
        cause: BaseException | None
        while True:
            waited += await self._until_open(what, self._max_wait - waited)
            try:
                async with self._turn(what, urgency or self.urgency) if writes else nullcontext():
                    run = copy_context().run
                    answer = await asyncio.get_running_loop().run_in_executor(self._thread, run, ask)
            except GitHubError as error:  # e.g. an answer that nobody can read
                failure, cause = error, error.__cause__
            except GithubException as error:
                if not renewed and self._renewed(error, may_be_absent=may_be_absent):
                    renewed = True
                    continue
                failure, cause = self._failure(what, error, attempt), error
            except OSError as error:
                failure, cause = self._unanswered(what, error), error
            else:
                if writes and isinstance(self.auth, InstallationAuth):
                    self.auth.wrote()
                return answer
            pause = failure.retry_after
            if not failure.limited:
                pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            may_help = failure.limited or (repeat and failure.passing)
            if not may_help or attempt == _TRIES or waited + pause > self._max_wait:
                raise failure from cause
            attempt += 1
            waited += pause
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _turn(self, what: str, urgency: Urgency) -> AsyncIterator[None]:
        async with self.session.pace.turn(urgency):
            await self._until_open(what, 0.0)  # another one may have met a limit while this one waited in line
            await self.before_write()
            yield

    async def _until_open(self, what: str, most: float) -> float:
        """Wait while GitHub wants to be left alone; the seconds that it took.

        Raises:
            GitHubError: that is longer than `most`.
        """
        seconds = self.session.limits.closed_for
        if seconds > most:
            said = f"GitHub asked for a pause, {seconds:.0f} s of it remain"
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise GitHubError(what, status, said, remedy_for(status, "rate limit"), limited=True, retry_after=seconds)
        await asyncio.sleep(seconds)
        return seconds

    def _unanswered(self, what: str, error: OSError) -> GitHubError:
        """What it means that no answer came; raises what has nothing to do with that."""
        if isinstance(error, requests.exceptions.SSLError):
            return GitHubError(what, 0, _plain(error), FOREIGN_CERTIFICATE)
        if isinstance(error, requests.RequestException | ConnectionError):
            return GitHubError(what, 0, _plain(error), remedy_for(0, ""))
        # So says requests that the file is gone, and names its path, which is nobody else's business.
        if self._ca_file is not None and error.errno is None:
            return GitHubError(what, 0, NO_AUTHORITIES, PUT_BACK)
        raise error

    def _failure(self, what: str, error: GithubException, attempt: int) -> GitHubError:
        """What an answer means; a limit closes GitHub to all clients of the installation."""
        failure = refusal(what, error, attempt, in_workflow=self.app is None)
        self.session.limits.note(headers_of(error))
        if failure.limited:
            self.session.limits.close(failure.retry_after)
        return failure

    def _renewed(self, refused: GithubException, *, may_be_absent: bool) -> bool:
        """Whether there is a new token to replace the one that GitHub rejected."""
        auth, status = self.auth, refused.status
        if status == HTTPStatus.UNAUTHORIZED:
            app = auth.app if isinstance(auth, InstallationAuth) else auth
            corrected = isinstance(app, AppIdentity) and app.correct_clock(headers_of(refused).get("date", ""))
            return (isinstance(auth, InstallationAuth) and auth.refused(outright=True)) or corrected
        absent = status == HTTPStatus.NOT_FOUND and not may_be_absent
        denied = absent or (status == HTTPStatus.FORBIDDEN and limit_pause(refused) is None)
        return denied and isinstance(auth, InstallationAuth) and auth.refused(outright=False)

    async def request(
        self,
        what: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> tuple[Mapping[str, str], Any]:
        """Make one REST request and give back the headers, their names in lower case, and the parsed answer."""
        as_app, accept = options.get("as_app", False), options.get("accept", "")
        requester = self.app if as_app and self.app else self.github.requester
        parts = {
            "parameters": dict(options.get("query") or {}),
            "headers": {"Accept": accept} if accept else None,
            "input": body,
        }
        return await self.call(
            what,
            partial(self._asked, what, requester, verb, path, **parts),
            repeat=options.get("repeat", verb != "POST"),
            # What is asked as the App changes nothing that anybody reads, so it waits for no turn.
            writes=verb != "GET" and not as_app,
            urgency=options.get("urgency"),
            may_be_absent=options.get("may_be_absent", False),
        )

    async def json(
        self,
        what: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Any:  # noqa: ANN401 - parsed JSON
        """Make one REST request and give back the parsed answer."""
        _, answer = await self.request(what, verb, path, body, **options)
        return answer

    async def read(self, what: str, path: str, query: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """What GET answers."""
        return await self.json(what, "GET", path, query=query)

    async def find(self, what: str, path: str, query: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """What GET answers, or None for 404."""
        try:
            return await self.json(what, "GET", path, query=query, may_be_absent=True)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def entries(
        self,
        what: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        within: str = "",
        most: int | None = None,
    ) -> AsyncIterator[Any]:
        """The entries of a list, page by page; the next page is asked for when it is needed.

        Args:
            what: for an error's text.
            path: of the list.
            query: beside the paging.
            within: the field of the answer that holds the list; empty when the answer is the list.
            most: how many entries are given at most; None for all.
        """
        for page in itertools.count(1):
            answer = await self.read(what, path, {**(query or {}), "per_page": PAGE, "page": page})
            entries = answer[within] if within else answer
            if not isinstance(entries, list):
                raise unreadable(what, HTTPStatus.OK, "no list")
            for entry in entries[: None if most is None else most - PAGE * (page - 1)]:
                yield entry
            if len(entries) < PAGE or (most is not None and PAGE * page >= most):
                return

    async def graphql(
        self, what: str, query: str, variables: Mapping[str, Any], *, needs: str, writes: bool = True
    ) -> Any:  # noqa: ANN401 - parsed JSON
        """Make one GraphQL request, and give back its `data`.

        Args:
            what: for the error's text.
            query: or mutation.
            variables: of the query.
            needs: the field of the answer without which it is an error. Others may be missing; GitHub does each part
                of a mutation that it can.
            writes: whether it is a mutation.
        """
        requester = self.github.requester
        body = {"query": query, "variables": variables}

        def ask() -> Any:  # noqa: ANN401 - parsed JSON
            headers, answer = checked(what, requester, "POST", requester.graphql_url, input=body)
            self.session.limits.note(headers)
            data = answer.get("data")
            if data is not None and data.get(needs) is not None:
                return data
            # GitHub answers 200 whatever went wrong: https://docs.github.com/graphql/guides/forming-calls-with-graphql
            if answer.get("errors"):
                raise requester.createException(graphql_status(answer["errors"]), headers, answer)
            raise unreadable(what, HTTPStatus.OK, f"an answer without `{needs}`")

        return await self.call(what, ask, writes=writes)

    def _asked(self, what: str, requester: Requester, verb: str, path: str, **parts: Any) -> tuple[dict[str, Any], Any]:  # noqa: ANN401 - PyGithub's
        """One request; where the repository has another name by now, the same request there.

        PyGithub takes a redirection for the answer:
        https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#follow-redirects
        """
        told, answer = checked(what, requester, verb, path, **parts)
        if requester is self.github.requester:
            self.session.limits.note(told)
        place = told.get("location", "")
        # A thing that was made has its place in the headers, too, and other words in its answer.
        if place.startswith(f"{self._base_url}/") and isinstance(answer, dict) and answer.keys() <= _REDIRECTION:
            return checked(what, requester, verb, place.partition("?")[0], **parts)
        return told, answer


class RequestOptions(TypedDict, total=False):
    """How a REST request is made.

    Attributes:
        query: its parameters.
        repeat: whether doing it twice is the same as once; True for all but POST.
        accept: another media type than the usual one.
        as_app: whether to ask as the App itself rather than as its installation, where the connection has an App.
        urgency: see `GitHubConnection.call`, as for the next.
        may_be_absent: whether 404 is an answer as good as another.
    """

    query: Mapping[str, Any] | None
    repeat: bool
    accept: str
    as_app: bool
    urgency: Urgency | None
    may_be_absent: bool


class AppSession:
    """What is known of an App for as long as the process lives.

    Args:
        seconds: between two writes of one installation; see `RequestPace`.
        reserve_for: makes the `Reserve` of an installation; None where no other process writes.

    Attributes:
        identity: who the App is, once somebody has asked.
    """

    def __init__(self, seconds: float, reserve_for: Callable[[int], Reserve] | None = None) -> None:
        self._seconds, self._reserve_for = seconds, reserve_for
        # Whose clients live must be the same one for all of them; of the others only the last ones stay.
        self._used = WeakValueDictionary[int, InstallationSession]()
        self._last = OrderedDict[int, InstallationSession]()
        self.identity: BotIdentity | None = None

    def of(self, installation: int) -> InstallationSession:
        """The same one for the same installation."""
        session = self._used.get(installation)
        if session is None:
            own = () if self._reserve_for is None else (self._reserve_for(installation),)
            session = self._used[installation] = InstallationSession(self, RequestPace(self._seconds, *own))
        self._last[installation] = session
        self._last.move_to_end(installation)
        if len(self._last) > MOST_INSTALLATIONS:
            self._last.popitem(last=False)
        return session

    def budgets(self) -> Iterator[tuple[int, str, RequestBudget]]:
        """What GitHub has reported about each installation's limits, and still holds."""
        for installation, session in tuple(self._used.items()):
            for resource, budget in session.limits.budgets.items():
                yield installation, resource, budget


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


def headers_of(error: GithubException) -> dict[str, str]:
    """The headers of an answer that says no, their names in lower case."""
    return {name.lower(): value for name, value in (error.headers or {}).items()}


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


async def _nothing() -> None:
    pass


def _plain(error: Exception) -> str:
    # requests names the pool and its retries first, and the reason last.
    cause = getattr(error.args[0], "reason", None) if error.args else None
    found = cause if isinstance(cause, Exception) else error
    return f"{type(found).__name__}: {found}".split(" object at 0x")[0]
