"""Threat 47: one comment is one job, however often and by whichever delivery it comes, also across restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.domain.job import JobState
from bot.engine.database import Database
from bot.engine.queue import SqliteQueue
from tests.builders import a_comment_event, a_request
from tests.webhook_receiver import receiving


async def test_a_redelivery_is_the_same_job_also_after_a_restart_and_after_its_end(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    statuses = []
    for life in range(3):
        database = Database(path)
        queue = SqliteQueue(database)
        async with receiving(queue) as receiver:
            statuses += [(await receiver.post(*a_request(a_comment_event(), delivery_id="d1")))[0] for _ in range(2)]
        if life == 0:
            claimed = await queue.claim("w1", 60)
            assert claimed is not None
            await queue.finish(claimed.job.id, JobState.DONE, worker="w1")
        else:
            assert await queue.claim("w1", 60) is None
        await database.close()
    assert statuses == [202, 200, 200, 200, 200, 200]


async def test_the_same_comment_under_other_guids_is_the_same_job(tmp_path: Path) -> None:
    database = Database(tmp_path / "queue.db")
    queue = SqliteQueue(database)
    async with receiving(queue) as receiver:
        requests = [a_request(a_comment_event(), delivery_id=f"guid-{n}") for n in range(20)]
        answers = await asyncio.gather(*(receiver.post(*request) for request in requests))
    assert sorted(status for status, _ in answers) == [200] * 19 + [202]
    assert len({answer["job"] for _, answer in answers}) == 1
    assert (await queue.counts())[JobState.QUEUED] == 1
    await database.close()
