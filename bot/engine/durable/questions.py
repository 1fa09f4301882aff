"""Questions about jobs, and forgetting old ones: one function each, all within the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa

from bot.domain.errors import OtherVersionError
from bot.domain.job import JobState
from bot.engine.durable.store import Transaction
from bot.engine.durable.tables import JOBS, OWED, RECORDS, RUN_LOGS, SIGNALS
from bot.engine.records import Backlog, Stored, loaded

log = logging.getLogger(__name__)

_UNLIMITED = 2**31 - 1  # SQLite takes no offset without a limit
_LIVE = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING)


def get(tx: Transaction, job_id: str) -> Stored | None:
    """One job, or None when it is not known, or so old that only its id is."""
    row = tx.rows.execute(sa.select(JOBS).where(JOBS.c.id == job_id, JOBS.c.body.is_not(None))).one_or_none()
    if row is None:
        return None
    try:
        return _stored(row)
    except OtherVersionError as error:
        raise OtherVersionError(f"{job_id}: {error}") from error


def of_thread(tx: Transaction, repo_id: int, number: int, limit: int) -> tuple[Stored, ...]:
    """The newest pieces of work of a thread in each state, newest first."""
    # By state: those who may comment can have any number of jobs queued and refused, and must not crowd out others.
    place = sa.func.row_number().over(partition_by=JOBS.c.state, order_by=JOBS.c.seq.desc())
    places = (
        sa.select(JOBS, place.label("place")).where(*_work_in(repo_id, number), JOBS.c.body.is_not(None)).subquery()
    )
    return readable(tx.rows.execute(sa.select(places).where(places.c.place <= limit).order_by(places.c.seq.desc())))


def is_live(tx: Transaction, repo_id: int, number: int) -> bool:
    """Whether any work of a thread has not ended."""
    found = sa.exists().where(*_work_in(repo_id, number), JOBS.c.state.in_(_LIVE))
    return bool(tx.rows.execute(sa.select(found)).scalar())


def live_of(tx: Transaction, installation: int, repo_ids: Collection[int]) -> tuple[Stored, ...]:
    """The work of an installation that has not ended, oldest first; of some repositories when any are named."""
    live = sa.select(JOBS).where(JOBS.c.lane == "work", JOBS.c.state.in_(_LIVE), JOBS.c.installation == installation)
    live = live.where(JOBS.c.repo_id.in_(repo_ids)) if repo_ids else live
    return readable(tx.rows.execute(live.order_by(JOBS.c.seq)))


def live_ids(tx: Transaction) -> frozenset[str]:
    """The ids of all work that has not ended."""
    live = sa.select(JOBS.c.id).where(JOBS.c.lane == "work", JOBS.c.state.in_(_LIVE))
    return frozenset(tx.rows.execute(live).scalars())


def backlog(tx: Transaction) -> Backlog:
    """How much is to be done, by the index of states."""
    new = sa.case(((JOBS.c.state == JobState.QUEUED) & JOBS.c.begun_at.is_(None), JOBS.c.enqueued_at))
    counted = sa.select(JOBS.c.state, sa.func.count(), sa.func.min(new)).group_by(JOBS.c.state)
    found = {row[0]: row[1:] for row in tx.rows.execute(counted.where(JOBS.c.state.in_(Backlog.STATES)))}
    oldest = found.get(JobState.QUEUED, (0, None))[1]
    return Backlog(
        by_state={state: found.get(state, (0, None))[0] for state in Backlog.STATES},
        oldest_seconds=0.0 if oldest is None else max(0.0, tx.now - oldest),
    )


def counts(tx: Transaction) -> dict[JobState, int]:
    """How many jobs are in each state, the empty ones too."""
    counted = sa.select(JOBS.c.state, sa.func.count()).group_by(JOBS.c.state)
    found: dict[JobState, int] = dict(tx.rows.execute(counted).all())
    return {state: found.get(state, 0) for state in JobState}


def sweep(tx: Transaction, before: float, most: int, limit: int) -> int:
    """Forget all but the ids of some jobs: of those that ended before some time, and of the oldest ended beyond `most`.

    Gives back how many they were, at most `limit`; 0 when no more.
    """
    owed = sa.select(OWED.c.job_id)
    ended = sa.select(JOBS.c.id).where(
        JOBS.c.body.is_not(None), JOBS.c.finished_at.is_not(None), JOBS.c.id.not_in(owed)
    )
    newest_first = ended.order_by(JOBS.c.finished_at.desc(), JOBS.c.seq.desc())
    beyond = newest_first.offset(most).limit(_UNLIMITED)
    over = ended.where(sa.or_(JOBS.c.finished_at < before, JOBS.c.id.in_(beyond)))
    old = tx.rows.execute(over.limit(limit)).scalars().all()
    tx.rows.execute(RECORDS.delete().where(RECORDS.c.job_id.in_(old)))
    tx.rows.execute(SIGNALS.delete().where(SIGNALS.c.job_id.in_(old)))
    tx.rows.execute(RUN_LOGS.delete().where(RUN_LOGS.c.job_id.in_(old)))
    tx.rows.execute(JOBS.update().where(JOBS.c.id.in_(old)).values(body=None, repository=None, actor=None))
    return len(old)


def _work_in(repo_id: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return JOBS.c.lane == "work", JOBS.c.repo_id == repo_id, JOBS.c.thread == number


def readable(found: Iterable[sa.Row[Any]]) -> tuple[Stored, ...]:
    """Those that this version can read: one that it cannot must not keep a thread's other jobs from being steered."""
    kept: list[Stored] = []
    for row in found:
        try:
            kept.append(_stored(row))
        except OtherVersionError:
            log.warning("the stored job %s cannot be read by this version, and is passed over", row.id)
    return tuple(kept)


def _stored(row: sa.Row[Any]) -> Stored:
    return Stored(
        job=loaded(row.body),
        state=JobState(row.state),
        reason=row.reason,
        attempts=row.attempts,
        enqueued_at=row.enqueued_at,
        finished_at=row.finished_at,
        until=row.waits_until,
    )
