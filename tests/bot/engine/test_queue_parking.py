"""The SQLite queue: jobs that wait for a person, words to jobs under way, and all who would move a job at once."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bot.domain.commands import Stop
from bot.domain.errors import LeaseLostError, QueueError, TransitionError
from bot.domain.job import Actor, JobState
from bot.engine.approvals import ApprovalAnswer
from bot.engine.job_record import JobRecord, StoredRecord
from bot.engine.queue import SqliteQueue
from bot.engine.records import Signal, Stored
from bot.jobs import approvals
from tests.builders import a_job
from tests.queues import Clock, claimed, opened_queue, until_woken

ROOT = Path(__file__).parents[3]
_FOREVER = 10.0**12


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


def a_signal(name: str, text: str = "") -> Signal:
    return Signal(kind="message" if text else "stop", text=text, by="octo-owner", id=name)


async def _parked(queue: SqliteQueue, job_id: str = "j1", *, number: int = 7, until: float = _FOREVER) -> None:
    await queue.accept(a_job(job_id, number=number))
    assert await claimed(queue) == job_id
    assert await queue.park(job_id, "w1", until=until)


async def _at(queue: SqliteQueue, job_id: str = "j1") -> Stored:
    stored = await queue.get(job_id)
    assert stored is not None
    return stored


async def test_a_waiting_job_is_nobodys_and_holds_up_no_other(queue: SqliteQueue) -> None:
    await _parked(queue, until=5000)
    stored = await _at(queue)
    assert (stored.state, stored.until, stored.enqueued_at, stored.finished_at) == (JobState.WAITING, 5000, 1000, None)
    with pytest.raises(LeaseLostError):
        await queue.renew("j1", "w1", 60)
    await queue.accept(a_job("j2"))
    assert await claimed(queue) == "j2"


async def test_an_answer_queues_the_job_again_behind_what_runs_in_its_thread(queue: SqliteQueue) -> None:
    await _parked(queue)
    await queue.accept(a_job("j2"))
    assert await claimed(queue) == "j2"
    assert await queue.wake("j1")
    assert not await queue.wake("j1")
    assert await claimed(queue) is None
    await queue.finish("j2", JobState.DONE, worker="w1")
    assert await claimed(queue) == "j1"
    assert (await _at(queue)).until is None


async def test_a_job_that_nobody_answers_is_handed_out_when_its_time_is_over(queue: SqliteQueue, clock: Clock) -> None:
    await _parked(queue, until=2000)
    clock.now = 1999
    assert await claimed(queue) is None
    clock.now = 2000
    assert await claimed(queue) == "j1"
    assert not await queue.wake("j1")
    assert await queue.park("j1", "w1", until=3000)


async def test_how_often_a_job_waited_is_not_how_often_its_worker_died(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job())
    for _ in range(5):
        found = await queue.claim("w1", 60)
        assert found is not None
        assert (found.attempt, found.deaths) == (1, 0)
        await queue.park("j1", "w1", until=_FOREVER)
        await queue.wake("j1")


async def test_a_worker_that_lost_its_job_cannot_park_it(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job())
    assert await claimed(queue, "w1") == "j1"
    clock.now += 61
    assert await claimed(queue, "w2") == "j1"
    with pytest.raises(LeaseLostError):
        await queue.park("j1", "w1", until=_FOREVER)
    await queue.renew("j1", "w2", 60)


@pytest.mark.parametrize("parked", [True, False])
async def test_a_job_that_nobody_runs_can_be_ended_once(queue: SqliteQueue, parked: bool) -> None:  # noqa: FBT001 - a parameter
    if parked:
        await _parked(queue)
    else:
        await queue.accept(a_job())
    assert await queue.cancel("j1", JobState.STOPPED, "octo said so")
    assert not await queue.cancel("j1", JobState.STOPPED, "again")
    assert not await queue.wake("j1")
    stored = await _at(queue)
    assert (stored.state, stored.reason, stored.finished_at) == (JobState.STOPPED, "octo said so", 1000)
    assert await claimed(queue) is None


async def test_a_job_that_runs_is_ended_by_its_worker_alone(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    assert await claimed(queue) == "j1"
    assert not await queue.cancel("j1", JobState.STOPPED, "octo said so")
    assert (await _at(queue)).state is JobState.RUNNING
    with pytest.raises(QueueError, match="no job unknown"):
        await queue.cancel("unknown", JobState.STOPPED, "")


@pytest.mark.parametrize("state", [JobState.DONE, JobState.WAITING])
async def test_a_job_that_never_ran_can_only_be_stopped(queue: SqliteQueue, state: JobState) -> None:
    await queue.accept(a_job())
    with pytest.raises(TransitionError, match=state):
        await queue.cancel("j1", state, "")


async def test_what_steers_runs_whatever_runs_in_its_thread_and_work_never_in_its_place(queue: SqliteQueue) -> None:
    await queue.accept(a_job("work"))
    assert await claimed(queue) == "work"
    for name, number in (("s1", 7), ("s2", 7), ("s3", 8)):
        await queue.accept(a_job(name, number=number, command=Stop()))
    await queue.accept(a_job("more"))
    assert await claimed(queue) is None
    # One of a thread at a time, so that two answers are never given at once.
    assert [await claimed(queue, lane="steer") for _ in range(3)] == ["s1", "s3", None]


async def test_steering_that_runs_holds_up_no_work(queue: SqliteQueue) -> None:
    await queue.accept(a_job("s1", command=Stop()))
    assert await claimed(queue, lane="steer") == "s1"
    await queue.accept(a_job("work"))
    assert await claimed(queue) == "work"


async def test_whoever_has_many_words_under_way_lets_another_go_first(queue: SqliteQueue) -> None:
    flood, other = Actor(id=1, login="flood"), Actor(id=2, login="other")
    for number in range(1, 5):
        await queue.accept(replace(a_job(f"f{number}", number=number, command=Stop()), actor=flood))
    assert await claimed(queue, lane="steer") == "f1"
    await queue.accept(replace(a_job("o1", number=9, command=Stop()), actor=other))
    assert [await claimed(queue, lane="steer") for _ in range(3)] == ["o1", "f2", "f3"]


async def test_a_held_job_is_let_go_by_word_or_by_time(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job("a", number=1), held_seconds=30)
    await queue.accept(a_job("b", number=2), held_seconds=30)
    assert await claimed(queue) is None
    waiting = asyncio.create_task(until_woken(queue))
    await queue.unhold("b")
    await waiting
    assert [await claimed(queue), await claimed(queue)] == ["b", None]
    clock.now += 30
    assert await claimed(queue) == "a"


async def test_signals_are_numbered_kept_for_every_attempt_and_taken_once(queue: SqliteQueue, clock: Clock) -> None:
    await queue.accept(a_job())
    first, second = a_signal("s1", "look at b.py"), a_signal("s2")
    for each in (first, second, first):
        assert await queue.send("j1", each)
    for _ in range(2):
        assert await claimed(queue) == "j1"
        assert await queue.signals("j1", 0) == ((1, first), (2, second))
        assert await queue.signals("j1", 1) == ((2, second),)
        clock.now += 61
    await queue.accept(a_job("j2", number=8))
    assert await queue.send("j2", first)
    assert await queue.signals("j2", 0) == ((1, first),)


async def test_a_job_that_has_ended_hears_nothing(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    await queue.cancel("j1", JobState.STOPPED, "")
    assert not await queue.send("j1", a_signal("s1"))
    assert await queue.signals("j1", 0) == ()
    with pytest.raises(QueueError, match="no job unknown"):
        await queue.send("unknown", a_signal("s1"))


async def test_a_job_does_not_fall_asleep_over_a_word_it_has_not_heard(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    assert await claimed(queue) == "j1"
    await queue.send("j1", a_signal("s1"))
    assert not await queue.park("j1", "w1", until=_FOREVER, heard=0)
    assert (await _at(queue)).state is JobState.RUNNING
    await queue.renew("j1", "w1", 60)
    assert await queue.park("j1", "w1", until=_FOREVER, heard=1)


async def test_a_job_does_not_wait_for_what_has_been_answered(queue: SqliteQueue) -> None:
    await queue.accept(a_job())
    assert await claimed(queue) == "j1"
    assert await approvals.answer(StoredRecord(queue, "j1"), _answer())
    assert not await queue.park("j1", "w1", until=_FOREVER, request_id="7f3a")
    assert (await _at(queue)).state is JobState.RUNNING
    assert await queue.park("j1", "w1", until=_FOREVER, request_id="0000")


async def test_the_work_of_a_thread_is_listed_newest_first(queue: SqliteQueue) -> None:
    for name, number in (("a", 7), ("b", 8), ("c", 7), ("d", 7)):
        await queue.accept(a_job(name, number=number))
    await queue.accept(a_job("s", command=Stop()))
    assert [each.job.id for each in await queue.of_thread(10, 7)] == ["d", "c", "a"]
    assert [each.job.id for each in await queue.of_thread(10, 7, limit=2)] == ["d", "c"]
    assert await queue.of_thread(11, 7) == ()


async def test_no_number_of_refused_and_queued_jobs_hides_the_one_that_waits(queue: SqliteQueue) -> None:
    await _parked(queue, "waits")
    for number in range(30):
        await queue.accept(a_job(f"r{number}"))
        assert await claimed(queue) == f"r{number}"
        await queue.finish(f"r{number}", JobState.REFUSED, worker="w1")
    for number in range(30):
        await queue.accept(a_job(f"q{number}"))
    found = [each.job.id for each in await queue.of_thread(10, 7)]
    assert len(found) == 41
    assert found[-1] == "waits"


async def test_what_is_under_way_in_an_installation_is_found(queue: SqliteQueue) -> None:
    await _parked(queue, "waits", number=1)
    for number, name in enumerate(("ended", "runs", "queued"), start=2):
        await queue.accept(a_job(name, number=number))
    await queue.cancel("ended", JobState.STOPPED, "")
    assert await claimed(queue) == "runs"
    await queue.accept(a_job("s", command=Stop()))
    for repo_ids in ((), (9, 10)):
        assert [each.job.id for each in await queue.live_of(30, repo_ids)] == ["waits", "runs", "queued"]
    assert await queue.live_of(30, (9,)) == ()
    assert await queue.live_of(31) == ()
    assert await queue.live_ids() == {"waits", "runs", "queued"}


async def test_a_job_that_cannot_be_read_does_not_hide_the_others_of_its_thread(queue: SqliteQueue) -> None:
    for name in ("old", "new"):
        await queue.accept(a_job(name))
    await queue._run(lambda rows: rows.execute("UPDATE jobs SET body = '{}' WHERE id = 'old'").fetchall())
    assert [each.job.id for each in await queue.of_thread(10, 7)] == ["new"]
    assert [each.job.id for each in await queue.live_of(30)] == ["new"]


async def test_what_is_kept_of_jobs_that_ended_long_ago_is_forgotten_but_not_that_they_were(
    queue: SqliteQueue, clock: Clock
) -> None:
    for number, name in enumerate(("old", "waits", "recent")):
        await queue.accept(a_job(name, number=number))
        await queue.update(name, lambda record: replace(record, base_sha="1"))
        await queue.send(name, a_signal("s1", "x"))
    assert await claimed(queue) == "old"
    await queue.finish("old", JobState.DONE, worker="w1")
    assert await claimed(queue) == "waits"
    await queue.park("waits", "w1", until=_FOREVER)
    clock.now += 31 * 86400
    await queue.cancel("recent", JobState.STOPPED, "")
    assert await queue.sweep(30) == 1
    assert await queue.sweep(30) == 0
    assert await queue.get("old") is None
    assert (await queue.record("old"), await queue.signals("old", 0)) == (JobRecord(), ())
    assert await queue.of_thread(10, 0) == ()
    assert not await queue.accept(a_job("old", number=0))
    for name in ("waits", "recent"):
        assert (await _at(queue, name)).job.id == name
        assert await queue.record(name) == JobRecord(base_sha="1")
        assert len(await queue.signals(name, 0)) == 1
    kept = await queue._run(lambda rows: rows.execute("SELECT body FROM jobs WHERE id = 'old'").fetchone())
    assert kept == (None,)


def _answer(note: str = "") -> ApprovalAnswer:
    return ApprovalAnswer(request_id="7f3a", approved=True, note=note, by=Actor(id=1, login="mona"))


async def _answered(queue: SqliteQueue, note: str) -> bool:
    return await approvals.answer(StoredRecord(queue, "j1"), _answer(note))


Move = Callable[[SqliteQueue], Awaitable[object]]


def _race(path: Path, *moves: Move) -> list[object]:
    """Do each move over a connection of its own, all released at one moment; give back what they came to."""
    gate = threading.Barrier(len(moves))

    async def alone(move: Move) -> object:
        async with opened_queue(path) as queue:
            gate.wait()
            return await move(queue)

    with ThreadPoolExecutor(len(moves)) as threads:
        return list(threads.map(lambda move: asyncio.run(alone(move)), moves))


@pytest.mark.slow
async def test_of_those_who_would_move_a_waiting_job_one_wins(path: Path, clock: Clock) -> None:
    seen = set()
    async with opened_queue(path, clock) as queue:
        for number in range(30):
            name = f"j{number}"
            await _parked(queue, name, number=number, until=clock.now)
            moves: tuple[Move, ...] = (
                partial(SqliteQueue.cancel, job_id=name, state=JobState.STOPPED, reason=""),
                partial(SqliteQueue.wake, job_id=name),
                partial(claimed, worker="w2"),
            )
            ended, woken, other = await asyncio.to_thread(_race, path, *moves)
            state = (await _at(queue, name)).state
            assert ended == (state is JobState.STOPPED)
            assert (other == name) == (state is JobState.RUNNING)
            assert state is not JobState.QUEUED or woken
            seen.add((ended, woken, other == name))
            if state is JobState.QUEUED:
                assert await claimed(queue, "w2") == name
    assert len(seen) > 1


async def test_of_several_answers_the_first_counts(path: Path, clock: Clock) -> None:
    async with opened_queue(path, clock) as queue:
        await queue.accept(a_job())
        moves = [partial(_answered, note=str(number)) for number in range(4)]
        kept = await asyncio.to_thread(_race, path, *moves)
        assert sorted(map(bool, kept)) == [False, False, False, True]
        answers = (await queue.record("j1")).approvals.answers
        assert answers == {"7f3a": _answer(str(kept.index(True)))}
        assert not await _answered(queue, "late")
        with pytest.raises(QueueError, match="no job unknown"):
            await queue.update("unknown", lambda record: record)


@pytest.mark.slow
async def test_a_stop_is_heard_before_a_job_waits_or_ends_it_there(path: Path, clock: Clock) -> None:
    async def stop(queue: SqliteQueue) -> bool:
        """As steering does it: a word to the job is kept before anybody looks whether it waits."""
        await queue.send("j", a_signal("s"))
        return await queue.cancel("j", JobState.STOPPED, "")

    seen = set()
    for number in itertools.count():
        file = path.with_name(f"{number}.db")
        async with opened_queue(file, clock) as queue:
            await queue.accept(a_job("j"))
            assert await claimed(queue) == "j"
            parked, ended = await asyncio.to_thread(
                _race, file, partial(SqliteQueue.park, job_id="j", worker="w1", until=_FOREVER, heard=0), stop
            )
            assert parked == ended
            assert (await _at(queue, "j")).state is (JobState.STOPPED if ended else JobState.RUNNING)
        seen.add(parked)
        if len(seen) == 2 or number == 60:
            break
    assert False in seen


_PARKER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from bot.engine.database import Database
from bot.engine.queue import SqliteQueue
from bot.engine.records import Signal
from tests.builders import a_job

async def main():
    queue = SqliteQueue(Database(Path(sys.argv[1])))
    for n in range(10_000):
        job_id = f"j{n}"
        await queue.accept(a_job(job_id, number=n))
        await queue.claim("w1", 600)
        await queue.update(job_id, lambda record: replace(record, base_sha="7f3a"))
        await queue.park(job_id, "w1", until=10.0**12)
        print("waiting", job_id, flush=True)
        await queue.update(job_id, lambda record: replace(record, seen=True))
        await queue.wake(job_id)
        print("queued", job_id, flush=True)
        await queue.claim("w1", 600)

asyncio.run(main())
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_job_stands_where_it_was_said_to_with_all_it_was_told(path: Path) -> None:
    for life in range(5):
        file = path.with_name(f"{life}.db")
        process = subprocess.Popen(
            [sys.executable, "-c", _PARKER, file],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(1 + 13 * life)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().split("\n")[:-1]
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        assert lines
        asyncio.run(_check_states(file, {job_id: state for state, job_id in map(str.split, lines)}))


async def _check_states(path: Path, told: dict[str, str]) -> None:
    later = {"waiting": {"waiting", "queued", "running"}, "queued": {"queued", "running"}}
    async with opened_queue(path) as queue:
        for job_id, said in told.items():
            stored, record = await _at(queue, job_id), await queue.record(job_id)
            assert stored.state in later[said]
            assert (stored.state is JobState.WAITING) == (stored.until is not None)
            assert record.base_sha == "7f3a"
            assert said == "waiting" or record.seen
