"""The limit of running jobs of one repository on all workers, and the order of the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.job import Job, JobState
from bot.queue import transitions
from bot.queue.protocols import JobAttempt
from bot.queue.records import Signal
from bot.queue.store import JOBS, JobStore, Transaction
from bot.queue.worker import open_slots
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.clocks import Clock

_BOUND = 2
_MANY = 12


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: str, clock: Clock) -> Iterator[JobStore]:
    """A store with the bound, whose workflows no worker runs."""
    with _opened(database, clock, _BOUND) as store:
        yield store


@contextmanager
def _opened(url: str, clock: Clock, bound: int | None) -> Iterator[JobStore]:
    store = JobStore(url, clock=clock, jobs_of_repository=bound)
    try:
        yield store
    finally:
        store.close_sync()


def _of(repo_id: int, name: str, number: int) -> Job:
    job = a_job(name, number=number)
    return replace(job, repo=replace(job.repo, id=repo_id))


def _accept(store: JobStore, *names: str, held_seconds: float = 0.0) -> None:
    """Accept jobs of one repository, each of a thread of its own."""
    for name in names:
        number = int.from_bytes(name.encode())
        assert store.run_sync(partial(transitions.accept, job=a_job(name, number=number), held_seconds=held_seconds))


def _released(store: JobStore) -> list[str]:
    """The jobs that are in the queue or run, oldest first."""
    found = sa.select(JOBS.c.id).where(JOBS.c.released).order_by(JOBS.c.seq)
    return list(store.run_sync(lambda tx: tx.rows.execute(found).scalars().all()))


def _begin(store: JobStore, job_id: str, worker: str = "w1") -> bool:
    def begin(tx: Transaction) -> bool:
        leg = tx.rows.execute(sa.select(JOBS.c.leg).where(JOBS.c.id == job_id)).scalar_one()
        return transitions.begin(tx, job_id, leg, worker) is not None

    return store.run_sync(begin)


def _row(tx: Transaction, job_id: str) -> sa.Row[tuple[object, ...]]:
    return tx.rows.execute(sa.select(JOBS).where(JOBS.c.id == job_id)).one()


def _finish(store: JobStore, job_id: str) -> None:
    def finish(tx: Transaction) -> None:
        row = _row(tx, job_id)
        transitions.finish(tx, transitions.check_lease(tx, job_id, row.leg, row.worker), JobState.DONE, "", None)

    store.run_sync(finish)


def _pause(store: JobStore, job_id: str, seconds: float) -> None:
    def pause(tx: Transaction) -> None:
        row = _row(tx, job_id)
        transitions.release(tx, transitions.check_lease(tx, job_id, row.leg, row.worker), seconds)

    store.run_sync(pause)


def test_a_job_to_stop_needs_no_place_of_its_repository(store: JobStore, clock: Clock) -> None:
    _accept(store, *"abc")
    assert all(_begin(store, each) for each in "ab")
    _pause(store, "a", 60.0)
    assert _begin(store, "c")
    stop = Signal(kind="stop", text="", by="mona", id="s1")
    assert store.run_sync(lambda tx: transitions.send(tx, "a", stop))
    assert _begin(store, "a")
    assert {store.run_sync(lambda tx, each=each: _row(tx, each).state) for each in "abc"} == {"running"}  # type: ignore[misc]


def test_a_job_that_was_about_to_begin_gives_way_to_one_of_its_thread_that_stops(database: str, clock: Clock) -> None:
    with _opened(database, clock, None) as store:
        for name in "ab":
            assert store.run_sync(lambda tx, name=name: transitions.accept(tx, a_job(name), 0.0))  # type: ignore[misc]
        assert _begin(store, "a")
        row = store.run_sync(lambda tx: _row(tx, "a"))
        assert store.run_sync(lambda tx: transitions.park(tx, row, clock.now + 60, 0, lambda _: False))
        assert _released(store) == ["b"]
        stop = Signal(kind="stop", text="", by="mona", id="s1")
        assert store.run_sync(lambda tx: transitions.send(tx, "a", stop))
        assert _begin(store, "a")
        assert not _begin(store, "b")
        assert _released(store) == ["a"]
        _finish(store, "a")
        assert _begin(store, "b")


def test_jobs_beyond_the_bound_follow_in_their_order_whatever_frees_a_place(store: JobStore) -> None:
    _accept(store, *"abcdefg")
    assert _released(store) == ["a", "b"]
    assert all(_begin(store, each) for each in "ab")
    _finish(store, "b")
    assert _released(store) == ["a", "c"]
    assert store.run_sync(lambda tx: transitions.cancel(tx, "c", JobState.STOPPED, "", None))
    assert _released(store) == ["a", "d"]
    assert store.run_sync(
        lambda tx: transitions.park(
            tx, transitions.check_lease(tx, "a", 1, "w1"), clock_end(tx), delivered=0, has_answer=lambda _: False
        )
    )
    assert _released(store) == ["d", "e"]
    assert store.run_sync(lambda tx: transitions.cancel(tx, "f", JobState.STOPPED, "", None))
    assert store.run_sync(lambda tx: transitions.wake(tx, "a"))
    assert _released(store) == ["d", "e"]
    assert all(_begin(store, each) for each in "de")
    _finish(store, "d")
    assert _released(store) == ["a", "e"]
    _finish(store, "e")
    assert _released(store) == ["a", "g"]


def clock_end(tx: Transaction) -> float:
    """A time that a test does not see."""
    return tx.now + 3600.0


def test_other_repositories_other_lanes_and_a_threads_order_are_as_without_a_bound(store: JobStore) -> None:
    for job in (_of(1, "a1", 1), _of(1, "a2", 1), _of(1, "b", 2), _of(1, "c", 3), _of(2, "other", 1)):
        assert store.run_sync(partial(transitions.accept, job=job, held_seconds=0.0))
    assert _released(store) == ["a1", "b", "other"]
    assert _begin(store, "a1")
    _finish(store, "a1")
    assert _released(store) == ["a2", "b", "other"]


def test_a_job_that_is_acknowledged_keeps_its_place_and_one_that_pauses_does_not(store: JobStore, clock: Clock) -> None:
    _accept(store, "a", held_seconds=15.0)
    _accept(store, *"bcd")
    assert _released(store) == ["a", "b"]
    store.run_sync(partial(transitions.release_hold, job_id="a"))
    assert _begin(store, "a")
    _pause(store, "a", 60.0)
    assert _released(store) == ["a", "b", "c"]
    assert _begin(store, "b")
    assert _begin(store, "c")
    clock.now += 61.0
    assert not _begin(store, "a")  # its place is taken meanwhile
    assert _released(store) == ["b", "c"]
    _finish(store, "c")
    assert _released(store) == ["a", "b"]  # before the younger one
    assert _begin(store, "a")


def test_a_job_that_is_given_back_keeps_its_place_whenever_the_next_one_began_to_wait_for_it(
    store: JobStore, clock: Clock
) -> None:
    _accept(store, *"abc")
    assert all(_begin(store, each) for each in "ab")
    _pause(store, "a", 0.0)
    clock.now -= 0.01  # of a transaction that began before the one that it waited for
    _pause(store, "b", 0.0)
    assert _released(store) == ["a", "b"]


def test_jobs_that_a_process_without_the_bound_released_wait_when_their_turn_comes(
    store: JobStore, database: str, clock: Clock
) -> None:
    with _opened(database, clock, None) as unbounded:
        _accept(unbounded, *"abcd")
        assert _released(store) == [*"abcd"]
        assert [each for each in "abcd" if _begin(store, each)] == ["c", "d"]
        assert _released(store) == ["c", "d"]
        # It knows of the places of one thread alone; a look finds what it leaves.
        _finish(unbounded, "c")
        assert _released(store) == ["d"]
        assert store.run_sync(transitions.find_repositories_to_fill) == (10,)
        store.run_sync(partial(transitions.fill_repository, repo_id=10))
        assert _released(store) == ["a", "d"]
        assert store.run_sync(transitions.find_repositories_to_fill) == ()


def test_a_lower_bound_holds_for_jobs_whose_worker_died_and_none_lets_all_run(
    store: JobStore, database: str, clock: Clock
) -> None:
    _accept(store, *"abc")
    assert all(_begin(store, each) for each in "ab")
    with _opened(database, clock, 1) as lower:
        assert not _begin(lower, "a", "w2")
        assert lower.run_sync(transitions.find_repositories_to_fill) == ()
    with _opened(database, clock, None) as unbounded:
        assert unbounded.run_sync(transitions.find_repositories_to_fill) == (10,)
        unbounded.run_sync(partial(transitions.fill_repository, repo_id=10))
        assert _released(store) == [*"abc"]


def test_of_many_who_accept_and_finish_at_once_nobody_exceeds_the_bound_or_forgets_a_job(
    database: str, clock: Clock
) -> None:
    names = [f"j{each:02}" for each in range(24)]
    with _opened(database, clock, _BOUND) as one, _opened(database, clock, _BOUND) as two:
        _accept(one, *names[:4])
        waiting, ended = names[4:], list[str]()
        gate = threading.Barrier(3)

        def accept(store: JobStore, mine: list[str]) -> None:
            gate.wait()
            _accept(store, *mine)

        def work(store: JobStore) -> None:
            gate.wait()
            while len(ended) < len(names):
                for each in (released := _released(store)):
                    assert len(released) <= _BOUND
                    assert _begin(store, each)
                    _finish(store, each)
                    ended.append(each)

        with ThreadPoolExecutor(3) as threads:
            done = [threads.submit(accept, one, waiting[::2]), threads.submit(accept, two, waiting[1::2])]
            done.append(threads.submit(work, two))
            for each in done:
                each.result(60)
        assert sorted(ended) == names


def test_whose_turn_it_is_stands_in_indexes_of_what_has_not_ended(tmp_path: Path, clock: Clock) -> None:
    """However many jobs of the repository have."""
    with _opened(f"sqlite:///{tmp_path / 'jobs.sqlite'}", clock, _BOUND) as store:
        _accept(store, "a")
        asked: list[tuple[str, Any]] = []
        sa.event.listen(store.engine, "before_cursor_execute", lambda *args: asked.append(args[2:4]))
        store.run_sync(partial(transitions.fill_repository, repo_id=10))
        assert store.run_sync(transitions.find_repositories_to_fill) == ()
        questions = [each for each in asked if each[0].startswith("SELECT")]

        def plans(tx: Transaction) -> list[str]:
            explained = (tx.rows.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", values) for each, values in questions)
            return [str(step[3]) for each in explained for step in each]

        found = store.run_sync(plans)
    used = [step for step in found if step.startswith(("SEARCH", "SCAN"))]
    assert len(used) > len(questions) > 1, found
    assert all("jobs_waiting_in_repository" in step or "jobs_released_in_repository" in step for step in used), found


@pytest.fixture
async def bounded(database: str) -> AsyncIterator[Running]:
    """An engine with the bound, and a worker that has not begun."""
    store = JobStore(database, jobs_of_repository=_BOUND)
    running = Running(store, open_slots(store))
    yield running
    await running.stop()
    await store.close()


async def test_many_threads_of_one_repository_keep_their_bound_and_another_repository_runs(bounded: Running) -> None:
    """All of one installation, whose places would do for more; also after a restart."""
    names = [f"j{each:02}" for each in range(_MANY)]
    ends = {name: asyncio.Event() for name in names}
    under_way, most = set[str](), 0

    async def wait(attempt: JobAttempt) -> None:
        nonlocal most
        under_way.add(attempt.job.id)
        most = max(most, len(under_way))
        try:
            await ends[attempt.job.id].wait()
        finally:
            under_way.discard(attempt.job.id)

    bounded.handler.doing = dict.fromkeys(names, wait)
    for number, name in enumerate(names):
        await bounded.engine.accept(_of(1, name, number))
    await bounded.engine.accept(_of(2, "other", 1))
    bounded.start(jobs_at_once=8)
    await bounded.until_state("other", JobState.DONE)

    async def are_under_way(*expected: str) -> None:
        async def are() -> bool:
            return under_way == set(expected)

        await bounded.until(are)

    await are_under_way("j00", "j01")
    ends["j01"].set()
    await are_under_way("j00", "j02")
    await bounded.stop()
    assert not under_way
    bounded.start(jobs_at_once=8)
    await are_under_way("j00", "j02")
    for event in ends.values():
        event.set()
    for name in names:
        await bounded.until_state(name, JobState.DONE)
    assert most == _BOUND


async def test_a_worker_takes_up_what_was_left_when_the_bound_is_gone(database: str) -> None:
    with _opened(database, Clock(), 1) as store:
        _accept(store, *"abc")
        # As a process leaves it that knows of no bound.
        ended = {"state": JobState.DONE, "finished_at": 1000.0, "released": False}
        store.run_sync(lambda tx: tx.rows.execute(JOBS.update().where(JOBS.c.id == "a").values(ended)))
    unbounded = JobStore(database)
    running = Running(unbounded, open_slots(unbounded))
    running.start()
    try:
        for name in "bc":
            await running.until_state(name, JobState.DONE)
    finally:
        await running.stop()
        await unbounded.close()


def test_a_stopped_job_leaves_its_place_to_another_thread_until_the_end_of_the_running_one(store: JobStore) -> None:
    def held(tx: Transaction, job_id: str) -> sa.Row[Any]:
        return transitions.check_lease(tx, job_id, 1, "w1")

    stop = Signal(kind="stop", text="", by="mona", id="s1")
    for name in ("stopped", "running"):
        store.run_sync(partial(transitions.accept, job=a_job(name, number=1), held_seconds=0.0))
        assert _begin(store, name)
        if name == "stopped":
            store.run_sync(lambda tx: transitions.park(tx, held(tx, "stopped"), 10.0**12, 0, lambda _: False))
    assert store.run_sync(lambda tx: transitions.send(tx, "stopped", stop))
    _accept(store, "b")
    assert _released(store) == ["stopped", "running"]
    assert not _begin(store, "stopped")
    assert _released(store) == ["running", "b"]
    store.run_sync(lambda tx: transitions.finish(tx, held(tx, "running"), JobState.DONE, "", None))
    assert _begin(store, "stopped")
