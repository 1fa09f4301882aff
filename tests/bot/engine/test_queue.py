from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.commands import Command, Fix, Help, Unknown
from bot.domain.errors import LeaseLostError, QueueError, TransitionError
from bot.domain.job import TRANSITIONS, JobState
from bot.engine import statements
from bot.engine.database import Database
from bot.engine.job_record import JobRecord
from bot.engine.queue import Claimed, SqliteQueue
from tests.builders import a_job
from tests.queues import Clock, claimed, opened_queue, until_woken
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
async def queue(path: Path, clock: Clock) -> AsyncIterator[SqliteQueue]:
    async with opened_queue(path, clock) as opened:
        yield opened


async def test_a_job_comes_out_as_it_went_in(queue: SqliteQueue) -> None:
    commands: list[Command] = [
        Fix(goal="ä\n\x00"),
        Help(),
        Unknown(word="x", nearest=None),
        Unknown(word="x", nearest="fix"),
    ]
    for number, command in enumerate(commands):
        job = a_job(f"j{number}", number=number, command=command)
        assert await queue.accept(job)
        got = await queue.claim("w1", 60, lane=job.lane)
        assert got is not None
        assert (got.job, got.attempt, got.deaths) == (job, 1, 0)


async def test_the_same_job_or_the_same_delivery_is_stored_once(queue: SqliteQueue) -> None:
    assert await queue.accept(a_job("j1", delivery_id="d1"))
    assert not await queue.accept(a_job("j1", delivery_id="d2"))
    assert not await queue.accept(a_job("j2", delivery_id="d1"))
    assert (await queue.counts())[JobState.QUEUED] == 1
    assert await queue.get("j2") is None


async def test_a_finished_job_is_still_known(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    await queue.claim("w1", 60)
    await queue.finish("j1", JobState.DONE, worker="w1")
    assert not await queue.accept(a_job())
    assert await queue.claim("w1", 60) is None


async def test_the_oldest_job_comes_first_and_each_thread_runs_one_at_a_time(queue: SqliteQueue) -> None:
    for job_id, number in [("a", 1), ("b", 1), ("c", 2)]:
        await queue.accept(a_job(job_id, number=number))
    assert [await claimed(queue), await claimed(queue), await claimed(queue)] == ["a", "c", None]
    await queue.finish("a", JobState.DONE, worker="w1")
    assert await claimed(queue) == "b"


async def test_a_job_whose_lease_ran_out_is_taken_over_and_its_old_worker_told(
    queue: SqliteQueue, clock: Clock
) -> None:
    await queue.accept(a_job())
    await queue.claim("w1", 60)
    clock.now += 61
    got = await queue.claim("w2", 60)
    assert got is not None
    assert got.attempt == 2
    with pytest.raises(LeaseLostError, match="w1"):
        await queue.renew("j1", "w1", 60)
    with pytest.raises(LeaseLostError):
        await queue.finish("j1", JobState.DONE, worker="w1")
    with pytest.raises(LeaseLostError):
        await queue.release("j1", "w1")
    await queue.finish("j1", JobState.DONE, worker="w2")


async def test_a_renewed_lease_holds(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job())
    await queue.claim("w1", 60)
    clock.now += 59
    await queue.renew("j1", "w1", 60)
    clock.now += 59
    assert await queue.claim("w2", 60) is None


async def test_a_late_worker_may_still_finish_what_nobody_took(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job())
    await queue.claim("w1", 60)
    clock.now += 1000
    await queue.finish("j1", JobState.FAILED, "slow", worker="w1")
    stored = await queue.get("j1")
    assert stored is not None
    assert (stored.state, stored.reason) == (JobState.FAILED, "slow")


async def test_a_released_job_waits_again_and_has_lost_no_attempt(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    for _ in range(5):
        got = await queue.claim("w1", 60)
        assert got is not None
        assert got.attempt == 1
        await queue.release("j1", "w1")


@pytest.mark.parametrize("state", [state for state in JobState if TRANSITIONS[state]])
async def test_a_job_can_end_only_in_a_last_state(queue: SqliteQueue, state: JobState) -> None:
    await queue.accept(a_job())
    await queue.claim("w1", 60)
    with pytest.raises(TransitionError, match=f"as {state}"):
        await queue.finish("j1", state, worker="w1")


async def test_a_job_that_is_not_running_cannot_end(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    with pytest.raises(LeaseLostError):
        await queue.finish("j1", JobState.DONE, worker="w1")
    with pytest.raises(LeaseLostError):
        await queue.finish("unknown", JobState.DONE, worker="w1")


@pytest.mark.parametrize("to", [state for state in JobState if state not in TRANSITIONS[JobState.QUEUED]])
async def test_no_state_is_skipped(queue: SqliteQueue, to: JobState) -> None:
    await queue.accept(a_job())
    with pytest.raises(TransitionError, match=f"queued to {to}"):
        await queue._run(lambda rows: statements._move(rows, "j1", to))


async def test_a_record_is_kept_changed_and_read_after_the_end(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    await queue.update("j1", lambda record: replace(record, base_sha="1"))
    await queue.update("j1", lambda record: replace(record, base_sha="2"))
    await queue.update("j1", lambda record: replace(record, seen=True))
    await queue.claim("w1", 60)
    await queue.finish("j1", JobState.DONE, worker="w1")
    assert await queue.record("j1") == JobRecord(base_sha="2", seen=True)
    assert await queue.record("j2") == JobRecord()
    with pytest.raises(QueueError, match="no job j2"):
        await queue.update("j2", lambda record: replace(record, seen=True))


async def test_counts_name_every_state(queue: SqliteQueue) -> None:
    assert await queue.counts() == dict.fromkeys(JobState, 0)
    for n in range(3):
        await queue.accept(a_job(f"j{n}", number=n))
    await queue.claim("w1", 60)
    assert await queue.counts() == {**dict.fromkeys(JobState, 0), JobState.QUEUED: 2, JobState.RUNNING: 1}


async def test_a_waiting_worker_wakes_when_a_job_is_stored(queue: SqliteQueue) -> None:
    waiting = asyncio.create_task(until_woken(queue))
    await queue.accept(a_job())
    await waiting
    assert await claimed(queue) == "j1"


async def test_work_stored_before_the_wait_is_not_missed(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    await until_woken(queue)


async def test_the_end_of_a_job_wakes_those_who_wait_for_its_thread(queue: SqliteQueue) -> None:
    await queue.accept(a_job("a"))
    await queue.accept(a_job("b"))
    await until_woken(queue)
    assert await claimed(queue) == "a"
    waiting = asyncio.create_task(until_woken(queue))
    await queue.finish("a", JobState.DONE, worker="w1")
    await waiting
    assert await claimed(queue) == "b"


async def test_waiting_ends_without_work(queue: SqliteQueue) -> None:
    await queue.wait_for_work(0.01)
    assert await queue.claim("w1", 60) is None


async def test_everything_survives_a_restart(path: Path, clock: Clock) -> None:
    async with opened_queue(path, clock) as first:
        await first.accept(a_job("a", number=1))
        await first.accept(a_job("b", number=2))
        await first.claim("w1", 60)
        await first.update("a", lambda record: replace(record, base_sha="1"))
    async with opened_queue(path, clock) as second:
        assert not await second.accept(a_job("a", number=1))
        assert await claimed(second) == "b"
        assert await second.record("a") == JobRecord(base_sha="1")


async def test_a_stored_job_that_cannot_be_read_fails_and_blocks_nobody(queue: SqliteQueue, path: Path) -> None:
    await queue.accept(a_job("old"))
    await queue.accept(a_job("new"))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE jobs SET body = '{}' WHERE id = 'old'")
    other.close()
    assert await claimed(queue) == "new"
    assert (await queue.counts())[JobState.FAILED] == 1
    with pytest.raises(QueueError, match="cannot be read"):
        await queue.get("old")


async def test_other_users_cannot_read_the_file(queue: SqliteQueue, path: Path) -> None:
    await queue.accept(a_job())
    files = list(path.parent.iterdir())
    assert {file.name for file in files} >= {"queue.db", "queue.db-wal"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(QueueError, match="newer version"):
        Database(path)


def test_a_file_that_is_no_queue_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(QueueError, match=r"queue\.db"):
        Database(path)
    with pytest.raises(QueueError, match="missing"):
        Database(tmp_path / "missing" / "queue.db")


async def test_a_full_disk_is_an_error_of_the_queue_and_nothing_is_half_stored(queue: SqliteQueue) -> None:
    def fill(rows: sqlite3.Connection) -> None:
        pages = rows.execute("PRAGMA page_count").fetchone()[0]
        rows.execute(f"PRAGMA max_page_count = {pages}")

    await queue._run(fill)
    with pytest.raises(QueueError, match="disk has space"):
        await queue.accept(a_job(body="x" * 60_000))
    assert await queue.get("j1") is None
    await queue._run(lambda rows: rows.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await queue.accept(a_job(body="x" * 60_000))


_CLAIMER = """
import asyncio, sys
from pathlib import Path
from bot.engine.database import Database
from bot.engine.queue import SqliteQueue
from bot.domain.job import JobState

async def main():
    database = Database(Path(sys.argv[1]))
    queue = SqliteQueue(database)
    while (claimed := await queue.claim(sys.argv[2], 600)) is not None:
        print(claimed.job.id, flush=True)
        await queue.finish(claimed.job.id, JobState.DONE, worker=sys.argv[2])
    await database.close()

asyncio.run(main())
"""

_ENQUEUER = """
import asyncio, sys
from pathlib import Path
from bot.engine.database import Database
from dataclasses import replace
from bot.engine.queue import SqliteQueue
from tests.builders import a_job

async def main():
    database = Database(Path(sys.argv[1]))
    queue = SqliteQueue(database)
    for n in range(10_000):
        job_id = f"{sys.argv[2]}-{n}"
        assert await queue.accept(a_job(job_id, number=n))
        await queue.update(job_id, lambda record: replace(record, seen=True))
        print(job_id, flush=True)

asyncio.run(main())
"""


def _start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
async def test_processes_that_open_and_claim_at_once_never_get_the_same_job(path: Path) -> None:
    database = Database(path)
    queue = SqliteQueue(database)
    jobs = [f"j{n}" for n in range(200)]
    for n, job_id in enumerate(jobs):
        await queue.accept(a_job(job_id, number=n))
    claimers = [_start(_CLAIMER, str(path), f"w{n}") for n in range(3)]
    theirs = [(await asyncio.to_thread(claimer.communicate))[0].split() for claimer in claimers]
    assert [claimer.returncode for claimer in claimers] == [0, 0, 0]
    assert sorted(job for part in theirs for job in part) == sorted(jobs)
    assert (await queue.counts())[JobState.DONE] == len(jobs)
    await database.close()


@pytest.mark.slow
def test_processes_that_make_the_file_at_once_agree(path: Path) -> None:
    claimers = [_start(_CLAIMER, str(path), f"w{n}") for n in range(5)]
    outputs = [claimer.communicate()[0] for claimer in claimers]
    assert outputs == [""] * 5
    assert [claimer.returncode for claimer in claimers] == [0] * 5


@pytest.mark.slow
async def test_killed_at_any_moment_nothing_acknowledged_is_lost(path: Path) -> None:
    acknowledged: list[str] = []
    for life in range(5):
        process = _start(_ENQUEUER, str(path), f"life{life}")
        assert process.stdout is not None
        acknowledged += [process.stdout.readline().strip() for _ in range(1 + 17 * life)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
        acknowledged += rest[:-1]
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
    database = Database(path)
    queue = SqliteQueue(database)
    for job_id in acknowledged:
        assert await queue.get(job_id) is not None
        assert (await queue.record(job_id)).seen
    assert (await queue.counts())[JobState.QUEUED] >= len(acknowledged) >= 5
    await database.close()


@pytest.mark.slow
async def test_the_job_of_a_killed_worker_is_taken_over(path: Path) -> None:
    database = Database(path)
    queue = SqliteQueue(database)
    await queue.accept(a_job())
    holder = _CLAIMER.replace("600", "0.5").replace(
        "await queue.finish", "await asyncio.sleep(600); await queue.finish"
    )
    process = _start(holder, str(path), "w1")
    assert process.stdout is not None
    assert (await asyncio.to_thread(process.stdout.readline)).strip() == "j1"
    process.kill()
    process.wait()
    process.stdout.close()

    async def take_over() -> Claimed | None:
        return await queue.claim("w2", 60)

    got: Claimed | None = await eventually(take_over)
    assert got is not None
    assert (got.job.id, got.attempt) == ("j1", 2)
    await database.close()
