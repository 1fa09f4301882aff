"""A real browser for tests of pages: the Chromium of the system's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
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
        """How many pixels the page is wider than the window."""
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
