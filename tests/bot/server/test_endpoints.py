"""Who may read the metrics, and what health and readiness depend on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.queue.memory import InMemoryEngine
from bot.server.webhook import Endpoints

TOKEN = "a-token-of-the-test"


class _Broken(InMemoryEngine):
    """An engine whose database is gone."""

    checks = 0

    @override
    async def check(self) -> None:
        self.checks += 1
        raise QueueError("the database is gone")


@asynccontextmanager
async def _asked(
    *,
    token: str | None,
    private: bool,
    engine: InMemoryEngine | None = None,
    draining: bool = False,
    checked_seconds: float = 1.0,
) -> AsyncIterator[aiohttp.ClientSession]:
    async def metrics() -> bytes:
        return b"codepilot_jobs 1\n"

    app, secret = web.Application(), SecretStr(token) if token else None
    Endpoints(
        engine or InMemoryEngine(),
        metrics,
        token=secret,
        private=private,
        draining=lambda: draining,
        checked_seconds=checked_seconds,
    ).add_to(app)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("private", [True, False], ids=["port for metrics", "receiver"])
@pytest.mark.parametrize("shown", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff"])
async def test_without_the_token_nobody_reads_the_metrics(shown: str | None, *, private: bool) -> None:
    headers = {"Authorization": shown} if shown else {}
    async with _asked(token=TOKEN, private=private) as client, client.get("/metrics", headers=headers) as answer:
        assert answer.status == 401
        assert "codepilot_jobs" not in await answer.text()


@pytest.mark.parametrize("private", [True, False], ids=["port for metrics", "receiver"])
async def test_who_shows_the_token_reads_the_metrics(*, private: bool) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with _asked(token=TOKEN, private=private) as client, client.get("/metrics", headers=headers) as answer:
        assert (answer.status, await answer.text()) == (200, "codepilot_jobs 1\n")


async def test_without_a_token_this_machine_reads_them_on_the_port_for_them() -> None:
    async with _asked(token=None, private=True) as client, client.get("/metrics") as answer:
        assert answer.status == 200


async def test_without_a_token_a_proxy_on_this_machine_gets_none_and_is_told_the_remedy() -> None:
    async with _asked(token=None, private=False) as client, client.get("/metrics") as answer:
        assert answer.status == 403
        assert "CODEPILOT_METRICS_TOKEN" in (await answer.json())["reason"]


async def test_a_database_that_is_gone_makes_the_bot_not_ready_and_is_no_reason_to_restart_it() -> None:
    async with _asked(token=None, private=False, engine=_Broken()) as client:
        async with client.get("/readyz") as answer:
            assert answer.status == 503
        async with client.get("/healthz") as answer:
            assert answer.status == 200


async def test_a_database_that_is_gone_is_asked_once_in_a_while_however_many_ask() -> None:
    engine = _Broken()
    async with _asked(token=None, private=False, engine=engine, checked_seconds=3600.0) as client:
        answers = [(await client.get("/readyz")).status for _ in range(5)]
    assert answers == [503] * 5
    assert engine.checks == 1


async def test_a_process_that_is_about_to_stop_is_not_ready_but_healthy() -> None:
    async with _asked(token=None, private=True, draining=True) as client:
        answers = {path: (await client.get(path)).status for path in ("/healthz", "/readyz")}
    assert answers == {"/healthz": 200, "/readyz": 503}
