"""The App is registered in a browser, from a manifest, and its key and settings are written."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest

from bot.cli.app import EVENTS, PERMISSIONS, AppOptions, check_options, create_app, manifest
from bot.domain.errors import BotError
from bot.git.process import make_connector
from bot.github.app import describe_app
from bot.server.build import read_app_access
from bot.settings import load
from localhub import LocalHub
from tests.waiting import eventually

_FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
_ACTION = re.compile(r'<form[^>]* action="([^"]*)"')


def options(server: str, directory: Path) -> AppOptions:
    return AppOptions(
        name="Codepilot for Acme",
        webhook="https://bot.example.com/webhook",
        organisation="",
        server=server,
        workflows=False,
        dashboard=True,
        public=False,
        directory=directory / "app",
        port=0,
    )


class Browser:
    """Follows the pages as a person would, and keeps what they said."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._ca_file = ca_file
        self.pages: list[str] = []
        self.visits: list[asyncio.Task[None]] = []

    def on(self, loop: asyncio.AbstractEventLoop, **changed: str) -> Callable[[str], object]:
        """What opens a page; `changed` are values of the last form that somebody else made."""

        def browse(url: str) -> None:
            loop.call_soon_threadsafe(lambda: self.visits.append(loop.create_task(self._visit(url, changed))))

        return browse

    async def _visit(self, url: str, changed: dict[str, str]) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=make_connector(self._ca_file), cookie_jar=jar) as session:
            async with session.get(url) as answer:
                page = await answer.text()
            for number in range(2):
                action = _ACTION.findall(page)[-1]  # the first one may sign out
                fields = {name: html.unescape(value) for name, value in _FIELD.findall(page)}
                origin = "/".join(url.split("/")[:3])
                url = urljoin(url, html.unescape(action))
                data, headers = fields | (changed if number else {}), {"Origin": origin}
                async with session.post(url, data=data, headers=headers) as answer:
                    page = await answer.text()
                    self.pages.append(f"{answer.status} {page}")


async def test_a_person_confirms_and_the_bot_has_its_app(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("mona")
    lines, browser = list[str](), Browser()
    wanted = options(hub.url, tmp_path)
    made = await asyncio.wait_for(create_app(wanted, lines.append, browser.on(asyncio.get_running_loop())), 30)
    await asyncio.gather(*browser.visits)
    assert [page[:3] for page in browser.pages] == ["200", "200"]
    assert "codepilot-for-acme is registered" in browser.pages[1]
    assert made.private_key not in "".join([*browser.pages, *lines])
    for path in (wanted.key_file, wanted.settings_file):
        assert path.stat().st_mode & 0o777 == 0o600
    assert f"export CODEPILOT_CONFIG={wanted.settings_file.resolve()}" in lines[-1]
    settings = load.load(
        {
            "CODEPILOT_CONFIG": str(wanted.settings_file),
            "ANTHROPIC_API_KEY": "sk-ant-1",
            "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
        }
    )
    assert settings.app_id == made.id
    assert settings.has_github_sign_in
    assert settings.webhook_secret.get_secret_value() == hub.app(made.id).webhook_secret
    found = await describe_app(read_app_access(settings))
    assert (found.slug, found.refused) == ("codepilot-for-acme", "")
    assert found.permissions == {each.name: each.level for each in PERMISSIONS if each.weight != "optional"}
    assert set(found.events) == {each.name for each in EVENTS}


async def test_an_answer_that_nobody_asked_for_is_refused(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("mona")
    browser, wanted = Browser(), options(hub.url, tmp_path)
    loop = asyncio.get_running_loop()
    creating = loop.create_task(create_app(wanted, lambda _line: None, browser.on(loop, state="another")))
    await eventually(lambda: browser.pages[1:])
    assert browser.pages[1].startswith("400 This page was not requested")
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert not list(wanted.directory.iterdir()), "nothing is left of what was not created"


async def test_nothing_is_registered_when_the_files_are_there_already(hub: LocalHub, tmp_path: Path) -> None:
    wanted = options(hub.url, tmp_path)
    wanted.directory.mkdir()
    wanted.settings_file.write_text("app_id: 1\n", encoding="utf-8")
    with pytest.raises(BotError, match=r"codepilot\.yml already exists; choose another --directory"):
        await create_app(wanted, lambda _line: None, pytest.fail)
    assert wanted.settings_file.read_text(encoding="utf-8") == "app_id: 1\n"
    assert not wanted.key_file.exists()


def test_workflow_files_are_asked_for_only_when_they_are_wanted(tmp_path: Path) -> None:
    usual = options("https://github.com", tmp_path)
    assert "workflows" not in manifest(usual, redirect_url="x")["default_permissions"]
    assert manifest(replace(usual, workflows=True), redirect_url="x")["default_permissions"]["workflows"] == "write"


@pytest.mark.parametrize("webhook", ["/webhook", "/webhook/", "/bots/codepilot/webhook?a=b/c"])
def test_people_come_back_to_the_dashboard_at_the_root_of_the_host(tmp_path: Path, webhook: str) -> None:
    wanted = replace(options("https://github.com", tmp_path), webhook=f"https://bot.example.com:8443{webhook}")
    found = manifest(wanted, redirect_url="x")["callback_urls"]
    assert found == ["https://bot.example.com:8443/dashboard/github/back"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "x" * 35}, "--name must have 1 to 34 characters"),
        ({"webhook": "bot.example.com"}, "--webhook must be an address"),
        ({"webhook": "https://bot.example.com/"}, "listens at https://bot.example.com/webhook"),
        ({"server": "github.example.com"}, "--server must be an address"),
    ],
)
def test_what_github_would_not_take_is_said_first(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        check_options(replace(options("https://github.com", tmp_path), **changes))


def test_the_address_of_the_server_is_written_as_the_settings_have_it(tmp_path: Path) -> None:
    made = check_options(options("https://GHE.example.com/api/v3/", tmp_path))
    assert (made.server, made.api_url) == ("https://ghe.example.com", "https://ghe.example.com/api/v3")
