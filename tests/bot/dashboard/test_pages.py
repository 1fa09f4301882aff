"""The pages as a person who is signed in sees them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.dashboard.app import render
from bot.queue.records import JobRecord
from tests.bot.dashboard.serving import Served, served
from tests.builders import a_job


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as site:
        await site.sign_in()
        yield site


async def test_however_many_runs_are_queued_those_that_wait_for_a_person_are_shown(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("views", "app"):
        monkeypatch.setattr(f"bot.dashboard.{module}.MOST_LIVE", 2)
    await site.engine.restore(a_job("waits", number=1), JobRecord(), until=10.0**12)
    for number in (2, 3, 4):
        await site.engine.accept(a_job(f"queued-{number}", number=number))
    _, page, _ = await site.get()
    shown = [each for each in ("waits", "queued-2", "queued-3", "queued-4") if f"/runs/{each}" in page]
    assert shown == ["waits", "queued-3", "queued-4"]
    assert 'Waiting for a person <span class="count">1</span>' in page
    assert 'Queued <span class="count">the newest 2</span>' in page


async def test_the_costs_of_very_many_repositories_are_no_work_for_the_event_loop(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, own = list[threading.Thread](), render

    def watched(template: str, **values: object) -> str:
        made.append(threading.current_thread())
        return own(template, **values)

    monkeypatch.setattr("bot.dashboard.app.render", watched)
    assert (await site.get("/costs"))[0] == 200
    assert made != [threading.current_thread()]
    assert len(made) == 1
