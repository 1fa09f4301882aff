"""The HTTP side of the API: convert an aiohttp request to a `Call`, and a `Response` back.

`Server` answers REST and GraphQL, with ETags and rate limits, and records each `Exchange` for checks. `Faults` makes
the next requests to a path fail in a chosen way. `own_host` refuses host names that are not the hub's, so that no
foreign page can reach it under a name that points at this machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from localhub.api.auth import ANONYMOUS, HubError, MovedError, Viewer, can_read, not_found, scopes_of, viewer_of
from localhub.api.routing import API_VERSIONS, Call, Response, Route, log
from localhub.graphql import endpoint
from localhub.rest import all_routes
from localhub.server.downloads import FULL, with_html
from localhub.state.model import Repo
from localhub.state.store import Site

GREEDY = frozenset({"ref", "path", "branch", "basehead", "tree_sha", "tag", "dir"})
"""Placeholders whose values may have slashes."""

BY_NUMBER = "/repositories/{repository_id}"
"""GitHub answers every address of a repository here too, and redirects here from a former name."""

NOT_MODIFIED = 304
# https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api#rate-limit-errors
_GOOD_NEWS = "(But here's the good news: Authenticated requests get a higher rate limit.)"
# https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#user-agent
_NO_USER_AGENT = "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.\n"

MAX_REQUEST = 64 * 1024 * 1024
_LARGE = 1024 * 1024
_MESSAGES = {"401": "Bad credentials", "403": "Forbidden", "404": "Not Found"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer, for checks."""

    method: str
    template: str
    path: str
    query: Mapping[str, str]
    request_body: bytes
    status: int
    media_type: str
    body: bytes


@dataclass(slots=True)
class Server:
    """Answers REST and GraphQL. Handlers run one at a time in threads of the hub's own, under the site's lock."""

    site: Site
    faults: Faults
    served: Callable[[Exchange], None] | None = None
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="localhub"))

    def add_to(self, app: web.Application) -> None:
        """Add all addresses of the API."""
        app[_SERVER] = self
        for resource in _resources():
            app.router.register_resource(resource)

    async def serve(self, request: web.Request, route: Route) -> web.StreamResponse:
        """Answer a request to one of the API's addresses."""
        raw = await request.read()
        fault = self.faults.take(request.method, request.path)
        if fault is not None and fault.trouble == "drop":
            return hang_up(request)
        if not request.headers.get("User-Agent"):
            return web.Response(status=403, text=_NO_USER_AGENT)
        loop = asyncio.get_running_loop()
        answer, headers = await loop.run_in_executor(self.threads, self._answer, request, route, raw, fault)
        if fault is not None and fault.trouble == "drop_answer":
            return hang_up(request)
        content = answer.content()
        if self.served is not None and fault is None and request.method != "HEAD" and answer.status != NOT_MODIFIED:
            self.served(_exchange(request, route, raw, answer, content))
        headers |= {"Date": format_datetime(self.site.now(), usegmt=True)}
        headers |= {**answer.headers, "X-GitHub-Request-Id": uuid.uuid4().hex[:20].upper()}
        if answer.status in {204, NOT_MODIFIED}:
            return web.Response(status=answer.status, headers=headers)
        headers["Content-Type"] = f"{answer.media_type}; charset=utf-8"
        # aiohttp sends a large body whole, and warns of it, unless it is a file.
        body = content if len(content) < _LARGE else io.BytesIO(content)
        return web.Response(status=answer.status, body=body, headers=headers)

    def _answer(
        self, request: web.Request, route: Route, raw: bytes, fault: Fault | None
    ) -> tuple[Response, dict[str, str]]:
        with self.site.lock:
            viewer, key = ANONYMOUS, ANONYMOUS.key
            try:
                viewer = viewer_of(self.site, request.headers)
                key = viewer.key
                self._demand_answerable(request, route, key)
                if fault is not None and fault.trouble.startswith("graphql_"):
                    return _graphql_answer_of(fault), self.site.rates.headers(key, self.site.now(), "graphql")
                if fault is not None and fault.trouble != "drop_answer":
                    raise _refusal_of(fault, self.site)
                answer = route.answer(self._call(request, route, raw, viewer))
                if FULL in request.headers.get("Accept", ""):
                    answer = replace(answer, body=with_html(self.site, viewer, answer.body))
            except HubError as error:
                answer = Response(status=error.status, body=error.body(), headers=error.headers)
            tag = f'W/"{hashlib.sha256(answer.content()).hexdigest()}"'
            if _is_reading(request) and answer.status == 200 and _matches(request, tag):  # noqa: PLR2004 - OK
                answer = Response(status=NOT_MODIFIED, body=b"")
            accepted = {"X-Accepted-GitHub-Permissions": route.accepted} if viewer.installation is not None else {}
            resource = _rate_limit_of(route)
            if answer.status != NOT_MODIFIED and route.template != "/rate_limit":
                self.site.rates.count(key, self.site.now(), resource)
            return answer, {
                **self.site.rates.headers(key, self.site.now(), resource),
                **accepted,
                **scopes_of(viewer),
                "ETag": tag,
                "X-GitHub-Media-Type": "github.v3; format=json",
                "X-GitHub-Api-Version-Selected": API_VERSIONS[0],
            }

    def _demand_answerable(self, request: web.Request, route: Route, key: str) -> None:
        """Refuse an unknown version of the API, and a stranger who has asked too often."""
        version = request.headers.get("X-GitHub-Api-Version", API_VERSIONS[0])
        if version not in API_VERSIONS:
            raise HubError(400, f"Invalid API version: {version}. Supported versions: {', '.join(API_VERSIONS)}")
        left = self.site.rates.remaining(key, self.site.now(), _rate_limit_of(route))["remaining"]
        if not key and not left and route.template != "/rate_limit":
            raise HubError(403, f"API rate limit exceeded for {request.remote}. {_GOOD_NEWS}")

    def _call(self, request: web.Request, route: Route, raw: bytes, viewer: Viewer) -> Call:
        params = dict(request.match_info)
        return Call(
            site=self.site,
            viewer=viewer,
            method=request.method,
            template=route.template,
            path=request.path.removeprefix("/api/v3"),
            params={"path": "", **params},
            query=dict(request.query),
            body=_parse_body(raw),
            accept=request.headers.get("Accept", ""),
            authorization=request.headers.get("Authorization", ""),
            target=self._target(request, params, viewer),
        )

    def _target(self, request: web.Request, params: Mapping[str, str], viewer: Viewer) -> Repo | None:
        """The repository that the path names, by its name or its number."""
        store = self.site.store
        if "repository_id" in params:
            number = params["repository_id"]
            found = store.repos.get(int(number)) if number.isdecimal() else None
        elif "owner" in params and "repo" in params:
            name = f"{params['owner']}/{params['repo']}"
            found = store.repo(name)
            moved = store.moved_repo(name)
            if moved is not None and can_read(self.site, viewer, moved):
                rest = request.raw_path.removeprefix(f"/api/v3/repos/{name}")
                raise MovedError(request.method, f"{self.site.api('repositories', moved.id)}{rest}")
        else:
            return None
        if found is None:
            raise not_found()
        return found


_SERVER = web.AppKey("server", Server)


@cache
def _resources() -> Sequence[web.AbstractResource]:
    """The API's resources: some five hundred, made once for all hubs of a process, as tests start many of them."""
    router = web.UrlDispatcher()
    for route in all_routes():
        for spelling in _templates_of(route.template):
            handler, path = _handler(route), f"/api/v3{_pattern(spelling)}"
            router.add_route(route.method, path, handler)
            if route.method == "GET":
                router.add_head(path, handler)
    router.add_post("/api/graphql", _handler(Route(method="POST", template="/graphql", handler=endpoint.answer)))
    router.add_route("*", "/api/{rest:.*}", _handler(Route(method="*", template="", handler=_answer_not_found)))
    return tuple(router.resources())


def _handler(route: Route) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await request.app[_SERVER].serve(request, route)

    return handle


def _matches(request: web.Request, tag: str) -> bool:
    """Whether one of the tags of `If-None-Match` is this one; a weak tag and a strong one are the same there."""
    tags = [each.strip() for each in request.headers.get("If-None-Match", "").split(",")]
    return "*" in tags or tag.removeprefix("W/") in {each.removeprefix("W/") for each in tags}


def _is_reading(request: web.Request) -> bool:
    return request.method in {"GET", "HEAD"}


def _rate_limit_of(route: Route) -> str:
    """The rate limit that a request counts for."""
    name = route.template.split("/")[1] if route.template else ""
    return name if name in {"graphql", "search"} else "core"


def _parse_body(raw: bytes) -> Mapping[str, Any]:
    if not raw.strip():
        return {}
    try:
        body = json.loads(raw)
        if b"\\ud" in raw.lower():
            json.dumps(body, ensure_ascii=False).encode()  # half of a surrogate pair can be stored nowhere
    except ValueError as error:
        raise HubError(400, "Problems parsing JSON") from error
    if isinstance(body, list):  # labels may come as a bare list
        return {"labels": body}
    if not isinstance(body, dict):
        raise HubError(400, "Body should be a JSON object")
    return body


def _templates_of(template: str) -> list[str]:
    """The template, also by a repository's number, and of a root folder or all references with and without a slash."""
    found = [template]
    if template.endswith(("/contents/{path}", "/matching-refs/{ref}")):
        root = template.rpartition("/")[0]
        found += [root, f"{root}/"]
    by_name = "/repos/{owner}/{repo}"
    return found + [each.replace(by_name, BY_NUMBER, 1) for each in found if each.startswith(by_name)]


def _pattern(template: str) -> str:
    for name in GREEDY:
        template = template.replace(f"{{{name}}}", f"{{{name}:.+}}")
    return template


def _answer_not_found(call: Call) -> Response:
    log.warning("The local hub does not serve %s %s", call.method, call.path)
    raise not_found()


def _exchange(request: web.Request, route: Route, raw: bytes, answer: Response, content: bytes) -> Exchange:
    return Exchange(
        method=request.method,
        template=route.template,
        path=request.path,
        query=dict(request.query),
        request_body=raw,
        status=answer.status,
        media_type=answer.media_type,
        body=content,
    )


Trouble = Literal[
    "401",
    "403",
    "404",
    "502",
    "503",
    "rate_limited",
    "secondary_rate_limited",
    "graphql_rate_limited",
    "graphql_trouble",
    "drop",
    "drop_answer",
]
"""The `graphql_` ones come with status 200, as GitHub sends them. `drop` closes the connection before anything is done,
`drop_answer` does it and closes without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The next `times` requests with this method (`*` for any) to a path that matches meet `trouble`."""

    method: str
    pattern: str
    trouble: Trouble
    times: int
    retry_after: int


class Faults:
    """The faults that wait for a request, in the order of `add`."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, method: str, pattern: str, trouble: Trouble, *, times: int = 1, retry_after: int = 1) -> None:
        """Let the next `times` requests fail.

        Args:
            method: an HTTP method, or `*`.
            pattern: a shell pattern for the path from the server's root, e.g. `*/issues/*/comments`.
            trouble: how.
            times: how often.
            retry_after: seconds in the `Retry-After` header of the rate limits.
        """
        fault = Fault(method=method.upper(), pattern=pattern, trouble=trouble, times=times, retry_after=retry_after)
        self._waiting.append(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, used up by one."""
        for at, fault in enumerate(self._waiting):
            if fault.method in {"*", method} and fnmatchcase(path, fault.pattern):
                left = replace(fault, times=fault.times - 1)
                self._waiting[at : at + 1] = [left] if left.times else []
                return fault
        return None

    def clear(self) -> None:
        """Let everything work again."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)


def _refusal_of(fault: Fault, site: Site) -> HubError:
    match fault.trouble:
        case "rate_limited":
            reset = str(int(site.now().timestamp()) + fault.retry_after)
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset, "Retry-After": str(fault.retry_after)}
            return HubError(403, "API rate limit exceeded for installation.", headers=headers)
        case "secondary_rate_limited":
            message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            return HubError(403, message, headers={"Retry-After": str(fault.retry_after)})
        case _:
            return HubError(int(fault.trouble), _MESSAGES.get(fault.trouble, "Server Error"))


def _graphql_answer_of(fault: Fault) -> Response:
    """GraphQL's error answers, which GitHub sends with status 200."""
    if fault.trouble == "graphql_rate_limited":
        error = {"type": "RATE_LIMITED", "message": "API rate limit exceeded for installation ID 1."}
        return Response(body={"errors": [error]}, headers={"Retry-After": str(fault.retry_after)})
    said = "Something went wrong while executing your query. This may be the result of a timeout."
    return Response(body={"data": None, "errors": [{"message": said}]})


def hang_up(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def own_host(site: Site, host: str) -> Middleware:
    """Let requests through that name an address, `localhost`, or a name of the hub's.

    A page of a stranger that is open in a browser here can point its own name at the loopback (DNS rebinding). Its
    requests are then of the hub's origin, cookies and tokens of forms included; only the name tells them apart.

    Args:
        site: the hub; the name in its address is one of its own.
        host: the name or address that it listens at.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            name = urlsplit(f"//{request.host}").hostname or ""
        except ValueError:
            name = ""
        if name in {"localhost", host, urlsplit(site.url).hostname} or name.endswith(".localhost") or _is_address(name):
            return await handler(request)
        raise web.HTTPMisdirectedRequest(text=f"This hub is not {request.host!r}. Open {site.url} instead.\n")

    return check


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
