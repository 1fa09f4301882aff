"""Requests to GitHub: PyGithub in a thread, one at a time, waiting and asking again where that is safe."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import requests
from github import Auth, Github, GithubException, GithubIntegration
from github.Requester import Requester
from urllib3.util import Retry

from bot.github import answers
from bot.github.app_auth import AppIdentity, InstallationAuth
from bot.github.errors import GitHubError, remedy_for, unreadable
from bot.github.pace import Pace

T = TypeVar("T")

_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.5
_RATE_LIMITED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_SECONDARY_LIMIT_SECONDS = 60.0
_GRAPHQL_TROUBLE = ("Something went wrong while executing your query", "We couldn't respond to your request in time")
_REDIRECTION = frozenset({"message", "url", "documentation_url"})
SECONDS_BETWEEN_WRITES = 0.25


class Connection:
    """One identity's way to GitHub, in a thread of its own: who waits for a silent server holds up nobody else.

    PyGithub's requester keeps a request's parts in itself, so calls go one by one.

    Args:
        auth: who we are.
        base_url: of the REST API, e.g. `https://api.github.com`.
        max_wait_seconds: the longest wait for a rate limit that one call may cost.
        pace: keeps writes apart, also from those of other connections that share it.
    """

    def __init__(
        self, auth: Auth.Auth, base_url: str, *, max_wait_seconds: float = 120.0, pace: Pace | None = None
    ) -> None:
        # At DEBUG PyGithub logs whole answers, and an answer can be an installation token.
        logging.getLogger("github.Requester").setLevel(logging.INFO)
        self._base_url = base_url.rstrip("/")
        settings: dict[str, Any] = {
            "base_url": self._base_url,
            "timeout": 30,
            "per_page": 100,
            "retry": Retry(0, respect_retry_after_header=False, raise_on_status=False),
            "seconds_between_requests": 0,
            "seconds_between_writes": 0,
            "user_agent": "codepilot-bot",
        }
        self.github = Github(auth=auth, lazy=True, **settings)
        self.auth = auth
        app_auth = auth._app_auth if isinstance(auth, Auth.AppInstallationAuth) else None  # noqa: SLF001 - no getter
        self.app = GithubIntegration(auth=app_auth, **settings) if app_auth else None
        self._max_wait = max_wait_seconds
        self._pace = pace or Pace(SECONDS_BETWEEN_WRITES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="github")

    def close(self) -> None:
        """Close the connections to the server; a request that is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.github.close()
        if self.app is not None:
            self.app.close()

    async def call(self, what: str, ask: Callable[[], T], *, repeat: bool = True, writes: bool = False) -> T:
        """Run `ask` in the connection's thread and give back its answer.

        A rate limit is waited for, since GitHub has not acted then. A server error or a broken connection leaves
        open whether it has: only what may happen twice is asked again. A token that GitHub does not take is minted
        anew, once: it may have been revoked, or this machine's clock be wrong.

        Args:
            what: for the error's text, e.g. `read o/r#1`.
            ask: makes the requests.
            repeat: whether doing it twice is the same as once.
            writes: whether it changes anything on GitHub, and has to wait its turn.

        Raises:
            GitHubError: it was refused, or the tries or the time are used up.
        """
        waited, renewed = 0.0, False
        cause: BaseException | None
        for attempt in range(1, _TRIES + 1):
            try:
                async with self._pace.turn() if writes else nullcontext():
                    return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
            except GitHubError as error:  # an answer that nobody can read
                failure, pause, cause = error, None, error.__cause__
            except GithubException as error:
                failure = _failure(what, error)
                pause = _limit_pause(error)
                if not renewed and self._renewed(error):
                    renewed, pause = True, 0.0
                cause = error
            except (requests.RequestException, ConnectionError) as error:
                failure = GitHubError(what, 0, _plain(error), remedy_for(0, ""))
                pause = None
                cause = error
            if pause is None:
                pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) if repeat and failure.passing else None
            if pause is None or attempt == _TRIES or waited + pause > self._max_wait:
                raise failure from cause
            waited += pause
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    def _renewed(self, refused: GithubException) -> bool:
        """Whether there is a new token to be had in place of the one that GitHub did not take."""
        auth = self.auth
        app = auth._app_auth if isinstance(auth, InstallationAuth) else auth  # noqa: SLF001 - no getter
        if refused.status != HTTPStatus.UNAUTHORIZED or not isinstance(app, AppIdentity):
            return False
        corrected = app.correct_clock(_headers(refused).get("date", ""))
        if isinstance(auth, InstallationAuth):
            auth.forget()
            return True
        return corrected

    async def json(
        self,
        what: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        repeat: bool | None = None,
        accept: str = "",
        as_app: bool = False,
    ) -> Any:  # noqa: ANN401 - parsed JSON
        """Make one REST request and give back the parsed answer; only POST is not repeated unless told so.

        `accept` asks for another media type than the usual one; `as_app` asks as the App itself rather than as its
        installation, where the connection has one.
        """
        again = verb != "POST" if repeat is None else repeat
        headers = {"Accept": accept} if accept else None
        _, answer = await self.answered(
            what, verb, path, body, query=query, headers=headers, repeat=again, as_app=as_app
        )
        return answer

    async def answered(
        self,
        what: str,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        repeat: bool = True,
        as_app: bool = False,
    ) -> tuple[Mapping[str, str], Any]:
        """The same with the answer's headers, their names in lower case."""
        requester = (self.app if as_app and self.app else self.github).requester
        ask = partial(self._asked, what, requester, verb, path, query=query, body=body, headers=headers)
        # What is asked as the App changes nothing that anybody reads, so it waits for no turn.
        return await self.call(what, ask, repeat=repeat, writes=verb != "GET" and not as_app)

    async def graphql(self, what: str, query: str, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401 - parsed JSON
        """Make one GraphQL request that writes, and give back its `data`."""
        requester = self.github.requester
        body = {"query": query, "variables": variables}

        def ask() -> Any:  # noqa: ANN401 - parsed JSON
            headers, answer = _checked(what, requester, "POST", requester.graphql_url, input=body)
            # GitHub answers 200 whatever went wrong: https://docs.github.com/graphql/guides/forming-calls-with-graphql
            if answer.get("errors"):
                raise requester.createException(400, headers, answer)
            if answer["data"] is None:
                raise unreadable(what, HTTPStatus.OK, "an answer without `data`")
            return answer["data"]

        return await self.call(what, ask, writes=True)

    def _asked(
        self,
        what: str,
        requester: Requester,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        headers: dict[str, str] | None,
    ) -> tuple[dict[str, Any], Any]:
        """One request; where the repository has another name by now, the same request there.

        PyGithub follows the 301 that reading gets, and takes the 307 of writing for the answer:
        https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#follow-redirects
        """
        ask = partial(_checked, what, requester, verb, parameters=dict(query or {}), headers=headers, input=body)
        told, answer = ask(path)
        place = told.get("location", "")
        # A thing that was made has its place in the headers, too, and other words in its answer.
        if place.startswith(f"{self._base_url}/") and isinstance(answer, dict) and answer.keys() <= _REDIRECTION:
            return ask(place)
        return told, answer


def _checked(what: str, requester: Requester, verb: str, path: str, **parts: Any) -> tuple[dict[str, Any], Any]:  # noqa: ANN401 - PyGithub's
    """One request's headers and parsed answer.

    PyGithub's own `requestJsonAndCheck` takes a page of HTML for an answer, and stumbles over lists.
    """
    status, headers, text = requester.requestJson(verb, path, **parts)
    if status >= HTTPStatus.BAD_REQUEST:
        raise requester.createException(status, headers, answers.explained(text))
    return headers, answers.parsed(what, text, status=status)


def _failure(what: str, error: GithubException) -> GitHubError:
    data = error.data if isinstance(error.data, dict) else {}
    general = data.get("message") or error.message
    said = "; ".join(filter(None, (general, *answers.details(data.get("errors"))))) or "no reason given"
    status = HTTPStatus.BAD_GATEWAY if _is_graphql_trouble(error) else error.status
    limited = _limit_pause(error) is not None
    needs = _headers(error).get("x-accepted-github-permissions", "")
    return GitHubError(what, status, said, remedy_for(status, said, needs=needs), limited=limited)


def _graphql_errors(error: GithubException) -> list[dict[str, Any]]:
    """What GraphQL answered with status 200, which PyGithub makes a 400 of."""
    data = error.data if isinstance(error.data, dict) else {}
    found = data.get("errors") if "data" in data or "message" not in data else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_graphql_trouble(error: GithubException) -> bool:
    """Whether GraphQL came to nothing by a fault of GitHub's own, which it tells with status 200."""
    return any(str(each.get("message")).startswith(_GRAPHQL_TROUBLE) for each in _graphql_errors(error))


def _headers(error: GithubException) -> dict[str, str]:
    return {name.lower(): value for name, value in (error.headers or {}).items()}


def _limit_pause(error: GithubException) -> float | None:
    """Seconds that GitHub wants us to wait, or None when this is no rate limit.

    The rules: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    in_graphql = any(each.get("type") == "RATE_LIMITED" for each in _graphql_errors(error))
    if error.status not in _RATE_LIMITED and not in_graphql:
        return None
    headers = _headers(error)
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and (reset := headers.get("x-ratelimit-reset", "")).isdecimal():
        return max(0.0, int(reset) - time.time()) + 1
    message = str((error.data or {}).get("message", "")) if isinstance(error.data, dict) else ""
    return (
        _SECONDARY_LIMIT_SECONDS
        if in_graphql or error.status == HTTPStatus.TOO_MANY_REQUESTS or "secondary rate limit" in message.lower()
        else None
    )


def _plain(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split(" object at 0x")[0]
