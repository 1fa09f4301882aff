"""The pages as a person who is signed in sees them, and the log of a run on its page."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Event, Replied, Started, Task, Usage
from bot.dashboard.app import render
from bot.domain.job import JobState
from bot.jobs.record import ServiceOutage, StoredRecord
from bot.publishing.status_view import build_log, pack_log
from bot.queue.transitions import change
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
        monkeypatch.setattr(f"bot.dashboard.{module}.MAX_LIVE_RUNS", 2)
    await site.engine.accept(a_job("waits", number=1))
    await site.engine._store.run(lambda tx: change(tx, "waits", state=JobState.WAITING, waits_until=10.0**12))
    for number in (2, 3, 4):
        await site.engine.accept(a_job(f"queued-{number}", number=number))
    _, page, _ = await site.get()
    shown = [each for each in ("waits", "queued-2", "queued-3", "queued-4") if f"/runs/{each}" in page]
    assert shown == ["waits", "queued-3", "queued-4"]
    assert 'Waiting for a person <span class="count">1</span>' in page
    assert 'Queued <span class="count">the newest 2</span>' in page


async def test_a_run_that_waits_for_a_service_says_so_in_the_queue_and_on_its_page(site: Served) -> None:
    now = time.time()
    outage = ServiceOutage(service="git on GitHub", reason="It is away.", since=now, retry_at=now, until=now + 600.0)
    for name in ("waits", "goes-on"):
        await site.engine.accept(a_job(name, number=len(name)))
    await StoredRecord(site.engine, "waits").update(lambda record: replace(record, service_outage=outage))
    over = replace(outage, is_over=True)
    await StoredRecord(site.engine, "goes-on").update(lambda record: replace(record, service_outage=over))
    for path, count in (("", 1), ("/runs", 1), ("/runs/waits", 1), ("/runs/goes-on", 0)):
        _, page, _ = await site.get(path)
        assert page.count("waiting for git on GitHub since") == count, path


async def test_code_in_a_reason_is_code_and_nothing_else_of_it_is_markup(site: Served) -> None:
    await site.engine.accept(a_job())
    await site.engine.cancel("j1", JobState.STOPPED, "The branch `main<b>` has moved; <i>pull</i> `it.")
    for path in ("", "/runs/j1"):
        _, page, _ = await site.get(path)
        assert "The branch <code>main&lt;b&gt;</code> has moved; &lt;i&gt;pull&lt;/i&gt; `it." in page


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


def _run(run_id: str, text: str) -> list[Event]:
    begun = Started(task=Task(goal="Fix it."), opening="Fix it.", run_id=run_id)
    return [begun, Replied(step=1, text=text, usage=Usage(requests=1, output_tokens=5, cost_usd=1.0))]


async def test_a_run_that_began_anew_is_live_behind_the_log_of_the_attempt_before(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        await site.engine.accept(a_job())
        await site.engine.save_log(a_job(), pack_log(build_log(_run("a", "First."), str)), Usage(cost_usd=1.0))
        await site.sign_in()
        # Between two attempts there is no session.
        assert "First." in (await site.get("/runs/j1"))[1]
        site.events = _run("b", "Second.")
        _, text, _ = await site.get("/runs/j1")
    assert text.index("First.") < text.index("The run started again") < text.index("Second.")
    assert "$2.00" in text
