"""Look into the durable engine, and be its worker, without DBOS: a job runs when the test says so."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.job import Job, JobState, Lane
from bot.queue import transitions
from bot.queue.engine import DurableEngine, Lease
from bot.queue.protocols import Disposition, JobAttempt, JobHandler, PendingReport
from bot.queue.records import Signal
from bot.queue.store import JOBS, REPORTS, JobStore, Transaction
from bot.queue.worker import DurableWorker, FileSlots, Slots
from tests.postgres import Postgres


@pytest.fixture(scope="session")
def job_tables(postgres_server: Postgres | str) -> str:
    """The name of a database with the engine's tables, to make others from."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    url = postgres_server.new_database()
    JobStore(url).close_sync()
    return url.rpartition("/")[2]


@pytest.fixture
def jobs_url(postgres_server: Postgres, job_tables: str) -> str:
    """A PostgreSQL database of an engine that has no jobs yet: to copy its tables is faster than to make them."""
    return postgres_server.new_database(job_tables)


async def runnable(engine: DurableEngine, lane: Lane = "work") -> list[str]:
    """The jobs of a lane that a worker could begin now, or have begun under a worker that died, oldest first."""

    def select(tx: Transaction) -> list[str]:
        ready = sa.select(JOBS.c.id).where(JOBS.c.released, JOBS.c.lane == lane, JOBS.c.held_until <= tx.now)
        states = JOBS.c.state.in_([JobState.QUEUED, JobState.RUNNING])
        return list(tx.rows.execute(ready.where(states).order_by(JOBS.c.seq)).scalars())

    return await engine._store.run(select)


async def begun(engine: DurableEngine, job_id: str, worker: str = "w1") -> tuple[Job, int, int] | None:
    """Begin a job as DBOS would have a worker do; the job, its attempt and its deaths, or None when it may not run.

    A job that is begun a second time was begun by a worker that has died since.
    """

    def begin(tx: Transaction) -> tuple[Job, int, int] | None:
        leg = tx.rows.execute(sa.select(JOBS.c.leg).where(JOBS.c.id == job_id)).scalar_one()
        return transitions.begin(tx, job_id, leg, worker)

    return await engine._store.run(begin)


async def signals_of(engine: DurableEngine, job_id: str) -> list[Signal]:
    """Return the signals that were sent to a job."""
    return [each for _, each in await engine._store.run(lambda tx: transitions.signals(tx, job_id, 0))]


async def is_owed(engine: DurableEngine, job_id: str) -> bool:
    """Return whether the report of a job is still to be posted."""
    query = sa.select(sa.exists().where(REPORTS.c.job_id == job_id))
    return bool(await engine._store.run(lambda tx: tx.rows.execute(query).scalar()))


async def is_free(slots: Slots, number: int) -> bool:
    """Return whether no worker is in a place."""
    async with slots.claim_vacant(number) as free:
        return free


class Legs:
    """Runs the jobs of a store one by one, as DBOS would have a worker do it, by the clock of the store.

    Args:
        store: the database.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def run_next(self, handler: JobHandler, lane: Lane = "work") -> bool:
        """Have the next job of a lane handled; False when none may run."""
        await self._store.run(_wake_due)
        noticing = _Recorder(handler)
        worker = DurableWorker(self._store, noticing, jobs_at_once=1, slots=FileSlots(Path()))
        while not noticing.handled:
            leg = await self._store.run(partial(_next, lane))
            if leg is None:
                return False
            # In a task of its own, as what it sets is for the job alone.
            await asyncio.create_task(worker._run_job(leg))
        return True

    async def report(self, handler: JobHandler, job_id: str) -> None:
        """Have an ending told."""
        worker = DurableWorker(self._store, handler, jobs_at_once=1, slots=FileSlots(Path()))
        await asyncio.create_task(worker._report(job_id))


class _Recorder:
    """Notices whether a job came to its handler."""

    def __init__(self, handler: JobHandler) -> None:
        self._handler, self.handled = handler, False

    async def handle(self, attempt: JobAttempt) -> Disposition:
        self.handled = True
        return await self._handler.handle(attempt)

    async def report(self, report: PendingReport) -> bool:
        return await self._handler.report(report)


def _wake_due(tx: Transaction) -> None:
    due = sa.select(JOBS.c.id, JOBS.c.leg).where(JOBS.c.state == JobState.WAITING, JOBS.c.waits_until <= tx.now)
    for row in tx.rows.execute(due.order_by(JOBS.c.seq)).all():
        transitions.wake(tx, row.id, row.leg)


def _next(lane: Lane, tx: Transaction) -> Lease | None:
    ready = sa.select(JOBS.c.id, JOBS.c.leg, JOBS.c.lane).where(
        JOBS.c.released, JOBS.c.held_until <= tx.now, JOBS.c.state == JobState.QUEUED
    )
    for row in tx.rows.execute(ready.order_by(JOBS.c.seq)).all():
        if lane == ("steer" if transitions.is_stopping(tx, row.id) else row.lane):
            return Lease(job_id=row.id, number=row.leg, worker="w1")
    return None
