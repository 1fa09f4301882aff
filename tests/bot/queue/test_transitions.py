"""Jobs in the database: as they went in, in the order of their threads, and nobody's but their worker's."""

from __future__ import annotations

import asyncio
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.commands import Command, Fix, Help, UnknownVerb
from bot.domain.errors import LeaseLostError, QueueError, TransitionError
from bot.domain.job import TRANSITIONS, JobState
from bot.jobs.record import JobRecord, StoredRecord
from bot.queue import engine as durable_engine
from bot.queue import transitions
from bot.queue.engine import DurableEngine
from bot.queue.records import Signal
from bot.queue.store import JOBS, JobStore, Transaction
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.durable import begun, signals_of
from tests.forked import Forked

_FOREVER = 10.0**12

Ending = Callable[[Transaction, sa.Row[Any]], object]
_ENDINGS: dict[str, Ending] = {
    "finish": lambda tx, row: transitions.finish(tx, row, JobState.DONE, "", None),
    "release": lambda tx, row: transitions.release(tx, row, 0.0),
    "park": lambda tx, row: transitions.park(tx, row, _FOREVER, 0, lambda _: False),
}


async def _end(running: Running, worker: str, ending: Ending, *, leg: int = 1) -> None:
    await running.store.run(lambda tx: ending(tx, transitions.check_lease(tx, "j1", leg, worker)))


async def test_a_job_comes_out_as_it_went_in(running: Running) -> None:
    commands: list[Command] = [
        Fix(goal="ä\n\x00"),
        Help(),
        UnknownVerb(word="x", nearest=None),
        UnknownVerb(word="x", nearest="fix"),
    ]
    for number, command in enumerate(commands):
        job = a_job(f"j{number}", number=number, command=command)
        assert await running.engine.accept(job)
        assert await begun(running.engine, job.id) == (job, 1, 0)


@pytest.mark.parametrize("ending", _ENDINGS)
async def test_a_worker_whose_job_was_taken_over_neither_ends_it_nor_gives_it_back(
    running: Running, ending: str
) -> None:
    await running.engine.accept(a_job())
    await begun(running.engine, "j1", "w1")
    taken_over = await begun(running.engine, "j1", "w2")
    assert taken_over is not None
    assert taken_over[1] == 2
    with pytest.raises(LeaseLostError, match="w1"):
        await _end(running, "w1", _ENDINGS[ending])
    await _end(running, "w2", _ENDINGS[ending])


@pytest.mark.parametrize("ending", _ENDINGS)
async def test_a_job_that_nobody_runs_is_ended_by_no_worker(running: Running, ending: str) -> None:
    await running.engine.accept(a_job())
    with pytest.raises(LeaseLostError):
        await _end(running, "w1", _ENDINGS[ending])
    await begun(running.engine, "j1")
    await _end(running, "w1", _ENDINGS[ending])
    with pytest.raises(LeaseLostError):
        await _end(running, "w1", _ENDINGS[ending])


@pytest.mark.parametrize("state", [state for state in JobState if TRANSITIONS[state]])
async def test_a_job_can_end_only_in_a_last_state(running: Running, state: JobState) -> None:
    await running.engine.accept(a_job())
    await begun(running.engine, "j1")
    with pytest.raises(TransitionError, match=f"as {state}"):
        await _end(running, "w1", lambda tx, row: transitions.finish(tx, row, state, "", None))


_SKIPPED = [state for state in JobState if state not in {JobState.QUEUED, *TRANSITIONS[JobState.QUEUED]}]


@pytest.mark.parametrize("to", _SKIPPED)
async def test_no_state_is_skipped(running: Running, to: JobState) -> None:
    await running.engine.accept(a_job())
    with pytest.raises(TransitionError, match=f"queued to {to}"):
        await running.store.run(lambda tx: transitions._move(tx, transitions._lock_row(tx, "j1"), to))


async def test_a_released_job_has_lost_no_attempt(running: Running) -> None:
    await running.engine.accept(a_job())
    for leg in range(1, 6):
        got = await begun(running.engine, "j1")
        assert got is not None
        assert got[1:] == (1, 0)
        await _end(running, "w1", _ENDINGS["release"], leg=leg)


async def test_a_record_is_kept_changed_and_read_after_the_end(running: Running) -> None:
    await running.engine.accept(a_job())
    await StoredRecord(running.engine, "j1").update(lambda record: replace(record, base_sha="1"))
    await StoredRecord(running.engine, "j1").update(lambda record: replace(record, base_sha="2"))
    await StoredRecord(running.engine, "j1").update(lambda record: replace(record, is_acknowledged=True))
    await begun(running.engine, "j1")
    await _end(running, "w1", _ENDINGS["finish"])
    assert await StoredRecord(running.engine, "j1").read() == JobRecord(base_sha="2", is_acknowledged=True)
    assert await StoredRecord(running.engine, "j2").read() == JobRecord()


async def test_every_attempt_hears_all_signals_and_each_job_its_own(running: Running) -> None:
    first = Signal(kind="message", text="look at b.py", by="mona", id="s1")
    second = Signal(kind="stop", text="", by="mona", id="s2")
    await running.engine.accept(a_job())
    for each in (first, second, first):
        assert await running.engine.send("j1", each)
    for _ in range(2):
        await begun(running.engine, "j1")
        assert await running.store.run(lambda tx: transitions.signals(tx, "j1", 0)) == ((1, first), (2, second))
        assert await running.store.run(lambda tx: transitions.signals(tx, "j1", 1)) == ((2, second),)
    await running.engine.accept(a_job("j2", number=8))
    assert await running.engine.send("j2", first)
    assert await signals_of(running.engine, "j2") == [first]


async def test_everything_survives_a_restart(database: str) -> None:
    store = JobStore(database)
    first = DurableEngine(store)
    for number, job_id in enumerate("ab"):
        await first.accept(a_job(job_id, number=number))
    await begun(first, "a")
    await StoredRecord(first, "a").update(lambda record: replace(record, base_sha="1"))
    await store.close()
    store = JobStore(database)
    second = DurableEngine(store)
    assert not await second.accept(a_job("a", number=0))
    assert [each.state for each in await second.live_jobs(30)] == [JobState.RUNNING, JobState.QUEUED]
    assert await StoredRecord(second, "a").read() == JobRecord(base_sha="1")
    await store.close()


async def test_a_job_that_cannot_be_read_does_not_hide_the_others_of_its_thread(running: Running) -> None:
    for name in ("old", "new"):
        await running.engine.accept(a_job(name))
    spoilt = JOBS.update().where(JOBS.c.id == "old").values(body="{}")
    await running.store.run(lambda tx: tx.rows.execute(spoilt))
    assert [each.job.id for each in await running.engine.jobs_in_thread(10, 7)] == ["new"]
    assert [each.job.id for each in await running.engine.live_jobs(30)] == ["new"]
    with pytest.raises(QueueError, match="cannot read the stored job"):
        await running.engine.get("old")


async def test_signals_are_forgotten_with_their_job(running: Running) -> None:
    for number, name in enumerate(("old", "new")):
        await running.engine.accept(a_job(name, number=number))
        await running.engine.send(name, Signal(kind="message", text="x", by="mona", id="s1"))
    assert await running.engine.cancel("old", JobState.STOPPED, "")
    assert await running.engine.sweep(-1.0) == 1
    assert await signals_of(running.engine, "old") == []
    assert len(await signals_of(running.engine, "new")) == 1


async def test_more_old_jobs_than_one_transaction_takes_are_all_forgotten(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_engine, "_SWEPT_AT_ONCE", 2)
    for number in range(5):
        await running.engine.accept(a_job(f"j{number}", number=number))
        assert await running.engine.cancel(f"j{number}", JobState.STOPPED, "")
    assert [await running.engine.sweep(-1.0) for _ in range(2)] == [5, 0]
    assert [await running.engine.get(f"j{number}") for number in range(5)] == [None] * 5


async def test_other_users_cannot_read_the_file(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    await DurableEngine(store).accept(a_job())
    modes = _modes(tmp_path)
    await store.close()
    assert modes.keys() >= {"jobs.sqlite", "jobs.sqlite-wal"}
    assert set(modes.values()) == {0o600}


def _modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


async def test_a_full_disk_is_an_error_of_the_database_and_nothing_is_half_stored(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    pages = await store.run(lambda tx: tx.rows.exec_driver_sql("PRAGMA page_count").scalar())
    await store.run(lambda tx: tx.rows.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar())
    with pytest.raises(QueueError, match="disk has space"):
        await engine.accept(a_job(body="x" * 60_000))
    assert await engine.get("j1") is None
    await store.run(lambda tx: tx.rows.exec_driver_sql("PRAGMA max_page_count = 1000000").scalar())
    assert await engine.accept(a_job(body="x" * 60_000))
    await store.close()


def _open(database: str) -> None:
    JobStore(database).close_sync()


def _enqueue(database: str, life: int) -> None:
    """Take in jobs, put them off and wake them, and tell of each, until the process is killed."""

    async def work() -> None:
        store = JobStore(database)
        engine = DurableEngine(store)
        for n in range(1000 * life, 10_000):
            job_id = f"j{n}"
            assert await engine.accept(a_job(job_id, number=n))
            await StoredRecord(engine, job_id).update(lambda record: replace(record, base_sha="7f3a"))
            _tell("queued", job_id)
            await begun(engine, job_id)
            await store.run(partial(_park_for_ever, job_id=job_id))
            _tell("waiting", job_id)
            await StoredRecord(engine, job_id).update(lambda record: replace(record, is_acknowledged=True))
            await engine.wake(job_id)
            _tell("woken", job_id)

    asyncio.run(work())


def _park_for_ever(tx: Transaction, *, job_id: str) -> bool:
    return transitions.park(tx, transitions.check_lease(tx, job_id, 1, "w1"), _FOREVER, 0, lambda _: False)


def _tell(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


@pytest.mark.slow
def test_processes_that_make_the_database_at_once_agree(empty_database: str) -> None:
    processes = [Forked(_open, empty_database) for _ in range(3)]
    assert [process.join() for process in processes] == [0] * 3


@pytest.mark.slow
async def test_killed_at_any_moment_nothing_is_lost_that_was_acknowledged(database: str) -> None:
    states: dict[str, str] = {}
    for life in range(2):
        with Forked(_enqueue, database, life, piped=True) as process:
            lines = [process.stdout.readline() for _ in range(2 + 9 * life)]
            process.kill()
            # The last line of a process that is killed may be cut.
            lines += [f"{line}\n" for line in process.stdout.read().split("\n")[:-1]]
            assert process.join() == -signal.SIGKILL
        states |= {job_id: state for state, job_id in (line.split() for line in lines)}
    assert len(states) >= 4
    store = JobStore(database)
    engine = DurableEngine(store)
    later = {
        "queued": {JobState.QUEUED, JobState.RUNNING, JobState.WAITING},
        "waiting": {JobState.WAITING, JobState.QUEUED},
        "woken": {JobState.QUEUED},
    }
    for job_id, state in states.items():
        stored, record = await engine.get(job_id), await StoredRecord(engine, job_id).read()
        assert stored is not None
        assert stored.state in later[state]
        assert (stored.state is JobState.WAITING) == (stored.until is not None)
        assert record.base_sha == "7f3a"
        assert state != "woken" or record.is_acknowledged
    await store.close()
