"""A GitHub in memory for tests of jobs: the real client, whose requests `FakeSite` answers without a network.

    site = FakeSite()
    repo = site.add_repo("mona/calc", owner="mona", files={"calc.py": "x = 1\n"})
    github = FakeGitHub(site)
    site.fail("comments.create", outage(), after=True)

Each part is a subclass of the client's own without other methods, so paging, parsing and the recovery of lost answers
are the client's. Its waits and retries are left out: a fault is what remains after them.
`tests/contracts/test_fake_github.py` compares the answers with the hub's.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, TypeVar, Unpack

from typing_extensions import override

from bot.github.actions import Actions
from bot.github.app import Tokens
from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.checks import Checks, Runs
from bot.github.client import GitHub
from bot.github.connection import AppSession, GitHubConnection, RequestOptions, refusal_error
from bot.github.issues import Comments, Pulls, Reviews, Threads
from bot.github.repos import Accounts, Commits, Repos
from bot.github.types import Answer, GitHubError, remedy_for
from localhub.api.auth import HubError
from tests.fakes import action_answers, answers, check_answers
from tests.fakes.graphql_answers import graphql_answer
from tests.fakes.routing import Request, answer
from tests.fakes.site import FakeFile, FakeRepo, FakeSite, FakeThread, tree_id

__all__ = [
    "FakeFile",
    "FakeGitHub",
    "FakeRepo",
    "FakeSite",
    "FakeThread",
    "forbidden",
    "no_answer",
    "not_found",
    "outage",
    "rate_limited",
    "tree_id",
]

ROUTED = (answers, check_answers, action_answers)
"""The modules that register routes."""
_Part = TypeVar("_Part", bound=type)
_CALL: ContextVar[str] = ContextVar("call", default="")
_INSTALLATION = 1
_FULL = "application/vnd.github.full+json"


class FakeGitHub(GitHub):
    """A client of a `FakeSite`.

    Args:
        site: shared with other clients.
        workflow: whether it has the token of a workflow in place of an App's.
    """

    def __init__(
        self,
        site: FakeSite,
        *,
        redact: Callable[[str], str] = lambda text: text,
        on_mint: Callable[[str], None] = lambda _token: None,
        before_write: Callable[[], Awaitable[None]] | None = None,
        workflow: bool = False,
    ) -> None:
        connection = FakeConnection(site, on_mint=on_mint, before_write=before_write, workflow=workflow)
        super().__init__(connection, redact=redact, on_mint=on_mint)
        self.site = site
        self.accounts = FakeAccounts(connection)
        self.repos = FakeRepos(connection, redact)
        self.threads = FakeThreads(connection, self.repos)
        self.pulls = FakePulls(connection, redact)
        self.comments = FakeComments(connection, redact)
        self.reviews = FakeReviews(connection, redact)
        self.checks = FakeChecks(connection, redact, self.accounts)
        self.runs = FakeRuns(connection)
        self.actions = FakeActions(connection, redact)
        self.commits = FakeCommits(connection, redact, self.repos)
        self.tokens = FakeTokens(connection, on_mint)


class FakeConnection(GitHubConnection):
    """A connection whose requests a `FakeSite` answers; a request without a route is an AssertionError."""

    def __init__(
        self,
        site: FakeSite,
        *,
        on_mint: Callable[[str], None],
        before_write: Callable[[], Awaitable[None]] | None,
        workflow: bool,
    ) -> None:
        self.site = site
        self.actor = site.app if not workflow else site.workflow_app
        sessions = AppSession(0.0) if workflow else site.session
        shared = sessions.for_installation(_INSTALLATION)
        app = AppIdentity(site.app.id, "")
        auth = InstallationAuth(app=app, installation_id=_INSTALLATION, tokens=shared.tokens, on_mint=on_mint)
        super().__init__(
            "a-token-of-a-workflow" if workflow else auth,
            f"{site.url}/api/v3",
            session=shared,
            before_write=before_write,
        )

    @override
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
        writes = options.get("writes", verb != "GET") and not options.get("as_app", False)
        async with self.session.pace.turn(options.get("urgency") or self.urgency) if writes else nullcontext():
            await (self.before_write() if writes else asyncio.sleep(0))
            fault = self.site.take_fault(_CALL.get())
            if fault is not None and not fault[1]:
                raise self._at(action, fault[0])
            try:
                received = self._perform(verb, path, body or {}, query or {}, options)
            except HubError as error:
                refusal = Answer(status=error.status, headers=error.headers, data=error.body())
                raise refusal_error(action, refusal, in_workflow=self.app is None) from None
            if fault is not None:
                raise self._at(action, fault[0])
            return received

    def _perform(
        self, verb: str, path: str, body: Mapping[str, Any], query: Mapping[str, Any], options: RequestOptions
    ) -> Answer:
        site, full_name = self.site, ""
        rest = path.lstrip("/")
        if rest.startswith("repos/"):
            _, owner, name, *parts = rest.split("/")
            full_name, rest = f"{owner}/{name}", "/".join(parts)
        home = site.find_repo(full_name) if full_name else None
        if full_name and home is None:
            raise HubError(HTTPStatus.NOT_FOUND, "Not Found")
        request = Request(
            site=site,
            app=self.actor,
            is_workflow=self.app is None,
            home=home,
            query={name: str(value) for name, value in query.items()},
            body=body,
            full=options.get("accept") == _FULL,
        )
        if options.get("needs"):
            data = graphql_answer(request, body["query"], body["variables"])
            return Answer(status=HTTPStatus.OK, headers={}, data={"data": data})
        return answer(request, verb, rest)

    def _at(self, action: str, error: GitHubError) -> GitHubError:
        """Return the error as the client raises it for this action."""
        if error.answer is not None:
            return refusal_error(action, error.answer, in_workflow=self.app is None)
        return GitHubError(action, error.status, error.message, error.remedy) if type(error) is GitHubError else error


def _recorded(part: str) -> Callable[[_Part], _Part]:
    """Let each public method of a part name itself in `FakeSite.calls`."""

    def decorate(fake: _Part) -> _Part:
        for name, method in inspect.getmembers(fake, inspect.isfunction):
            if not name.startswith("_"):
                setattr(fake, name, _recorded_method(f"{part}.{name}", method))
        return fake

    return decorate


def _recorded_method(call: str, method: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        def record(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - any method
            with _calling(self.connection, call):
                return method(self, *args, **options)

        return record

    @functools.wraps(method)
    async def record_coroutine(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - any method
        with _calling(self.connection, call):
            return await method(self, *args, **options)

    return record_coroutine


@contextmanager
def _calling(connection: FakeConnection, call: str) -> Iterator[None]:
    connection.site.calls.append(call)
    if connection.site.on_call is not None:
        connection.site.on_call(call)
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


@_recorded("accounts")
class FakeAccounts(Accounts):
    pass


@_recorded("repos")
class FakeRepos(Repos):
    pass


@_recorded("threads")
class FakeThreads(Threads):
    pass


@_recorded("pulls")
class FakePulls(Pulls):
    pass


@_recorded("comments")
class FakeComments(Comments):
    pass


@_recorded("reviews")
class FakeReviews(Reviews):
    pass


@_recorded("checks")
class FakeChecks(Checks):
    pass


@_recorded("runs")
class FakeRuns(Runs):
    pass


@_recorded("actions")
class FakeActions(Actions):
    pass


@_recorded("commits")
class FakeCommits(Commits):
    pass


@_recorded("tokens")
class FakeTokens(Tokens):
    pass


# Errors for `FakeSite.fail`, as the real client builds them.


def outage(status: int = HTTPStatus.BAD_GATEWAY) -> GitHubError:
    return _refusal(status, "Server Error")


def forbidden(message: str = "Resource not accessible by integration") -> GitHubError:
    return _refusal(HTTPStatus.FORBIDDEN, message)


def not_found() -> GitHubError:
    return _refusal(HTTPStatus.NOT_FOUND, "Not Found")


def rate_limited(seconds: int) -> GitHubError:
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return _refusal(HTTPStatus.FORBIDDEN, message, {"retry-after": str(seconds)})


def no_answer(message: str = "ServerDisconnectedError: Server disconnected") -> GitHubError:
    return GitHubError("ask GitHub", 0, message, remedy_for(0, ""))


def refused_review() -> GitHubError:
    return _refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Unprocessable Entity")


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> GitHubError:
    return refusal_error("ask GitHub", Answer(status=status, headers=headers or {}, data={"message": message}))
