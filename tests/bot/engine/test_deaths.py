"""Workers die: which job is to blame is found out without taking its neighbours along, and none ends in silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.commands import Stop
from bot.domain.job import JobState
from bot.engine.deaths import ALONE_SECONDS, HOPELESS_DEATHS, MOST_DEATHS, pause_after
from bot.engine.queue import SqliteQueue
from tests.builders import a_job
from tests.queues import Clock, claimed, opened_queue


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteQueue]:
    async with opened_queue(tmp_path / "queue.sqlite", clock) as opened:
        yield opened


async def _stored(queue: SqliteQueue, *job_ids: str) -> None:
    for number, job_id in enumerate(job_ids):
        await queue.accept(a_job(job_id, number=number))


async def _all_claimed(queue: SqliteQueue, worker: str) -> dict[str, int]:
    """Every job that this worker gets now, and the deaths it is charged with."""
    found: dict[str, int] = {}
    while (got := await queue.claim(worker, 600)) is not None:
        found[got.job.id] = got.deaths
    return found


async def test_a_death_with_several_in_hand_is_charged_to_none_of_them(queue: SqliteQueue) -> None:
    await _stored(queue, "a", "b", "c")
    assert await _all_claimed(queue, "w1") == {"a": 0, "b": 0, "c": 0}
    await queue.requeue_orphans(["w1"])
    # From now on they are in hand one at a time.
    assert await _all_claimed(queue, "w2") == {"a": 0}


async def test_the_poisonous_one_is_given_up_and_its_neighbours_are_not(queue: SqliteQueue, clock: Clock) -> None:
    await _stored(queue, "a", "poison", "b")
    lives, finished, given_up = 0, set[str](), 0
    while len(finished) < 3 and lives < 10:
        worker = f"w{lives}"
        while (got := await queue.claim(worker, 600)) is not None:
            assert got.deaths == 0 or got.job.id == "poison"
            given_up += got.exhausted
            if got.exhausted or (lives and got.job.id != "poison"):
                await queue.finish(got.job.id, JobState.DONE, worker=worker)
                finished.add(got.job.id)
        await queue.requeue_orphans([worker])
        clock.now += 61
        lives += 1
    assert given_up == 1
    assert lives == MOST_DEATHS + 2


async def test_a_worker_takes_the_next_suspect_when_the_last_one_got_on_or_is_slow(
    queue: SqliteQueue, clock: Clock
) -> None:
    await _stored(queue, "a", "b", "c", "d")
    assert len(await _all_claimed(queue, "w1")) == 4
    await queue.requeue_orphans(["w1"])
    assert await _all_claimed(queue, "w2") == {"a": 0}
    await queue.get_on("a", 1)
    assert await _all_claimed(queue, "w2") == {"b": 0}
    await queue.update("b", lambda record: replace(record, base_sha="1234"))
    assert await _all_claimed(queue, "w2") == {"c": 0}
    clock.now += ALONE_SECONDS + 1
    assert await _all_claimed(queue, "w2") == {"d": 0}


async def test_new_jobs_do_not_wait_for_suspects(queue: SqliteQueue) -> None:
    await _stored(queue, "a", "b")
    assert len(await _all_claimed(queue, "w1")) == 2
    await queue.requeue_orphans(["w1"])
    assert await claimed(queue, "w2") == "a"
    await queue.accept(a_job("new", number=9))
    assert await claimed(queue, "w2") == "new"


async def test_steps_count_as_progress_only_when_they_are_new(queue: SqliteQueue) -> None:
    await _stored(queue, "a")
    for deaths in (0, 0, 1):
        got = await queue.claim("w1", 60)
        assert got is not None
        assert got.deaths == deaths
        await queue.get_on("a", 3 if deaths == 0 else 2)
        await queue.requeue_orphans(["w1"])


async def test_three_restarts_in_a_bad_minute_take_nobody(queue: SqliteQueue, clock: Clock) -> None:
    await _stored(queue, "a")
    for _ in range(3):
        assert await claimed(queue, "w1") == "a"
        await queue.requeue_orphans(["w1"])
        clock.now += 5
    assert await claimed(queue, "w1") is None
    clock.now += 60
    got = await queue.claim("w1", 60)
    assert got is not None
    assert not got.exhausted


async def test_a_job_that_is_given_back_is_charged_with_nothing(queue: SqliteQueue) -> None:
    await _stored(queue, "a")
    for _ in range(6):
        got = await queue.claim("w1", 60)
        assert got is not None
        assert got.deaths == 0
        await queue.release("a", "w1")


@pytest.mark.parametrize("lane", ["work", "steer"])
async def test_a_job_is_handed_out_to_be_given_up_however_often_that_is_cut(
    queue: SqliteQueue, clock: Clock, lane: str
) -> None:
    await queue.accept(a_job("a", command=Stop() if lane == "steer" else None))
    seen = []
    for _ in range(MOST_DEATHS + 6):
        got = await queue.claim("w1", 60, lane="steer" if lane == "steer" else "work")
        assert got is not None
        seen.append(got.exhausted)
        await queue.requeue_orphans(["w1"])
        clock.now += 3600
    assert seen == [False] * (MOST_DEATHS + 1) + [True] * 5


def test_the_pauses_grow_and_the_end_is_days_away() -> None:
    assert sum(map(pause_after, range(HOPELESS_DEATHS))) > 3 * 24 * 3600
    assert pause_after(HOPELESS_DEATHS) == 3600
