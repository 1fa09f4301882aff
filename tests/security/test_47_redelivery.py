"""Threat 47: one comment is one job, however often and by whichever delivery it comes, also across restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from tests.builders import a_comment_event, a_request
from tests.webhook_receiver import receiving


async def test_a_redelivery_is_the_same_job_also_after_a_restart_and_after_its_end(tmp_path: Path) -> None:
    statuses = []
    for life in range(3):
        store = JobStore(f"sqlite:///{tmp_path / 'queue.sqlite'}")
        engine = DurableEngine(store)
        async with receiving(engine) as receiver:
            answers = [await receiver.post(*a_request(a_comment_event(), delivery_id="d1")) for _ in range(2)]
        statuses += [status for status, _ in answers]
        if life == 1:
            assert await engine.cancel(answers[0][1]["job"], JobState.STOPPED, "octo said so")
        assert (await engine.counts())[JobState.QUEUED] == (1 if life == 0 else 0)
        await store.close()
    assert statuses == [202, 200, 200, 200, 200, 200]


async def test_the_same_comment_under_other_guids_is_the_same_job(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    async with receiving(engine) as receiver:
        requests = [a_request(a_comment_event(), delivery_id=f"guid-{n}") for n in range(20)]
        answers = await asyncio.gather(*(receiver.post(*request) for request in requests))
    assert sorted(status for status, _ in answers) == [200] * 19 + [202]
    assert len({answer["job"] for _, answer in answers}) == 1
    assert (await engine.counts())[JobState.QUEUED] == 1
    await store.close()
