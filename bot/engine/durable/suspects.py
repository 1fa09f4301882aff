"""The jobs that may have killed their workers; the rules are in `bot.engine.deaths`. Each call is in a transaction."""

from __future__ import annotations

import sqlalchemy as sa

from bot.domain.job import JobState
from bot.engine.deaths import ALONE_SECONDS, EXCUSING_SECONDS, MOST_DEATHS, MOST_EXCUSED
from bot.engine.durable.store import Transaction, insert
from bot.engine.durable.tables import DEATHS, JOBS, SUSPECTS

# Made once: to make a statement takes as long as to execute it.
_SUSPECT = SUSPECTS.c.job_id == sa.bindparam("of_job")
_COUNT = sa.select(SUSPECTS.c.deaths).where(_SUSPECT)
_CLAIM = SUSPECTS.update().where(_SUSPECT)
_CLEAR = SUSPECTS.delete().where(_SUSPECT)


def charge(tx: Transaction, job_id: str, worker: str) -> int:
    """Take note that a worker died with a job in hand; give back how many deaths the job is charged with now."""
    died = insert(tx, DEATHS).values(worker=worker, job_id=job_id, at=tx.now)
    tx.rows.execute(died.on_conflict_do_nothing())
    tx.rows.execute(DEATHS.delete().where(DEATHS.c.at < tx.now - EXCUSING_SECONDS))
    its_own = sa.select(DEATHS.c.worker).where(DEATHS.c.job_id == job_id)
    others = sa.select(sa.func.count(DEATHS.c.worker.distinct())).where(DEATHS.c.worker.not_in(its_own))
    excused = (SUSPECTS.c.excused < MOST_EXCUSED) & (SUSPECTS.c.excused < tx.rows.execute(others).scalar_one())
    another = {
        "deaths": SUSPECTS.c.deaths + sa.case((excused, 0), else_=1),
        "excused": SUSPECTS.c.excused + sa.case((excused, 1), else_=0),
        "claimed_at": sa.null(),
    }
    suspected = insert(tx, SUSPECTS).values(job_id=job_id, deaths=0)
    tx.rows.execute(suspected.on_conflict_do_update(index_elements=["job_id"], set_=another))
    charged = deaths_of(tx, job_id) or 0
    if charged >= MOST_DEATHS:
        tx.rows.execute(DEATHS.delete().where(DEATHS.c.worker.in_(its_own)))  # this job explains them
    return charged


def deaths_of(tx: Transaction, job_id: str) -> int | None:
    """How many deaths of workers a job is charged with; None when it is no suspect."""
    return tx.rows.execute(_COUNT, {"of_job": job_id}).scalar()


def has_one(tx: Transaction, worker: str) -> bool:
    """Whether a worker has had a suspect under way for a short time only."""
    tx.lock("suspects", worker)  # or of two that begin at once neither would see the other
    under_way = (
        sa.select(JOBS.c.id)
        .join(SUSPECTS, SUSPECTS.c.job_id == JOBS.c.id)
        .where(
            JOBS.c.state == JobState.RUNNING, JOBS.c.worker == worker, SUSPECTS.c.claimed_at > tx.now - ALONE_SECONDS
        )
    )
    return tx.rows.execute(under_way.limit(1)).one_or_none() is not None


def claim(tx: Transaction, job_id: str, at: float | None) -> None:
    """Take note since when a worker has a job in hand that may be a suspect; None when it has given it back."""
    tx.rows.execute(_CLAIM, {"of_job": job_id, "claimed_at": at})


def clear(tx: Transaction, job_id: str) -> None:
    """Suspect a job no longer."""
    tx.rows.execute(_CLEAR, {"of_job": job_id})
