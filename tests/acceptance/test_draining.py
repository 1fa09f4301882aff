"""A service that is told to end while jobs are under way: they may end, no other begins, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_service_process import done_once, site
from tests.waiting import eventually

_DRAINING = {"CODEPILOT_DRAIN_SECONDS": "120"}


@pytest.mark.slow
async def test_a_job_under_way_may_end_and_no_other_one_begins(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as made:
        here = replace(made, variables={**made.variables, **_DRAINING})
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as service:
            job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
            go = await here.waiting(job_id)
            service.process.send_signal(signal.SIGTERM)
            await eventually(lambda: "waiting up to 120 s for 1 jobs" in service.log.read_text())
            later = await stage.job_of(stage.say(stage.issue("Another").number, "/codepilot fix"))
            go.touch()
            assert await asyncio.wait_for(service.process.wait(), 60) == 0, service.log.read_text()
        ended, waits = await stage.queue.get(job_id), await stage.queue.get(later)
        assert ended is not None
        assert waits is not None
        assert ended.state is JobState.DONE, service.log.read_text()
        assert (waits.state, waits.attempts) == (JobState.QUEUED, 0)
        done_once(stage, issue.number)


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once_and_its_job_goes_on_in_the_next_one(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with site(hub, tmp_path) as made:
        here = replace(made, variables={**made.variables, **_DRAINING})
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as service:
            job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
            await here.waiting(job_id)
            service.process.send_signal(signal.SIGTERM)
            await eventually(lambda: "waiting up to 120 s for 1 jobs" in service.log.read_text())
            service.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(service.process.wait(), 60) == -signal.SIGTERM
        async with here.serving() as service:
            (await here.waiting(job_id)).touch()
            end = await stage.ended(job_id)
            assert end.state is JobState.DONE, service.log.read_text()
        done_once(stage, issue.number)
