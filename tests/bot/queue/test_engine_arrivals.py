"""Jobs that arrive together are stored together, and each of them as if it were alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa

from bot.domain.errors import QueueError
from bot.domain.job import Job
from bot.queue import transitions
from bot.queue.engine import Arrival, DurableEngine, accept_batch
from bot.queue.store import JOBS, JobStore, Transaction, WorkItem
from tests.builders import a_job

SECONDS = 20.0


@pytest.fixture
async def store(database: str) -> AsyncIterator[JobStore]:
    store = JobStore(database)
    yield store
    await store.close()


@contextmanager
def busy(store: JobStore) -> Iterator[None]:
    """Have what arrives in the body arrive together."""
    gate = threading.Event()
    store.arrival_thread.submit(gate.wait, SECONDS)
    try:
        yield
    finally:
        gate.set()


async def accepted_together(store: JobStore, *arriving: Job) -> list[bool | BaseException]:
    engine = DurableEngine(store)
    with busy(store):
        tasks = [asyncio.create_task(engine.accept(job)) for job in arriving]
        await asyncio.sleep(0)  # each has been put into the queue
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)


def arrivals(*jobs_: Job) -> Sequence[Arrival]:
    return [Arrival(job=job, values=transitions.build_row(job, 1.0, 0.0), held_seconds=0.0) for job in jobs_]


def rows(tx: Transaction, table: str, key: str) -> dict[str, dict[str, object]]:
    schema = "dbos." if tx.rows.dialect.name == "postgresql" else ""
    found = tx.rows.exec_driver_sql(f"SELECT * FROM {schema}{table}").mappings()  # noqa: S608
    return {str(row[key]): dict(row) for row in found}


@pytest.mark.parametrize(("partition", "delay"), [("7", 0.0), (None, 0.0), ("7", 60.0)])
async def test_what_is_enqueued_with_others_is_as_dbos_itself_enqueues_it(
    store: JobStore, partition: str | None, delay: float
) -> None:
    queue = "codepilot-work" if partition else transitions.TIMERS

    def enqueue(tx: Transaction) -> None:
        tx.enqueue(transitions.RUN, "alone", queue, partition, delay, "alone", 1)
        one = WorkItem(workflow=transitions.RUN, id="a", queue=queue, partition=partition, delay=delay, args=("a", 1))
        tx.enqueue_all([one, replace(one, id="b", args=("b", 1))])
        tx.enqueue_all([one])  # known

    await store.run(enqueue)
    for table, own in (
        ("workflow_status", {"creator_xid", "created_at", "updated_at", "delay_until_epoch_ms"}),
        ("workflow_input", {"retention_timestamp"}),
    ):
        found = await store.run(partial(rows, table=table, key="workflow_uuid"))
        assert set(found) == {"alone", "a", "b"}
        for number in ("a", "b"):
            for column, value in found["alone"].items():
                # DBOS keeps "none" as JSON, where no value means the same.
                theirs, ours = None if value == "null" else value, found[number][column]
                if column in own:
                    assert type(ours) is type(theirs), column
                else:
                    assert ours == (theirs.replace("alone", number) if isinstance(theirs, str) else theirs), column


async def test_each_of_those_that_arrive_together_is_stored_as_if_it_were_alone(store: JobStore) -> None:
    known = a_job("known", number=1)
    assert await store.run(lambda tx: transitions.accept(tx, known, 0.0))
    first, second = a_job("first", number=2), a_job("second", number=2)
    same_delivery = replace(a_job("other", number=3), delivery_id=known.delivery_id)
    behind = a_job("behind", number=1)
    together = arrivals(known, first, second, same_delivery, behind, replace(first, id="first", delivery_id="again"))
    assert await store.run(lambda tx: accept_batch(tx, together)) == [False, True, None, None, None, None]
    assert await store.run(lambda tx: accept_batch(tx, arrivals(same_delivery, behind))) == [False, True]

    def stored(tx: Transaction) -> list[tuple[object, ...]]:
        columns = (JOBS.c.id, JOBS.c.released, JOBS.c.leg, JOBS.c.state, JOBS.c.thread)
        return [tuple(row) for row in tx.rows.execute(sa.select(*columns).order_by(JOBS.c.id))]

    expected = [("behind", False, 0, "queued", 1), ("first", True, 1, "queued", 2), ("known", True, 1, "queued", 1)]
    assert await store.run(stored) == expected
    assert set(await store.run(lambda tx: rows(tx, "workflow_status", "workflow_uuid"))) == {"known", "first"}


async def test_no_job_of_another_thread_is_read_however_many_wait(store: JobStore) -> None:
    def wait(tx: Transaction) -> None:
        assert accept_batch(tx, arrivals(*(a_job(f"waits-{n}", number=n) for n in range(1, 301)))) == [True] * 300

    # PostgreSQL counts the rows of a table that a transaction reads; SQLite does not.
    counted = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'jobs'"
    counted = counted if store.path is None else "SELECT 0"

    def read_for_more(tx: Transaction) -> int:
        more = [a_job(f"new-{n}", number=n) for n in range(291, 311)]
        assert accept_batch(tx, arrivals(*more)) == [True] * 20
        return int(tx.rows.exec_driver_sql(counted).scalar_one())

    await store.run(wait)
    assert await store.run(read_for_more) < 100


async def test_a_job_that_comes_behind_one_that_was_left_lets_that_one_run(store: JobStore) -> None:
    await store.run(lambda tx: transitions.accept(tx, a_job("left", number=1), 0.0))
    # As a process leaves it that bounds the jobs of a repository, which this one does not.
    await store.run(lambda tx: transitions.change(tx, "left", released=False, leg=0))
    assert await store.run(lambda tx: accept_batch(tx, arrivals(a_job("behind", number=1)))) == [True]

    def legs(tx: Transaction) -> dict[str, int]:
        return {row.id: row.leg for row in tx.rows.execute(sa.select(JOBS.c.id, JOBS.c.leg).where(JOBS.c.released))}

    assert await store.run(legs) == {"left": 1}


async def test_a_row_is_the_same_whether_it_was_stored_alone_or_with_others(store: JobStore) -> None:
    job = a_job("a", number=1, title='{"a": 1}', body="\0 \\u0000 \U0001f600 ' %s")
    odd = replace(job, actor=replace(job.actor, login='Ünï"%s\\'), delivery_id="d")
    await store.run(lambda tx: transitions.accept(tx, odd, 30.0))

    def read_row(tx: Transaction) -> dict[str, object]:
        row = dict(tx.rows.execute(sa.select(JOBS).where(JOBS.c.id == "a")).mappings().one())
        return {key: value for key, value in row.items() if key not in {"seq", "held_until", "enqueued_at"}}

    alone = await store.run(read_row)
    await store.run(lambda tx: tx.rows.execute(JOBS.delete()))
    together = [Arrival(job=odd, values=transitions.build_row(odd, 1.5, 30.0), held_seconds=30.0)]
    assert await store.run(lambda tx: accept_batch(tx, together)) == [True]
    assert await store.run(read_row) == alone
    held = sa.select(JOBS.c.enqueued_at, JOBS.c.held_until)
    assert await store.run(lambda tx: tuple(tx.rows.execute(held).one())) == (1.5, 31.5)


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
    await store.run(lambda tx: refuse(tx, "j1"))
    try:
        first, refused, last = await accepted_together(store, *(a_job(f"j{each}", number=each) for each in range(3)))
    finally:
        await store.run(allow)
    assert (first, last) == (True, True)
    assert isinstance(refused, QueueError)
    assert await DurableEngine(store).live_ids() == {"j0", "j2"}


async def test_the_same_delivery_many_times_at_once_is_accepted_once(store: JobStore) -> None:
    found = await accepted_together(store, *[a_job("j", number=1)] * 8, a_job("other", number=2))
    assert sorted(map(bool, found)) == [False] * 7 + [True] * 2
    assert await DurableEngine(store).live_ids() == {"j", "other"}


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
    with busy(store):
        waits = asyncio.create_task(engine.accept(job))
        goes = asyncio.create_task(engine.accept(a_job("goes", number=2)))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(goes, SECONDS / 2)
    assert not waits.done()
    gate.set()
    await holding
    assert await asyncio.wait_for(waits, SECONDS)
    for each in (store, other):
        await each.close()
