"""One request through PyGithub, parsed or raised; and refusals as errors, with the pause that GitHub asks for.

https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from github import GithubException
from github.Requester import Requester, RequestsResponse
from opentelemetry.trace import SpanKind

from agent_runtime import traced
from bot.github.answers import details, explained, parsed
from bot.github.errors import GitHubError, remedy_for

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
