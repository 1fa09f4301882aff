"""The job engine on a database, for any number of receivers and workers. Start at `DurableEngine`.

`transitions` changes jobs, `worker` runs them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from operator import ne
from typing import Any, Never

import sqlalchemy as sa

from agent_runtime import Usage
from bot.domain.errors import OtherVersionError
from bot.domain.job import LIVE_STATES, Job, JobState
from bot.queue import transitions
from bot.queue.protocols import MAX_ENDED, PendingReport
from bot.queue.records import Backlog, RunQuery, Signal, StoredJob, decode_job, encode_job, week_of
from bot.queue.store import (
    JOBS,
    NOTICES,
    RECORDS,
    REPORTS,
    RUN_LOGS,
    SIGNALS,
    JobStore,
    Transaction,
    insert,
)

log = logging.getLogger(__name__)
_DAY_SECONDS = 24 * 3600.0
_SWEPT_AT_ONCE = 500  # bound parameters are limited

CURRENT_WORK: ContextVar[Lease | PendingReport | None] = ContextVar("current work", default=None)
"""The lease or report of the current task, so that a worker that lost it records nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's right to run a job.

    Attributes:
        number: counts how often the job was enqueued.
    """

    job_id: str
    number: int
    worker: str


class DurableEngine:
    """Implements `JobEngine` on a database, which the caller closes.

    Args:
        has_progress: whether a changed record has new progress, which clears a job of its workers' deaths.
    """

    def __init__(self, store: JobStore, *, has_progress: Callable[[str | None, str], bool] = ne) -> None:
        self._store, self._has_progress = store, has_progress
        self._run = store.run

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        return await self._run(lambda tx: transitions.accept(tx, job, held_seconds))

    async def amend(self, job: Job) -> None:
        work = CURRENT_WORK.get()

        def amend(tx: Transaction) -> None:
            if work is not None:
                check_lease(tx, work)
            transitions.change(tx, job.id, body=encode_job(job))

        await self._run(amend)

    async def release_hold(self, job_id: str) -> None:
        workflow_id = await self._run(lambda tx: transitions.release_hold(tx, job_id))
        if workflow_id is not None:
            with self._store.map_errors():
                await self._store.workflows.end_delay(workflow_id)

    async def cancel(
        self,
        job_id: str,
        state: JobState,
        reason: str,
        *,
        record_ending: Callable[[str | None], str | None] | None = None,
    ) -> bool:
        return await self._run(lambda tx: transitions.cancel(tx, job_id, state, reason, record_ending))

    async def send(self, job_id: str, signal: Signal) -> bool:
        return await self._run(lambda tx: transitions.send(tx, job_id, signal))

    async def wake(self, job_id: str) -> bool:
        return await self._run(lambda tx: transitions.wake(tx, job_id))

    async def record(self, job_id: str) -> str | None:
        return await self._run(lambda tx: transitions.record(tx, job_id))

    async def update(self, job_id: str, change: Callable[[str | None], str]) -> None:
        """Update a job's record; see `JobRecords.update`.

        Raises:
            LeaseLostError: another worker has claimed the current task's job.
        """
        work = CURRENT_WORK.get()

        def update(tx: Transaction) -> None:
            if work is not None and work.job_id == job_id:
                check_lease(tx, work)
            transitions.update(tx, job_id, change, self._has_progress)

        await self._run(update)

    async def check_work(self) -> None:
        """Check that the current task still holds its lease.

        Raises:
            LeaseLostError: another worker has claimed the job.
        """
        work = CURRENT_WORK.get()
        if work is not None:
            await self._run(lambda tx: check_lease(tx, work))

    async def get(self, job_id: str) -> StoredJob | None:
        query = sa.select(JOBS).where(JOBS.c.id == job_id, JOBS.c.body.is_not(None))
        row = await self._run(lambda tx: tx.rows.execute(query).one_or_none())
        try:
            return None if row is None else _decode_row(row)
        except OtherVersionError as error:
            raise OtherVersionError(f"{job_id}: {error}") from error

    async def jobs_in_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[StoredJob, ...]:
        return await self._run(lambda tx: _jobs_in_thread(tx, repo_id, number, limit))

    async def is_live(self, repo_id: int, number: int) -> bool:
        live = sa.exists().where(*_is_work_in(repo_id, number), JOBS.c.state.in_(LIVE_STATES))
        return await self._run(lambda tx: bool(tx.rows.execute(sa.select(live)).scalar()))

    async def live_jobs(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[StoredJob, ...]:
        live = sa.select(JOBS).where(*_LIVE_WORK, JOBS.c.installation == installation).order_by(JOBS.c.seq)
        live = live.where(JOBS.c.repo_id.in_(repo_ids)) if repo_ids else live
        return await self._run(lambda tx: _decode_rows(tx.rows.execute(live)))

    async def live_ids(self) -> frozenset[str]:
        live = sa.select(JOBS.c.id).where(*_LIVE_WORK)
        return await self._run(lambda tx: frozenset(tx.rows.execute(live).scalars()))

    async def backlog(self) -> Backlog:
        return await self._run(_backlog)

    async def counts(self) -> dict[JobState, int]:
        query = sa.select(JOBS.c.state, sa.func.count()).group_by(JOBS.c.state)
        counts: dict[JobState, int] = dict(await self._run(lambda tx: tx.rows.execute(query).all()))
        return {state: counts.get(state, 0) for state in JobState}

    async def find_runs(self, query: RunQuery) -> tuple[StoredJob, ...]:
        return await self._store.read(lambda tx: _find_runs(tx, query))

    async def records(self, job_ids: Collection[str], *, containing: str) -> dict[str, str]:
        chosen = RECORDS.c.job_id.in_(job_ids), RECORDS.c.body.contains(containing, autoescape=True)
        query = sa.select(RECORDS.c.job_id, RECORDS.c.body).where(*chosen)
        return dict(await self._store.read(lambda tx: [(row.job_id, row.body) for row in tx.rows.execute(query)]))

    async def pulse(self) -> str:
        return await self._store.read(_pulse)

    async def save_log(self, job: Job, body: bytes, usage: Usage) -> None:
        def save(tx: Transaction) -> None:
            values = {"week": week_of(tx.now), "cost_usd": usage.cost_usd, "tokens": usage.total_tokens, "body": body}
            person = "" if job.is_from_event else job.actor.login
            row = insert(tx, RUN_LOGS).values(
                job_id=job.id, repo_id=job.repo.id, repository=job.repo.full_name, person=person, **values
            )
            tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id"], set_=values))

        await self._run(save)

    async def load_log(self, job_id: str) -> bytes | None:
        body = sa.select(RUN_LOGS.c.body).where(RUN_LOGS.c.job_id == job_id)
        return await self._store.read(lambda tx: tx.rows.execute(body).scalar())

    async def check(self) -> None:
        await self._run(_check_writable)

    async def watch(self) -> Never:
        await self._store.watch()

    async def sweep(self, keep_days: float, *, most: int = MAX_ENDED) -> int:
        with self._store.map_errors():
            await self._store.workflows.delete_completed(self._store.clock() - _DAY_SECONDS)
        before, count = self._store.clock() - keep_days * _DAY_SECONDS, 0
        # Short transactions, since SQLite has a single writer.
        while swept := await self._run(lambda tx: _sweep(tx, before, most, _SWEPT_AT_ONCE)):
            count += swept
        return count


_UNLIMITED = 2**31 - 1  # SQLite takes no offset without a limit
_LIVE_WORK = (JOBS.c.lane == "work", JOBS.c.state.in_(LIVE_STATES))

# An expression that matches no index: nearly all jobs have this lane, and the order must come from an index.
_IS_WORK = JOBS.c.lane.concat("") == "work"
_FEW = 1_000


def _jobs_in_thread(tx: Transaction, repo_id: int, number: int, limit: int) -> tuple[StoredJob, ...]:
    # Per state, because users can create any number of queued and refused jobs.
    rank = sa.func.row_number().over(partition_by=JOBS.c.state, order_by=JOBS.c.seq.desc())
    ranked = (
        sa.select(JOBS, rank.label("place")).where(*_is_work_in(repo_id, number), JOBS.c.body.is_not(None)).subquery()
    )
    return _decode_rows(tx.rows.execute(sa.select(ranked).where(ranked.c.place <= limit).order_by(ranked.c.seq.desc())))


def _is_work_in(repo_id: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return JOBS.c.lane == "work", JOBS.c.repo_id == repo_id, JOBS.c.thread == number


def _backlog(tx: Transaction) -> Backlog:
    new = sa.case(((JOBS.c.state == JobState.QUEUED) & JOBS.c.begun_at.is_(None), JOBS.c.enqueued_at))
    query = sa.select(JOBS.c.state, sa.func.count(), sa.func.min(new)).group_by(JOBS.c.state)
    rows = {row[0]: row[1:] for row in tx.rows.execute(query.where(JOBS.c.state.in_(LIVE_STATES)))}
    oldest = rows.get(JobState.QUEUED, (0, None))[1]
    return Backlog(
        by_state={state: rows.get(state, (0, None))[0] for state in LIVE_STATES},
        oldest_seconds=0.0 if oldest is None else max(0.0, tx.now - oldest),
    )


def _find_runs(tx: Transaction, query: RunQuery) -> tuple[StoredJob, ...]:
    selected, order = sa.select(JOBS).where(_IS_WORK, JOBS.c.body.is_not(None)), [JOBS.c.seq.desc()]
    live = query.states & frozenset(LIVE_STATES)
    if query.states and live == query.states:
        selected = selected.where(JOBS.c.seq.in_(sa.select(JOBS.c.seq).where(JOBS.c.state.in_(live))))
    elif query.states:
        selected = selected.where(JOBS.c.state.concat("").in_(query.states))
    if query.states and not live:
        selected, order = selected.where(JOBS.c.finished_at.is_not(None)), [JOBS.c.finished_at.desc(), *order]
    if query.repository:
        name = query.repository.casefold()
        selected = selected.where(JOBS.c.repository == name if "/" in name else JOBS.c.seq.in_(_in_repository(name)))
    if query.person:
        selected = selected.where(JOBS.c.actor == query.person.casefold())
    if query.repo_ids is not None:
        selected = selected.where(_in_repositories(tx, query.repo_ids))
    return _decode_rows(tx.rows.execute(selected.order_by(*order).offset(query.offset).limit(query.limit)))


def _in_repository(part: str) -> sa.Select[tuple[int]]:
    names = sa.select(sa.func.min(JOBS.c.repository).label("name")).cte("names", recursive=True)
    after = sa.select(sa.func.min(JOBS.c.repository)).where(JOBS.c.repository > names.c.name).scalar_subquery()
    names = names.union_all(sa.select(after).where(names.c.name.is_not(None)))
    matches = names.c.name.endswith(f"/{part}", autoescape=True) | names.c.name.startswith(f"{part}/", autoescape=True)
    return sa.select(JOBS.c.seq).where(JOBS.c.repository.in_(sa.select(names.c.name).where(matches)))


def _in_repositories(tx: Transaction, repo_ids: Collection[int]) -> sa.ColumnElement[bool]:
    # Few rows are selected by key; otherwise the ordered index would be scanned past nearly all others.
    chosen = JOBS.c.repo_id.in_(repo_ids)
    few = tx.rows.execute(sa.select(JOBS.c.seq).where(JOBS.c.lane == "work", chosen).limit(_FEW + 1)).scalars().all()
    return JOBS.c.seq.in_(few) if len(few) <= _FEW else chosen


def _pulse(tx: Transaction) -> str:
    live = sa.select(JOBS.c.seq, JOBS.c.state, JOBS.c.leg, JOBS.c.attempts)
    live = live.where(_IS_WORK, JOBS.c.state.in_(LIVE_STATES))
    stored, ended = sa.select(sa.func.max(JOBS.c.seq)), sa.select(sa.func.max(JOBS.c.finished_at))
    ended = ended.where(JOBS.c.body.is_not(None))  # as its index has it
    state = [sorted(map(tuple, tx.rows.execute(live))), *(tx.rows.execute(query).scalar() for query in (stored, ended))]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _decode_rows(rows: Iterable[sa.Row[Any]]) -> tuple[StoredJob, ...]:
    """Decode rows; skip jobs that this version cannot read, so that they do not block others of their thread."""
    jobs: list[StoredJob] = []
    for row in rows:
        try:
            jobs.append(_decode_row(row))
        except OtherVersionError:
            log.warning("this version cannot read the stored job %s and skips it", row.id)
    return tuple(jobs)


def _decode_row(row: sa.Row[Any]) -> StoredJob:
    return StoredJob(
        job=decode_job(row.body),
        state=JobState(row.state),
        reason=row.reason,
        attempts=row.attempts,
        enqueued_at=row.enqueued_at,
        finished_at=row.finished_at,
        until=row.waits_until,
    )


def _sweep(tx: Transaction, before: float, most: int, limit: int) -> int:
    """Delete the texts of old or excess ended jobs; return their number, at most `limit`."""
    reported = sa.select(REPORTS.c.job_id)
    ended = sa.select(JOBS.c.id).where(
        JOBS.c.body.is_not(None), JOBS.c.finished_at.is_not(None), JOBS.c.id.not_in(reported)
    )
    newest_first = ended.order_by(JOBS.c.finished_at.desc(), JOBS.c.seq.desc())
    excess = newest_first.offset(most).limit(_UNLIMITED)
    expired = ended.where(sa.or_(JOBS.c.finished_at < before, JOBS.c.id.in_(excess)))
    ids = tx.rows.execute(expired.limit(limit)).scalars().all()
    tx.rows.execute(RECORDS.delete().where(RECORDS.c.job_id.in_(ids)))
    tx.rows.execute(SIGNALS.delete().where(SIGNALS.c.job_id.in_(ids)))
    tx.rows.execute(RUN_LOGS.delete().where(RUN_LOGS.c.job_id.in_(ids)))
    tx.rows.execute(JOBS.update().where(JOBS.c.id.in_(ids)).values(body=None, repository=None, actor=None))
    return len(ids)


def check_lease(tx: Transaction, work: Lease | PendingReport) -> None:
    if isinstance(work, PendingReport):
        transitions.check_report(tx, work)
    else:
        transitions.check_lease(tx, work.job_id, work.number, work.worker)


def _check_writable(tx: Transaction) -> None:
    """Insert and delete a row, to detect a read-only database."""
    row = (NOTICES.c.repo_id == 0) & (NOTICES.c.thread == 0)
    tx.lock("check")
    tx.rows.execute(NOTICES.delete().where(row))
    tx.rows.execute(NOTICES.insert().values(repo_id=0, thread=0, cause="the database can be written", until=tx.now))
