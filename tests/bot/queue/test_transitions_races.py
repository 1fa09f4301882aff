"""All who would move a job at the same moment, each over a connection of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import ne

import pytest
import sqlalchemy as sa

from bot.domain.job import Actor, Job, JobState
from bot.jobs import waiting
from bot.jobs.record import ApprovalAnswer, StoredRecord
from bot.queue import transitions
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableLedger
from bot.queue.records import Signal
from bot.queue.store import JOBS, JobStore, Transaction
from tests.builders import a_job

FOREVER = 10.0**12
ROUNDS = 20

Move = Callable[[JobStore], bool]


@pytest.fixture
def stores(database: str) -> Iterator[list[JobStore]]:
    """The same database, opened by as many processes as there are."""
    stores = [JobStore(database) for _ in range(3)]
    yield stores
    for each in stores:
        each.close_sync()


def race(stores: list[JobStore], *moves: Move) -> list[bool]:
    """Let all moves begin at one moment; what they came to."""
    gate = threading.Barrier(len(moves))

    def make(store: JobStore, move: Move) -> bool:
        gate.wait()
        return move(store)

    with ThreadPoolExecutor(len(moves)) as threads:
        return list(threads.map(make, stores, moves))


def runs(store: JobStore, job_id: str, number: int) -> None:
    """Have a job that runs."""
    assert store.run_sync(lambda tx: transitions.accept(tx, a_job(job_id, number=number), 0.0))
    assert store.run_sync(lambda tx: transitions.begin(tx, job_id, 1, "w1")) is not None


def park(store: JobStore, job_id: str) -> bool:
    def parked(tx: Transaction) -> bool:
        return transitions.park(tx, transitions.check_lease(tx, job_id, 1, "w1"), FOREVER, 0, lambda _: False)

    return store.run_sync(parked)


def wake(store: JobStore, job_id: str) -> bool:
    return store.run_sync(lambda tx: transitions.wake(tx, job_id))


def cancel(store: JobStore, job_id: str) -> bool:
    return store.run_sync(lambda tx: transitions.cancel(tx, job_id, JobState.STOPPED, "", None))


def stop(store: JobStore, job_id: str) -> bool:
    """As steering does it: a word to the job is kept before anybody looks whether it waits."""
    word = Signal(kind="stop", text="", by="mona", id="s1")
    store.run_sync(lambda tx: transitions.send(tx, job_id, word))
    return cancel(store, job_id)


def answer(store: JobStore, job_id: str, note: str) -> bool:
    """Answer a request, unless somebody has: whether it was this answer that counts."""
    given = ApprovalAnswer(request_id="7f3a", approved=True, note=note, by=Actor(id=1, login="mona"))

    return asyncio.run(waiting.store_answer(StoredRecord(DurableEngine(store), job_id), given))


def state(store: JobStore, job_id: str) -> JobState:
    state = sa.select(JOBS.c.state).where(JOBS.c.id == job_id)
    return JobState(store.run_sync(lambda tx: tx.rows.execute(state).scalar_one()))


def test_of_those_who_would_move_a_waiting_job_one_wins(stores: list[JobStore]) -> None:
    for number in range(ROUNDS):
        name = f"j{number}"
        runs(stores[0], name, number)
        assert park(stores[0], name)
        ended, *woken = race(stores, partial(cancel, job_id=name), *[partial(wake, job_id=name)] * 2)
        assert ended  # whether it waited still or was queued already
        assert state(stores[0], name) is JobState.STOPPED
        assert sum(woken) <= 1


def test_of_several_answers_the_first_counts(stores: list[JobStore]) -> None:
    for number in range(ROUNDS):
        name = f"j{number}"
        runs(stores[0], name, number)
        kept = race(stores, *(partial(answer, job_id=name, note=note) for note in "abc"))
        assert sorted(kept) == [False, False, True]


def test_a_stop_is_heard_before_a_job_waits_or_ends_it_there(stores: list[JobStore]) -> None:
    for number in range(ROUNDS):
        name = f"j{number}"
        runs(stores[0], name, number)
        parked, ended = race(stores, partial(park, job_id=name), partial(stop, job_id=name))
        assert parked == ended
        assert state(stores[0], name) is (JobState.STOPPED if ended else JobState.RUNNING)


def begin(store: JobStore, job_id: str) -> bool:
    return store.run_sync(lambda tx: transitions.begin(tx, job_id, 1, "w2")) is not None


def test_of_jobs_whose_worker_died_another_one_begins_one(stores: list[JobStore]) -> None:
    for number in range(0, ROUNDS, 2):
        names = f"j{number}", f"j{number + 1}"
        for each, name in enumerate(names, start=number):
            runs(stores[0], name, each)
        assert sum(race(stores, *(partial(begin, job_id=name) for name in names))) == 1
        for name in names:
            stores[0].run_sync(lambda tx, name=name: transitions.update(tx, name, lambda _: "1", ne))  # type: ignore[misc]


def accept(store: JobStore, job: Job) -> bool:
    return store.run_sync(lambda tx: transitions.accept(tx, job, 0.0))


def test_of_those_who_would_store_jobs_of_one_delivery_one_does(stores: list[JobStore]) -> None:
    for number in range(ROUNDS):
        made = [a_job(f"j{number}{name}", number=number, delivery_id=f"d{number}") for name in "abc"]
        assert sorted(race(stores, *(partial(accept, job=each) for each in made))) == [False, False, True]


def may_tell(store: JobStore, cause: str) -> bool:
    return asyncio.run(DurableLedger(store).claim_notice(10, 7, cause))


def test_of_those_who_would_tell_a_thread_the_same_one_may(stores: list[JobStore]) -> None:
    for number in range(ROUNDS):
        assert sorted(race(stores, *[partial(may_tell, cause=f"c{number}")] * 3)) == [False, False, True]
