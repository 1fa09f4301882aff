"""A real browser for tests of pages: the Chromium of the system's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, async_playwright

PHONE = ViewportSize(width=390, height=844)
DESKTOP = ViewportSize(width=1280, height=900)
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(slots=True, kw_only=True)
class Watched:
    """A page, with everything that its console complains about.

    Attributes:
        page: the page.
        complaints: errors, warnings and violations of its content security policy.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)

    async def overflow(self) -> int:
        """Return the pixels by which the page is wider than the window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium; scripts/system-programs dev installs it")
    async with async_playwright() as playwright:
        # Root cannot use Chromium's own sandbox; the pages are ours.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = await playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield started
        finally:
            await started.close()


async def opened(context: BrowserContext) -> Watched:
    """A new page."""
    page = await context.new_page()
    watched = Watched(page=page)

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            watched.complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    return watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The texts and the pictures of a rendered text; `targets` has the words that only a link's or code's tag has."""

    text: str
    targets: str
    pictures: tuple[str, ...]


# As GitHub's sanitizer: comments and unknown tags go, the text between tags stays.
_READ = """pages => pages.map(page => {
  const body = new DOMParser().parseFromString(page, 'text/html').body;
  body.querySelectorAll('rp, svg, math, noscript, template, video, audio').forEach(element => element.remove());
  const pictures = [...body.querySelectorAll('img')].map(image => image.getAttribute('src') ?? '');
  const links = [...body.querySelectorAll('a, code')];
  const targets = links.map(element => [element.getAttribute('href'), element.className]);
  body.querySelectorAll('[data-footnote-backref], [data-footnote-ref]').forEach(element => element.remove());
  return {text: body.textContent, targets: targets.flat().join(' '), pictures};
})"""


async def shown(texts: Sequence[str]) -> list[Shown]:
    """Render each Markdown text with GitHub's parser in a browser."""
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
    extensions = ["table", "autolink", "tagfilter", "strikethrough", "tasklist"]
    pages = [cmarkgfm.markdown_to_html_with_extensions(text, options, extensions) for text in texts]
    async with browser() as started:
        page = await started.new_page()
        read = await page.evaluate(_READ, pages)
    return [Shown(text=part["text"], targets=part["targets"], pictures=tuple(part["pictures"])) for part in read]
