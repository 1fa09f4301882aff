"""Jobs that arrive at the same time are stored each as if it were alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from bot.domain.errors import QueueError
from bot.queue import transitions
from bot.queue.engine import DurableEngine
from bot.queue.store import JOBS, JobStore, Transaction
from tests.builders import a_job

SECONDS = 20.0


@pytest.fixture
async def store(database: str) -> AsyncIterator[JobStore]:
    store = JobStore(database)
    yield store
    await store.close()


async def test_no_job_of_another_thread_is_read_however_many_wait(store: JobStore) -> None:
    def accept(tx: Transaction, name: str, number: int) -> None:
        assert transitions.accept(tx, a_job(f"{name}-{number}", number=number), 0.0)

    def wait(tx: Transaction) -> None:
        for number in range(1, 301):
            accept(tx, "waits", number)

    # PostgreSQL counts the rows of a table that a transaction reads; SQLite does not.
    counted = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'jobs'"
    counted = counted if store.path is None else "SELECT 0"

    def read_for_more(tx: Transaction) -> int:
        before = int(tx.rows.exec_driver_sql(counted).scalar_one())
        for number in range(291, 311):
            accept(tx, "new", number)
        return int(tx.rows.exec_driver_sql(counted).scalar_one()) - before

    await store.run(wait)
    assert await store.run(read_for_more) < 100


async def test_a_job_that_comes_behind_one_that_was_left_lets_that_one_run(store: JobStore) -> None:
    await store.run(lambda tx: transitions.accept(tx, a_job("left", number=1), 0.0))
    # As a process leaves it that bounds the jobs of a repository, which this one does not.
    await store.run(lambda tx: transitions.change(tx, "left", released=False, leg=0))
    assert await store.run(lambda tx: transitions.accept(tx, a_job("behind", number=1), 0.0))

    def legs(tx: Transaction) -> dict[str, int]:
        return {row.id: row.leg for row in tx.rows.execute(sa.select(JOBS.c.id, JOBS.c.leg).where(JOBS.c.released))}

    assert await store.run(legs) == {"left": 1}


def refuse(tx: Transaction, job_id: str) -> None:
    """Have the database refuse a job."""
    if tx.rows.dialect.name == "postgresql":
        tx.rows.exec_driver_sql(f"ALTER TABLE jobs ADD CONSTRAINT refused CHECK (id <> '{job_id}')")
    else:
        tx.rows.exec_driver_sql(
            f"CREATE TRIGGER refused BEFORE INSERT ON jobs WHEN NEW.id = '{job_id}' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )


def allow(tx: Transaction) -> None:
    postgres = tx.rows.dialect.name == "postgresql"
    tx.rows.exec_driver_sql("ALTER TABLE jobs DROP CONSTRAINT refused" if postgres else "DROP TRIGGER refused")


async def test_a_job_that_the_database_refuses_fails_alone(store: JobStore) -> None:
    engine = DurableEngine(store)
    await store.run(lambda tx: refuse(tx, "j1"))
    try:
        accepting = (engine.accept(a_job(f"j{number}", number=number)) for number in range(3))
        first, refused, last = await asyncio.gather(*accepting, return_exceptions=True)
    finally:
        await store.run(allow)
    assert (first, last) == (True, True)
    assert isinstance(refused, QueueError)
    assert await engine.live_ids() == {"j0", "j2"}


async def test_the_same_delivery_many_times_at_once_is_accepted_once(store: JobStore) -> None:
    engine = DurableEngine(store)
    jobs = [*[a_job("j", number=1)] * 8, a_job("other", number=2)]
    assert sorted(await asyncio.gather(*map(engine.accept, jobs))) == [False] * 7 + [True] * 2
    assert await engine.live_ids() == {"j", "other"}


async def test_a_thread_that_another_transaction_changes_keeps_no_other_waiting(jobs_url: str) -> None:
    store, other = JobStore(jobs_url), JobStore(jobs_url)
    held, gate = threading.Event(), threading.Event()
    job = a_job("waits", number=1)

    def hold(tx: Transaction) -> None:
        transitions.lock(tx, job.lane, job.repo.id, job.thread.key)
        held.set()
        gate.wait(SECONDS)

    holding = asyncio.create_task(other.run(hold))
    assert await asyncio.to_thread(held.wait, SECONDS)
    engine = DurableEngine(store)
    waits = asyncio.create_task(engine.accept(job))
    assert await asyncio.wait_for(engine.accept(a_job("goes", number=2)), SECONDS / 2)
    assert not waits.done()
    gate.set()
    await holding
    assert await asyncio.wait_for(waits, SECONDS)
    for each in (store, other):
        await each.close()
