"""Look into the durable engine, and be a worker of it that dies."""

from __future__ import annotations

import sqlalchemy as sa

from bot.domain.job import Job, JobState, Lane
from bot.engine.durable import jobs
from bot.engine.durable.engine import DurableEngine
from bot.engine.durable.store import Transaction
from bot.engine.durable.tables import JOBS, OWED
from bot.engine.records import Signal


async def runnable(engine: DurableEngine, lane: Lane = "work") -> list[str]:
    """The jobs of a lane that a worker could begin now, or have begun under a worker that died, oldest first."""

    def found(tx: Transaction) -> list[str]:
        ready = sa.select(JOBS.c.id).where(JOBS.c.released, JOBS.c.lane == lane, JOBS.c.held_until <= tx.now)
        states = JOBS.c.state.in_([JobState.QUEUED, JobState.RUNNING])
        return list(tx.rows.execute(ready.where(states).order_by(JOBS.c.seq)).scalars())

    return await engine._store.run(found)


async def begun(engine: DurableEngine, job_id: str, worker: str = "w1") -> tuple[Job, int, int] | None:
    """Begin a job as DBOS would have a worker do; the job, its attempt and its deaths, or None when it may not run.

    A job that is begun a second time was begun by a worker that has died since.
    """

    def begin(tx: Transaction) -> tuple[Job, int, int] | None:
        leg = tx.rows.execute(sa.select(JOBS.c.leg).where(JOBS.c.id == job_id)).scalar_one()
        return jobs.begin(tx, job_id, leg, worker)

    return await engine._store.run(begin)


async def signals_of(engine: DurableEngine, job_id: str) -> list[Signal]:
    """What was sent to a job."""
    return [each for _, each in await engine._store.run(lambda tx: jobs.signals(tx, job_id, 0))]


async def is_owed(engine: DurableEngine, job_id: str) -> bool:
    """Whether the ending of a job is still to be told."""
    asked = sa.select(sa.exists().where(OWED.c.job_id == job_id))
    return bool(await engine._store.run(lambda tx: tx.rows.execute(asked).scalar()))
