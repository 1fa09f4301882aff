"""The service as a process: what it does before it listens."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from typing_extensions import override

from bot.domain.access import BotProfile
from bot.github.app import AppAccess, AppDescription
from bot.server import serve
from bot.server.process import Watchdog
from bot.server.webhook import WebhookOptions
from bot.settings.models import Settings
from localhub import LocalHub
from tests.stage import WEBHOOK_SECRET, agent_settings, build
from tests.waiting import eventually


@pytest.fixture
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


class _Stops(Watchdog):
    """Ends the service where a watchdog would begin to watch it, and notes what the collector leaves alone then."""

    frozen = 0

    @override
    def start(self) -> None:
        self.frozen = gc.get_freeze_count()
        raise asyncio.CancelledError


def _settings(directory: Path, **changes: object) -> Settings:
    given: dict[str, object] = {
        "webhook_secret": SecretStr(WEBHOOK_SECRET),
        "app_id": 1,
        "private_key": SecretStr("none is needed so far"),
        "api_url": "http://127.0.0.1:9",
        "server_url": "http://127.0.0.1:9",
        "jobs": 1,
        "host": "127.0.0.1",
        "port": 0,
    }
    return Settings(agent=agent_settings(directory / "data"), **{**given, **changes})  # type: ignore[arg-type]  # of a test


@pytest.mark.usefixtures("_thawed")
@pytest.mark.parametrize("run", [serve.serve, serve.work])
async def test_no_full_collection_visits_what_start_up_made(
    run: Callable[[Settings, Watchdog], Coroutine[None, None, None]], tmp_path: Path
) -> None:
    settings = _settings(tmp_path)
    watchdog = _Stops()
    with pytest.raises(asyncio.CancelledError):
        await run(settings, watchdog)
    assert watchdog.frozen > 10_000


def _options() -> WebhookOptions:
    return WebhookOptions(secret=SecretStr(WEBHOOK_SECRET), profile=BotProfile(triggers=("/bot",)))


@pytest.mark.parametrize("names", [("@codepilot", "@codepilot[bot]"), ()], ids=["on", "off"])
async def test_the_apps_name_is_a_trigger_before_the_service_listens(
    hub: LocalHub,
    tmp_path: Path,
    names: tuple[str, ...],
) -> None:
    app, _ = build(hub, None)
    key = SecretStr(app.private_key_pem)
    settings = _settings(
        tmp_path, app_id=app.id, private_key=key, api_url=hub.api_url, server_url=hub.url, mentions=bool(names)
    )
    options = _options()
    async with serve.listen_for_mentions(settings, options):
        assert options.profile.triggers == ("/bot", *names)


async def test_a_service_listens_while_github_does_not_tell_the_apps_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [AppDescription(slug="a name of an old server"), AppDescription(slug="helper")]

    async def describe(_access: AppAccess) -> AppDescription:
        return answers.pop(0)

    monkeypatch.setattr(serve, "describe_app", describe)
    monkeypatch.setattr(serve, "_LONGEST_PAUSE_SECONDS", 0.0)
    options = _options()
    async with serve.listen_for_mentions(_settings(tmp_path), options):
        await eventually(lambda: options.profile.triggers == ("/bot", "@helper", "@helper[bot]"))
