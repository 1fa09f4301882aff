"""The table of the pages' addresses, and the server that runs a view, guards forms and sets headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from importlib.resources import files
from urllib.parse import urlsplit

from aiohttp import web

from localhub.api.auth import HubError, not_found
from localhub.pages import accounts, code, threads
from localhub.pages.markup import code_styles
from localhub.pages.view import Page, PageVisit, View, error_page, session_of
from localhub.state.store import Site

POLICY = (
    "default-src 'none'; "
    "img-src 'self' https: data:; "
    "style-src 'self'; "
    "script-src 'self'; "
    "connect-src 'self'; "
    "form-action 'self'{form_targets}; "
    "base-uri 'none'; "
    "frame-ancestors 'none'; "
)

_VIEWS: tuple[tuple[str, str, View], ...] = (
    ("GET", "/", accounts.repositories),
    ("GET", "/avatars/{number}.svg", accounts.avatar),
    ("GET", "/apps/{slug}", accounts.app),
    ("GET", "/apps/{slug}/installations/new", accounts.choose_repositories),
    ("POST", "/apps/{slug}/installations/new", accounts.install_app),
    ("POST", "/settings/apps/new", accounts.confirm_new_app),
    ("POST", "/organizations/{org}/settings/apps/new", accounts.confirm_new_app),
    ("POST", "/settings/apps", accounts.register_app),
    ("GET", "/login", accounts.choose_person),
    ("POST", "/login", accounts.sign_in),
    ("POST", "/logout", accounts.sign_out),
    ("GET", "/login/oauth/authorize", accounts.authorize),
    ("POST", "/login/oauth/authorize", accounts.grant_code),
    ("POST", "/login/oauth/access_token", accounts.exchange_code),
    ("GET", "/{owner}", accounts.account),
    ("GET", "/{owner}/{repo}", code.repository),
    ("GET", "/{owner}/{repo}/", lambda visit: Page(location=visit.path.rstrip("/"))),
    ("GET", "/{owner}/{repo}/tree/{place:.+}", code.folder),
    ("GET", "/{owner}/{repo}/blob/{place:.+}", code.file),
    ("GET", "/{owner}/{repo}/raw/{place:.+}", code.raw),
    ("GET", "/{owner}/{repo}/commits/{ref:.+}", code.history),
    ("GET", "/{owner}/{repo}/commit/{sha}", code.commit),
    ("GET", "/{owner}/{repo}/runs/{number}", threads.check_run),
    ("POST", "/{owner}/{repo}/runs/{number}/actions", threads.press),
    ("GET", "/{owner}/{repo}/issues", threads.issues),
    ("POST", "/{owner}/{repo}/issues", threads.open_issue),
    ("GET", "/{owner}/{repo}/issues/new", threads.new_issue),
    ("GET", "/{owner}/{repo}/issues/{number}", threads.conversation),
    ("POST", "/{owner}/{repo}/issues/{number}/labels", threads.set_labels),
    ("GET", "/{owner}/{repo}/discussions", threads.discussions),
    ("GET", "/{owner}/{repo}/discussions/{number}", threads.discussion),
    ("GET", "/{owner}/{repo}/pulls", threads.pulls),
    ("POST", "/{owner}/{repo}/pulls", threads.open_pull),
    ("GET", "/{owner}/{repo}/pulls/new", threads.new_pull),
    ("GET", r"/{owner}/{repo}/pull/{number:\d+}.diff", threads.diff),
    ("GET", r"/{owner}/{repo}/pull/{number:\d+}.patch", threads.patch),
    ("GET", "/{owner}/{repo}/pull/{number}", threads.conversation),
    ("GET", "/{owner}/{repo}/pull/{number}/commits", threads.pull_commits),
    ("GET", "/{owner}/{repo}/pull/{number}/files", threads.pull_files),
    ("POST", "/{owner}/{repo}/pull/{number}/merge", threads.merge),
    ("POST", "/{owner}/{repo}/pull/{number}/reviews", threads.submit_review),
    ("POST", "/{owner}/{repo}/pull/{number}/files", threads.comment_on_line),
    ("POST", "/{owner}/{repo}/pull/{number}/replies", threads.reply),
    ("POST", "/{owner}/{repo}/issues/{number}/comments", threads.comment),
    ("POST", "/{owner}/{repo}/issues/{number}/edit", threads.edit),
)

_FROM_ANYWHERE = frozenset({accounts.confirm_new_app, accounts.exchange_code})
"""Forms that other sites may send: they change nothing, and a person is asked; or a secret is needed."""


class Pages:
    """Serves the pages; views run one at a time in the hub's threads, under the site's lock."""

    def __init__(self, site: Site, executor: Executor) -> None:
        self._site = site
        self._executor = executor

    def add_to(self, app: web.Application) -> None:
        """Add all addresses."""
        app.router.add_get("/static/{name}", _static)
        for method, pattern, view in _VIEWS:
            app.router.add_route(method, pattern, self._handler(view))

    def _handler(self, view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            form, guarded = {}, request.method == "POST" and view not in _FROM_ANYWHERE
            if guarded:
                _demand_same_origin(request)
            if request.method == "POST":
                form = {name: str(value).replace("\r\n", "\n") for name, value in (await _read_form(request)).items()}
            name = f"hub-session-{request.url.port}"  # browsers send cookies to all ports of a host
            given = request.cookies.get(name, "")
            visit = PageVisit(
                site=self._site,
                path=request.path,
                params=dict(request.match_info),
                query=dict(request.query),
                form=form,
                session=session_of(self._site, given),
            )
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(self._executor, self._run_view, view, visit, guarded)
            headers = {
                "Cache-Control": "no-store",
                "Content-Security-Policy": POLICY.format(form_targets=f" {page.form_target}" * bool(page.form_target)),
                "Content-Type": page.media_type,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "same-origin",
            }
            if page.location:
                headers |= {"Location": page.location}
            answer = web.Response(status=303 if page.location else page.status, body=page.body, headers=headers)
            session = page.session or visit.session
            if session.cookie != given:
                secure = self._site.url.startswith("https:")
                answer.set_cookie(name, session.cookie, httponly=True, samesite="Lax", secure=secure)
            return answer

        return handle

    def _run_view(self, view: View, visit: PageVisit, guarded: bool) -> Page:  # noqa: FBT001 - run in a thread
        with self._site.lock:
            try:
                if "\0" in visit.path:  # nothing has such a name, and git takes none
                    raise not_found()
                if guarded:
                    visit.demand_token()
                return view(visit)
            except HubError as error:
                return error_page(visit, error)


async def _read_form(request: web.Request) -> Mapping[str, object]:
    """The fields of a form, or of a JSON object in its place."""
    if request.content_type != "application/json":
        return await request.post()
    try:
        sent = await request.json()
    except ValueError as error:
        raise web.HTTPBadRequest(text="The body is no JSON.\n") from error
    if not isinstance(sent, dict):
        raise web.HTTPBadRequest(text="The body is no JSON object.\n")
    return sent


def _demand_same_origin(request: web.Request) -> None:
    """Refuse a form that another site's page sent."""
    origin = request.headers.get("Origin", "")
    if urlsplit(origin).netloc != request.host:
        raise web.HTTPForbidden(text=f"This form was sent from {origin or 'nowhere'}; send it from {request.host}.\n")


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == "code.css":
        return web.Response(text=code_styles(), content_type="text/css")
    media_type = {"style.css": "text/css", "live.js": "text/javascript"}.get(name)
    if media_type is None:
        raise web.HTTPNotFound
    text = files("localhub.pages").joinpath("static", name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=media_type)
