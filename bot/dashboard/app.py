"""The dashboard's web pages, below `/dashboard`. Start at `Dashboard`.

Templates escape every value, and every response has strict headers. `LivePages` notifies open pages of changes.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import cast
from urllib.parse import parse_qs, urlencode

import jinja2
from aiohttp import web
from markupsafe import Markup, escape

from bot.dashboard import views
from bot.dashboard.auth import ATTEMPT_SECONDS, SIGN_IN_SECONDS, People, Proxies, SignIn, SignIns, client_address
from bot.dashboard.views import MAX_LIVE_RUNS, DashboardReader
from bot.domain.errors import BotError, QueueError
from bot.domain.job import JobState
from bot.domain.spend import day_of, period_days
from bot.github.app import CALLBACK_PATH
from bot.github.types import GitHubError
from bot.publishing.markdown import duration
from bot.queue.records import DIMENSIONS, RunQuery, SpendQuery

log = logging.getLogger(__name__)
PREFIX = "/dashboard"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_COOKIE, _FORM_COOKIE = "codepilot_dashboard", "codepilot_dashboard_form"
_GITHUB_COOKIE = "codepilot_dashboard_github"
_MAX_FORM_BYTES = 4096
_FORM_SECONDS = 10.0
_MAX_FIELDS = 10
_RUNS_PER_PAGE = 50
_MAX_RUN_PAGES = 200
_MAX_QUERY = 200
_MAX_BUDGETS = 20
_MONTH = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")
_FORM_VALUE = re.compile(r"[A-Za-z0-9_-]{22}")
_OWN_PAGE = re.compile(rf"{PREFIX}(?:/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9=&%+._/-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageViewer:
    """The person who views a page.

    Attributes:
        repo_ids: visible repositories; None for all.
    """

    sign_in: SignIn
    repo_ids: frozenset[int] | None

    @property
    def name(self) -> str:
        return self.sign_in.login or "operator"


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request, PageViewer], Awaitable[web.StreamResponse]]


class Dashboard:
    """Request handlers of the pages; `proxies` have a trusted `X-Forwarded-For`."""

    def __init__(
        self,
        reader: DashboardReader,
        sign_ins: SignIns,
        live: LivePages,
        people: People | None = None,
        proxies: Proxies = (),
    ) -> None:
        self._reader, self._sign_ins, self._live, self._people = reader, sign_ins, live, people
        self._proxies = proxies

    def mount(self, app: web.Application) -> None:
        own = web.Application(middlewares=[_add_headers])
        own.router.add_get("", self._require_sign_in(self._queue))
        own.router.add_get("/runs", self._require_sign_in(self._runs))
        own.router.add_get(r"/runs/{id:[\w-]+}", self._require_sign_in(self._run))
        own.router.add_get("/costs", self._require_sign_in(self._costs))
        own.router.add_get("/events", self._require_sign_in(self._events, page=False))
        own.router.add_get("/sign-in", self._sign_in_page)
        own.router.add_post("/sign-in", self._sign_in)
        if self._people is not None:
            own.router.add_get("/github", self._redirect_to_github)
            own.router.add_get(CALLBACK_PATH.removeprefix(PREFIX), self._finish_github_sign_in)
        own.router.add_post("/sign-out", self._require_sign_in(self._sign_out, looks=False))
        own.router.add_get("/static/{name}", _serve_static)
        own.on_shutdown.append(lambda _app: self._live.close())
        app.add_subapp(PREFIX, own)

    def _require_sign_in(self, handler: Handler, *, page: bool = True, looks: bool = True) -> Answer:
        """Require a sign-in: redirect pages to the form, refuse other requests.

        GitHub, which may be down, is asked for the visible repositories only if `looks`.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            sign_in = self._sign_ins.read(request.cookies.get(_COOKIE, ""))
            repo_ids = None if looks else frozenset[int]()
            if looks and sign_in is not None and sign_in.login:
                repo_ids = await self._people.repositories(sign_in.token) if self._people is not None else None
                sign_in = sign_in if repo_ids is not None else None
            if sign_in is None:
                if not page or request.method != "GET":
                    raise web.HTTPUnauthorized(text="Sign in first.\n")
                raise web.HTTPSeeOther(f"{PREFIX}/sign-in?{urlencode({'next': str(request.rel_url)})}")
            return await handler(request, PageViewer(sign_in=sign_in, repo_ids=repo_ids))

        return handle

    async def _queue(self, _request: web.Request, viewer: PageViewer) -> web.Response:
        queue, now = await self._reader.read_queue(viewer.repo_ids), time.time()
        sections = [
            ("Waiting for a person", JobState.WAITING),
            ("Running", JobState.RUNNING),
            ("Queued", JobState.QUEUED),
        ]
        rows = [(title, [views.build_run_row(run, now=now) for run in queue.live[state]]) for title, state in sections]
        budgets = sorted(self._reader.budgets(), key=lambda run: run[2].remaining)[:_MAX_BUDGETS]
        return _render_page(
            "queue.html",
            viewer,
            title="Queue",
            sections=rows,
            most=MAX_LIVE_RUNS,
            ended=[views.build_run_row(run, now=now) for run in queue.ended],
            # Only for operators, who see all installations.
            budgets=budgets if viewer.repo_ids is None else [],
        )

    async def _runs(self, request: web.Request, viewer: PageViewer) -> web.Response:
        filters = {name: _read_query(request, name) for name in ("repository", "person", "state")}
        page = _read_number(request, "page", most=_MAX_RUN_PAGES) or 1
        states = frozenset(state for state in JobState if state.value == filters["state"])
        runs = await self._reader.find_runs(
            RunQuery(
                states=states,
                repository=filters["repository"],
                person=filters["person"].removeprefix("@"),
                repo_ids=viewer.repo_ids,
                limit=_RUNS_PER_PAGE + 1,
                offset=(page - 1) * _RUNS_PER_PAGE,
            )
        )
        query = {name: value for name, value in filters.items() if value}
        links = [("Newer", page - 1)] if page > 1 else []
        links += [("Older", page + 1)] if len(runs) > _RUNS_PER_PAGE and page < _MAX_RUN_PAGES else []
        now = time.time()
        return _render_page(
            "runs.html",
            viewer,
            title="Runs",
            filters=filters,
            rows=[views.build_run_row(run, now=now) for run in runs[:_RUNS_PER_PAGE]],
            pages=[views.PageLink(label=label, url=f"?{urlencode({**query, 'page': at})}") for label, at in links],
        )

    async def _run(self, request: web.Request, viewer: PageViewer) -> web.Response:
        stored = await self._reader.find_run(request.match_info["id"], viewer.repo_ids)
        if stored is None:
            raise web.HTTPNotFound
        material = await self._reader.read_run(stored)
        page, diff_page = _read_number(request, "page"), _read_number(request, "diff") or 1

        def render_run() -> web.Response:
            server_url = self._reader.server_url
            run = views.build_run_view(material, now=time.time(), server_url=server_url, page=page, diff_page=diff_page)
            return _render_page("run.html", viewer, title=run.row.title, run=run)

        return await asyncio.to_thread(render_run)

    async def _costs(self, request: web.Request, viewer: PageViewer) -> web.Response:
        now, month = time.time(), _MONTH.fullmatch(request.query.get("month", ""))
        at = datetime(int(month[1]), int(month[2]), 1, tzinfo=UTC).timestamp() if month else now
        first, end = period_days(day_of(at), "month")
        equal = {name: value for name in DIMENSIONS if (value := _read_query(request, name))}
        query = SpendQuery(first=first, end=end, equal=equal, repo_ids=viewer.repo_ids)
        sums = await self._reader.spending.sums(query)
        schedules = () if equal else await self._reader.spending.scheduled(viewer.repo_ids)

        def render_costs() -> web.Response:  # a hundred schedules take a second
            view = views.build_cost_view(query, sums, schedules, now=now)
            return _render_page("costs.html", viewer, title="Costs", costs=view)

        return await asyncio.to_thread(render_costs)

    async def _events(self, request: web.Request, viewer: PageViewer) -> web.StreamResponse:
        run = _read_query(request, "run")
        if run and await self._reader.find_run(run, viewer.repo_ids) is None:
            raise web.HTTPNotFound
        # Operators share a token, so their sign-ins are counted separately.
        async with self._live.subscribe(viewer.sign_in.login or viewer.sign_in.id, run) as events:
            if events is None:
                raise web.HTTPServiceUnavailable(text="Too many pages are open.\n")
            answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
            with suppress(ConnectionResetError):  # the page was closed
                await answer.prepare(request)
                async for event in events(viewer.sign_in.until):
                    await answer.write(event)
        return answer

    async def _sign_in_page(self, request: web.Request, *, wrong: str = "", status: int = 200) -> web.Response:
        form = request.cookies.get(_FORM_COOKIE, "")
        form = form if _FORM_VALUE.fullmatch(form) else secrets.token_urlsafe(16)
        values = {"next": _safe_next_page(request.query.get("next", "")), "form": form, "wrong": wrong}
        answer = _render_page(
            "sign_in.html",
            None,
            title="Sign in",
            by_token=self._sign_ins.has_token,
            by_github=self._people is not None,
            **values,
        )
        answer.set_status(status)
        # The form repeats the cookie, against login CSRF.
        _set_cookie(request, answer, _FORM_COOKIE, form, seconds=3600, samesite="Strict")
        return answer

    def _can_try(self, request: web.Request) -> bool:
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
        return self._sign_ins.count_attempt(client_address(request.remote or "", forwarded, self._proxies))

    async def _sign_in(self, request: web.Request) -> web.Response:
        if not self._can_try(request):
            return await self._sign_in_page(request, wrong="Too many attempts. Try again in a minute.", status=429)
        form = await _read_form(request)
        cookie = request.cookies.get(_FORM_COOKIE, "")
        is_same = hmac.compare_digest(cookie.encode(errors="replace"), form.get("form", "").encode(errors="replace"))
        if not _FORM_VALUE.fullmatch(cookie) or not is_same:
            return await self._sign_in_page(request, wrong="The page was too old. Try again.", status=403)
        if not self._sign_ins.is_operator(form.get("token", "")):
            log.warning("a sign-in to the dashboard was refused", extra={"stranger": True})
            return await self._sign_in_page(request, wrong="This is not the token.", status=403)
        return _with_sign_in(request, self._sign_ins.create(), _safe_next_page(form.get("next", "")))

    async def _redirect_to_github(self, request: web.Request) -> web.Response:
        people = cast("People", self._people)
        address, cookie = people.start(_safe_next_page(request.query.get("next", "")))
        answer = web.Response(status=303, headers={"Location": address})
        # Lax: GitHub returns by a link.
        _set_cookie(request, answer, _GITHUB_COOKIE, cookie, seconds=ATTEMPT_SECONDS, samesite="Lax")
        return answer

    async def _finish_github_sign_in(self, request: web.Request) -> web.Response:
        if not self._can_try(request):
            return await self._sign_in_page(request, wrong="Too many attempts. Try again in a minute.", status=429)
        people, query = cast("People", self._people), request.query
        cookie = request.cookies.get(_GITHUB_COOKIE, "")
        try:
            result = await people.finish(cookie, state=query.get("state", ""), code=query.get("code", "")[:_MAX_QUERY])
        except GitHubError as error:
            log.warning("a sign-in with GitHub failed: %s", error, extra={"stranger": True})
            result = None
        if result is None:
            wrong = (
                "GitHub did not sign you in. Try again; if it fails again, the operator finds the reason in the log."
            )
            return await self._sign_in_page(request, wrong=wrong, status=403)
        answer = _with_sign_in(request, *result)
        answer.del_cookie(_GITHUB_COOKIE, path=PREFIX)
        return answer

    async def _sign_out(self, request: web.Request, viewer: PageViewer) -> web.Response:
        form = await _read_form(request)
        if not hmac.compare_digest(viewer.sign_in.form.encode(), form.get("form", "").encode(errors="replace")):
            raise web.HTTPForbidden(text="This form is not from a page of the dashboard.\n")
        self._sign_ins.revoke(viewer.sign_in)
        answer = web.Response(status=303, headers={"Location": f"{PREFIX}/sign-in"})
        answer.del_cookie(_COOKIE, path=PREFIX)
        return answer


def _with_sign_in(request: web.Request, cookie: str, next_page: str) -> web.Response:
    answer = web.Response(status=303, headers={"Location": next_page})
    # Lax: links from GitHub must work for signed-in people.
    _set_cookie(request, answer, _COOKIE, cookie, seconds=SIGN_IN_SECONDS, samesite="Lax")
    return answer


def _set_cookie(
    request: web.Request, answer: web.Response, name: str, value: str, *, seconds: int, samesite: str
) -> None:
    # TLS may end at a proxy. A client that forges the header only makes its own cookie stricter.
    secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    answer.set_cookie(name, value, max_age=seconds, path=PREFIX, httponly=True, secure=secure, samesite=samesite)


def _safe_next_page(address: str) -> str:
    """Return the address if it is a page of the dashboard, else the first page."""
    return address if _OWN_PAGE.fullmatch(address) else PREFIX


def _read_query(request: web.Request, name: str) -> str:
    return request.query.get(name, "").replace("\0", "").strip()[:_MAX_QUERY]


def _read_number(request: web.Request, name: str, *, most: int = 1_000_000) -> int | None:
    text = request.query.get(name, "")
    return min(int(text), most) if re.fullmatch(r"[0-9]{1,7}", text) else None


async def _read_form(request: web.Request) -> dict[str, str]:
    size = request.content_length
    if size is None or size > _MAX_FORM_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=_MAX_FORM_BYTES, actual_size=size or 0)
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            body = await request.content.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        raise web.HTTPRequestTimeout(text="The form did not arrive.\n") from error
    try:
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=_MAX_FIELDS, errors="replace")
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"The form has more than {_MAX_FIELDS} fields.\n") from error
    return {name: values[0] for name, values in fields.items()}


def _render_page(template: str, viewer: PageViewer | None, **values: object) -> web.Response:
    text = render(template, viewer=viewer, prefix=PREFIX, states=[state.value for state in JobState], **values)
    return web.Response(text=text, content_type="text/html")


def _render_error(status: int, text: str | None) -> web.Response:
    values = {"title": "Not found" if status == web.HTTPNotFound.status_code else "Error", "text": text or ""}
    answer = _render_page("error.html", None, **values)
    answer.set_status(status)
    return answer


@web.middleware
async def _add_headers(request: web.Request, handler: Answer) -> web.StreamResponse:
    """Add the headers, and render errors without details."""
    try:
        answer = await handler(request)
    except web.HTTPSeeOther as redirect:
        answer = web.Response(status=redirect.status, headers={"Location": str(redirect.location)})
    except web.HTTPException as error:
        answer = _render_error(error.status, error.text if error.status != web.HTTPNotFound.status_code else "")
    except (BotError, OSError):
        log.exception("a page of the dashboard could not be made", extra={"stranger": True})
        answer = _render_error(503, "GitHub, the database or a store does not answer. See the log.")
    except Exception:  # the server's own answer to a fault of ours would have none of the headers
        log.exception("a page of the dashboard has an internal error", extra={"stranger": True})
        answer = _render_error(500, "The bot has an internal error. See the log.")
    if not answer.prepared:
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
    return answer


_STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}


async def _serve_static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in _STATIC:
        raise web.HTTPNotFound
    text = files("bot.dashboard").joinpath("static", name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=_STATIC[name], headers={"Cache-Control": "max-age=300"})


_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.dashboard"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["duration"] = duration


def mark_code(text: str) -> Markup:
    """Escape a text, and render what stands between back ticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


_TEMPLATES.filters["codes"] = mark_code


def render(template: str, **values: object) -> str:
    return _TEMPLATES.get_template(template).render(values)


MAX_LIVE_PAGES = 200
"""Maximum number of live pages."""

_MAX_PAGES_PER_PERSON = 20
_POLL_SECONDS = 1.0
_KEEPALIVE_SECONDS = 15.0


class LivePages:
    """Server-sent events for open pages, with a poller that runs while there are any.

    Args:
        pulse: returns a text that changes with any job.
        stamp: the same for one run's log; blocks.
    """

    def __init__(
        self, pulse: Callable[[], Awaitable[str]], stamp: Callable[[str], str], *, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        self._pulse, self._stamp, self._poll_seconds = pulse, stamp, poll_seconds
        self._listeners: set[_Listener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def subscribe(self, who: str, run: str) -> AsyncIterator[Callable[[float], AsyncIterator[bytes]] | None]:
        """Yield the events for a page, for all runs if `run` is empty; None if there are too many pages."""
        count = sum(listener.who == who for listener in self._listeners)
        if self._closed or len(self._listeners) >= MAX_LIVE_PAGES or count >= _MAX_PAGES_PER_PERSON:
            yield None
            return
        listener = _Listener(who, run)
        self._listeners.add(listener)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield lambda until: self._events(listener, until)
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def close(self) -> None:
        """End all events, so that the server can stop."""
        self._closed = True
        for listener in self._listeners:
            listener.changed.set()

    async def _events(self, listener: _Listener, until: float) -> AsyncIterator[bytes]:
        yield b"retry: 3000\n: live\n\n"
        while (remaining := until - time.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_KEEPALIVE_SECONDS, remaining)):
                    await listener.changed.wait()
            if self._closed:
                return
            yield b"event: changed\ndata: .\n\n" if listener.changed.is_set() else b": still live\n\n"
            listener.changed.clear()

    async def _poll(self) -> None:
        while True:
            runs = {listener.run for listener in self._listeners}
            try:
                pulse = await self._pulse()
                stamps = await asyncio.to_thread(
                    lambda names: {listener: self._stamp(listener) for listener in names}, runs - {""}
                )
            except QueueError as error:
                log.warning("pages of the dashboard are not live: %s", error, extra={"stranger": True})
                await asyncio.sleep(self._poll_seconds)
                continue
            for listener in self._listeners:
                version = f"{pulse} {stamps.get(listener.run, '')}"
                # Also at the first poll, since something may have changed since the page was rendered.
                if listener.run in runs and listener.version != version:
                    listener.version = version
                    listener.changed.set()
            await asyncio.sleep(self._poll_seconds)


@dataclass(slots=True, eq=False)
class _Listener:
    who: str
    run: str
    version: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
