"""The local page that sends a browser to GitHub with the manifest, and takes it back with the code."""

from __future__ import annotations

import asyncio
import hmac
import html
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

from aiohttp import web

from bot.apps.register.manifest import AppOptions, form_address, form_value, next_steps, settings_text
from bot.domain.errors import BotError
from bot.github import GitHubError, RegisteredApp, register_app

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
button {{ font: inherit; padding: .5rem 1rem }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
_HEADERS = {
    "Cache-Control": "no-store",
    # GitHub does not need to know the page, and the code in this one's address is nobody's business.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def create_app(options: AppOptions, say: Callable[[str], None], browse: Callable[[str], object]) -> RegisteredApp:
    """Have a person register the App in their browser; write its key and settings, and say what is next.

    Args:
        options: what is wanted.
        say: prints a line.
        browse: opens a page, if it can.

    Raises:
        BotError: the files are there already, or cannot be written; the port is taken; or GitHub did not give the key.
    """
    # Made before anything is registered: GitHub tells the key only once.
    with _new_files(options.key_file, options.settings_file) as (key, settings):
        async with _LocalPage(options).open() as page:
            say(f"Open this page in a browser that is signed in to {options.server}, and confirm there:\n")
            say(f"  {page.url}\n")
            say("From another machine, forward the port first: ssh -L PORT:127.0.0.1:PORT HOST. Ctrl+C cancels.")
            await asyncio.to_thread(browse, page.url)
            remedy = f"Delete the App at {options.server}/settings/apps if it is there, and run this again."
            try:
                app = await page.registered
                for file, text in ((key, app.private_key), (settings, settings_text(app, options))):
                    file.write(text)
                    file.flush()
            except GitHubError as error:
                raise BotError(f"The App's key is missing. {error} {remedy}") from error
            except OSError as error:
                raise BotError(f"The App's key cannot be written: {error.strerror}. {remedy}") from error
            finally:
                page.kept.set()
            await page.answered.wait()
    say(f"\n{next_steps(app, options)}")
    return app


class _LocalPage:
    """Serves one visit on the loopback, under a path that no other user of the machine can guess.

    Attributes:
        url: the page; empty before `open`.
        registered: the App, once GitHub has given it.
        kept: to be set when its key is written, or cannot be; the browser is told only then.
        answered: set when the browser has been told, or has gone.
    """

    def __init__(self, options: AppOptions) -> None:
        self._options = options
        self._path, self._state = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.url = ""
        self.registered: asyncio.Future[RegisteredApp] = asyncio.get_running_loop().create_future()
        self.kept, self.answered = asyncio.Event(), asyncio.Event()
        self._asked = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[_LocalPage]:
        """Listen until the end of the `with`."""
        served = web.Application()
        served.router.add_get(f"/{self._path}", self._begin)
        served.router.add_get(f"/{self._path}/done", self._done)
        runner = web.AppRunner(served, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", self._options.port)
            try:
                await site.start()
            except OSError as error:
                raise BotError(f"Port {self._options.port} cannot be used: {error.strerror}; choose --port.") from error
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/{self._path}"
            yield self
        finally:
            await runner.cleanup()

    async def _begin(self, _request: web.Request) -> web.Response:
        address = html.escape(form_address(self._options, state=self._state))
        value = html.escape(form_value(self._options, redirect_url=f"{self.url}/done"))
        return _page(
            "Create the GitHub App",
            f"<p>GitHub shows what the App <strong>{html.escape(self._options.name)}</strong> may do, and asks you to "
            f'confirm.</p><form method="post" action="{address}"><input type="hidden" name="manifest" value="{value}">'
            "<button>Continue to GitHub</button></form>",
            forms=self._options.server,
        )

    async def _done(self, request: web.Request) -> web.Response:
        code = request.query.get("code", "")
        if not code or not hmac.compare_digest(request.query.get("state", "").encode(), self._state.encode()):
            raise web.HTTPBadRequest(text="This page was not requested from here.\n")
        if not self._asked:  # a page that is loaded again has the same code, which works once
            self._asked = True
            try:
                self.registered.set_result(await register_app(code, self._options.api_url, self._options.ca_file))
            except GitHubError as error:
                self.registered.set_exception(error)
        await self.kept.wait()
        failed = self.registered.exception()
        if failed is not None:
            page = _page("The App's key is missing", f"<p>{html.escape(str(failed))}</p>")
        else:
            page = _page(f"{self.registered.result().slug} is registered", "<p>Continue in the terminal.</p>")
        try:
            await page.prepare(request)
            await page.write_eof()
        finally:
            self.answered.set()
        return page


def _page(title: str, body: str, *, forms: str = "'none'") -> web.Response:
    policy = f"default-src 'none'; style-src 'unsafe-inline'; form-action {forms}; base-uri 'none'"
    text = _PAGE.format(title=html.escape(title), body=body)
    headers = {**_HEADERS, "Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}
    return web.Response(text=text, content_type="text/html", headers=headers)


@contextmanager
def _new_files(*paths: Path) -> Iterator[Sequence[TextIO]]:
    """Files that only their owner may read; gone again when the body of the `with` fails."""
    with ExitStack() as stack:
        opened = []
        for path in paths:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError as error:
                raise BotError(f"{path} already exists; choose another --directory.") from error
            except OSError as error:
                raise BotError(f"{path} cannot be written: {error.strerror}; choose another --directory.") from error
            stack.callback(path.unlink, missing_ok=True)
            opened.append(os.fdopen(descriptor, "w", encoding="utf-8"))
            stack.push(opened[-1])
        yield opened
        for each in opened:
            each.close()
        stack.pop_all()
