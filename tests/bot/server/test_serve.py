"""The service as a process: what it does before it listens."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from typing_extensions import override

from bot.server import serve
from bot.server.process import Watchdog
from bot.settings.models import Settings
from tests.stage import WEBHOOK_SECRET, agent_settings


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


@pytest.mark.usefixtures("_thawed")
@pytest.mark.parametrize("run", [serve.serve, serve.work])
async def test_no_full_collection_visits_what_start_up_made(
    run: Callable[[Settings, Watchdog], Coroutine[None, None, None]], tmp_path: Path
) -> None:
    settings = Settings(
        agent=agent_settings(tmp_path / "data"),
        webhook_secret=SecretStr(WEBHOOK_SECRET),
        app_id=1,
        private_key=SecretStr("none is needed so far"),
        api_url="http://127.0.0.1:9",
        server_url="http://127.0.0.1:9",
        jobs=1,
        host="127.0.0.1",
        port=0,
    )
    watchdog = _Stops()
    with pytest.raises(asyncio.CancelledError):
        await run(settings, watchdog)
    assert watchdog.frozen > 10_000
