"""The job engine on a database, for any number of receivers and workers: it takes jobs in, and answers questions.

`DurableEngine` implements the protocols of `protocols`. The functions of `jobs` change jobs; `worker` runs them. Jobs
that arrive at the same moment are stored together (`Arrivals`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Never

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from bot.domain.errors import OtherVersionError, QueueError
from bot.domain.job import Job, JobState
from bot.queue import transitions
from bot.queue.protocols import MOST_ENDED, Owed
from bot.queue.records import (
    Backlog,
    JobRecord,
    RecordedEnding,
    RunQuery,
    Signal,
    Stored,
    WeekCost,
    decode_job,
    week_of,
)
from bot.queue.store import (
    JOBS,
    OWED,
    RECORDS,
    RUN_LOGS,
    SIGNALS,
    TOLD,
    Enqueued,
    Gathering,
    JobStore,
    Transaction,
    insert,
    insert_rows,
    try_locks,
)

log = logging.getLogger(__name__)
_DAY_SECONDS = 24 * 3600.0
_SWEPT_AT_ONCE = 500  # bound parameters are limited

UNDER_WAY: ContextVar[Leg | Owed | None] = ContextVar("under way", default=None)
"""The leg or report of the current task: a worker that was taken for dead records nothing more of its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """The right of one worker to run a job, until another one has it.

    Attributes:
        job_id: the job.
        number: how often the job was given to a queue.
        worker: which one.
    """

    job_id: str
    number: int
    worker: str


class DurableEngine:
    """Implements `JobEngine` for any number of receivers and workers on one database.

    Args:
        store: the database; the caller closes it.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._run = store.run
        self._arrivals = Arrivals(store)

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        """See `Inbox.accept`."""
        return await self._arrivals.accept(job, held_seconds)

    async def unhold(self, job_id: str) -> None:
        """See `Inbox.unhold`."""
        delayed = await self._run(lambda tx: transitions.unhold(tx, job_id))
        if delayed is not None:
            with self._store.checked():
                await self._store.client.set_workflow_delay_async(delayed, delay_seconds=0)
                # A worker looks once a second for what is delayed no longer, and every command would wait for that.
                await asyncio.to_thread(self._store.client._sys_db.transition_delayed_workflows)  # noqa: SLF001 - no other way in 3.4

    async def restore(self, job: Job, record: JobRecord, *, until: float) -> None:
        """See `Inbox.restore`."""
        await self._run(lambda tx: transitions.restore(tx, job, record, until))

    async def cancel(self, job_id: str, state: JobState, reason: str, *, ending: RecordedEnding | None = None) -> bool:
        """See `Inbox.cancel`."""
        return await self._run(lambda tx: transitions.cancel(tx, job_id, state, reason, ending))

    async def send(self, job_id: str, sent: Signal) -> bool:
        """See `Signals.send`."""
        return await self._run(lambda tx: transitions.send(tx, job_id, sent))

    async def wake(self, job_id: str) -> bool:
        """See `Signals.wake`."""
        return await self._run(lambda tx: transitions.wake(tx, job_id))

    async def record(self, job_id: str) -> JobRecord:
        """See `JobRecords.record`."""
        return await self._run(lambda tx: transitions.record(tx, job_id))

    async def update(self, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """See `JobRecords.update`.

        Raises:
            LeaseLostError: this task works for the job, which another worker has by now.
        """
        work = UNDER_WAY.get()

        def changed(tx: Transaction) -> JobRecord:
            if work is not None and work.job_id == job_id:
                _check(tx, work)
            return transitions.update(tx, job_id, change)

        return await self._run(changed)

    async def check_work(self) -> None:
        """Check that the job of the current task is its worker's still; other tasks pass.

        Raises:
            LeaseLostError: another worker has it by now.
        """
        work = UNDER_WAY.get()
        if work is not None:
            await self._run(lambda tx: _check(tx, work))

    async def get(self, job_id: str) -> Stored | None:
        """See `JobIndex.get`."""
        found = sa.select(JOBS).where(JOBS.c.id == job_id, JOBS.c.body.is_not(None))
        row = await self._run(lambda tx: tx.rows.execute(found).one_or_none())
        try:
            return None if row is None else _stored(row)
        except OtherVersionError as error:
            raise OtherVersionError(f"{job_id}: {error}") from error

    async def of_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[Stored, ...]:
        """See `JobIndex.of_thread`."""
        return await self._run(lambda tx: _of_thread(tx, repo_id, number, limit))

    async def is_live(self, repo_id: int, number: int) -> bool:
        """See `JobIndex.is_live`."""
        live = sa.exists().where(*_work_in(repo_id, number), JOBS.c.state.in_(Backlog.STATES))
        return await self._run(lambda tx: bool(tx.rows.execute(sa.select(live)).scalar()))

    async def live_of(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[Stored, ...]:
        """See `JobIndex.live_of`."""
        live = sa.select(JOBS).where(*_LIVE_WORK, JOBS.c.installation == installation).order_by(JOBS.c.seq)
        live = live.where(JOBS.c.repo_id.in_(repo_ids)) if repo_ids else live
        return await self._run(lambda tx: _readable(tx.rows.execute(live)))

    async def live_ids(self) -> frozenset[str]:
        """See `JobIndex.live_ids`."""
        live = sa.select(JOBS.c.id).where(*_LIVE_WORK)
        return await self._run(lambda tx: frozenset(tx.rows.execute(live).scalars()))

    async def backlog(self) -> Backlog:
        """See `JobIndex.backlog`."""
        return await self._run(_backlog)

    async def counts(self) -> dict[JobState, int]:
        """See `JobIndex.counts`."""
        counted = sa.select(JOBS.c.state, sa.func.count()).group_by(JOBS.c.state)
        found: dict[JobState, int] = dict(await self._run(lambda tx: tx.rows.execute(counted).all()))
        return {state: found.get(state, 0) for state in JobState}

    async def runs(self, query: RunQuery) -> tuple[Stored, ...]:
        """See `RunHistory.runs`."""
        return await self._store.read(lambda tx: _runs(tx, query))

    async def pulse(self) -> str:
        """See `RunHistory.pulse`."""
        return await self._store.read(_pulse)

    async def keep_log(self, job: Job, body: bytes, *, cost_usd: float | None) -> None:
        """See `RunHistory.keep_log`."""

        def keep(tx: Transaction) -> None:
            values = {"week": week_of(tx.now), "cost_usd": cost_usd, "body": body}
            row = insert(tx, RUN_LOGS).values(
                job_id=job.id, repo_id=job.repo.id, repository=job.repo.full_name, **values
            )
            tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id"], set_=values))

        await self._run(keep)

    async def log_of(self, job_id: str) -> bytes | None:
        """See `RunHistory.log_of`."""
        body = sa.select(RUN_LOGS.c.body).where(RUN_LOGS.c.job_id == job_id)
        return await self._store.read(lambda tx: tx.rows.execute(body).scalar())

    async def costs(self, since: int, repo_ids: Collection[int] | None = None) -> tuple[WeekCost, ...]:
        """See `RunHistory.costs`."""
        costs = (
            sa.select(
                sa.func.max(RUN_LOGS.c.repository).label("repository"),
                RUN_LOGS.c.week,
                sa.func.count().label("runs"),
                sa.func.coalesce(sa.func.sum(RUN_LOGS.c.cost_usd), 0.0).label("cost_usd"),
                (sa.func.count() - sa.func.count(RUN_LOGS.c.cost_usd)).label("unknown"),
            )
            .where(RUN_LOGS.c.week >= since)
            .group_by(RUN_LOGS.c.week, RUN_LOGS.c.repo_id)
            .order_by(RUN_LOGS.c.week.desc(), "repository")
        )
        if repo_ids is not None:
            costs = costs.where(RUN_LOGS.c.repo_id.in_(repo_ids))
        return await self._store.read(lambda tx: tuple(WeekCost(**row) for row in tx.rows.execute(costs).mappings()))

    async def check(self) -> None:
        """See `EngineUpkeep.check`."""
        await self._run(_write_something)

    async def watch(self) -> Never:
        """See `JobStore.watch`."""
        await self._store.watch()

    async def sweep(self, keep_days: float, *, most: int = MOST_ENDED) -> int:
        """See `EngineUpkeep.sweep`."""
        await self._sweep_workflows()
        before, count = self._store.clock() - keep_days * _DAY_SECONDS, 0
        # In several transactions: the only writer of an SQLite file must not be busy for long.
        while some := await self._run(lambda tx: _sweep(tx, before, most, _SWEPT_AT_ONCE)):
            count += some
        return count

    async def _sweep_workflows(self) -> None:
        """Delete the workflows that ended a day ago, which nobody asks about: the jobs' rows say all that is known."""
        before = datetime.fromtimestamp(self._store.clock() - _DAY_SECONDS, UTC).isoformat()
        client = self._store.client
        while True:
            with self._store.checked():
                old = await client.list_workflows_async(
                    completed_before=before, limit=_SWEPT_AT_ONCE, load_input=False, load_output=False
                )
                await client.delete_workflows_async([each.workflow_id for each in old])
            if len(old) < _SWEPT_AT_ONCE:
                return


_UNLIMITED = 2**31 - 1  # SQLite takes no offset without a limit
_LIVE_WORK = (JOBS.c.lane == "work", JOBS.c.state.in_(Backlog.STATES))

# Written so that no index of lanes fits: nearly all jobs have this one, and the order must come from an index.
_IS_WORK = JOBS.c.lane.concat("") == "work"
_FEW = 1_000


def _of_thread(tx: Transaction, repo_id: int, number: int, limit: int) -> tuple[Stored, ...]:
    # By state: those who may comment can have any number of jobs queued and refused, and must not crowd out others.
    place = sa.func.row_number().over(partition_by=JOBS.c.state, order_by=JOBS.c.seq.desc())
    places = (
        sa.select(JOBS, place.label("place")).where(*_work_in(repo_id, number), JOBS.c.body.is_not(None)).subquery()
    )
    return _readable(tx.rows.execute(sa.select(places).where(places.c.place <= limit).order_by(places.c.seq.desc())))


def _work_in(repo_id: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return JOBS.c.lane == "work", JOBS.c.repo_id == repo_id, JOBS.c.thread == number


def _backlog(tx: Transaction) -> Backlog:
    new = sa.case(((JOBS.c.state == JobState.QUEUED) & JOBS.c.begun_at.is_(None), JOBS.c.enqueued_at))
    counted = sa.select(JOBS.c.state, sa.func.count(), sa.func.min(new)).group_by(JOBS.c.state)
    found = {row[0]: row[1:] for row in tx.rows.execute(counted.where(JOBS.c.state.in_(Backlog.STATES)))}
    oldest = found.get(JobState.QUEUED, (0, None))[1]
    return Backlog(
        by_state={state: found.get(state, (0, None))[0] for state in Backlog.STATES},
        oldest_seconds=0.0 if oldest is None else max(0.0, tx.now - oldest),
    )


def _runs(tx: Transaction, query: RunQuery) -> tuple[Stored, ...]:
    """Return the selected work, newest first; ended work alone by the time of its end."""
    found, order = sa.select(JOBS).where(_IS_WORK, JOBS.c.body.is_not(None)), [JOBS.c.seq.desc()]
    live = query.states & frozenset(Backlog.STATES)
    if query.states and live == query.states:
        found = found.where(JOBS.c.seq.in_(sa.select(JOBS.c.seq).where(JOBS.c.state.in_(live))))
    elif query.states:
        found = found.where(JOBS.c.state.concat("").in_(query.states))
    if query.states and not live:
        found, order = found.where(JOBS.c.finished_at.is_not(None)), [JOBS.c.finished_at.desc(), *order]
    if query.repository:
        name = query.repository.casefold()
        found = found.where(JOBS.c.repository == name if "/" in name else JOBS.c.seq.in_(_with_half(name)))
    if query.person:
        found = found.where(JOBS.c.actor == query.person.casefold())
    if query.repo_ids is not None:
        found = found.where(_seen(tx, query.repo_ids))
    return _readable(tx.rows.execute(found.order_by(*order).offset(query.offset).limit(query.limit)))


def _with_half(half: str) -> sa.Select[tuple[int]]:
    """Select the jobs of all repositories of a name or owner, among the few names in the index."""
    names = sa.select(sa.func.min(JOBS.c.repository).label("name")).cte("names", recursive=True)
    after = sa.select(sa.func.min(JOBS.c.repository)).where(JOBS.c.repository > names.c.name).scalar_subquery()
    names = names.union_all(sa.select(after).where(names.c.name.is_not(None)))
    fits = names.c.name.endswith(f"/{half}", autoescape=True) | names.c.name.startswith(f"{half}/", autoescape=True)
    return sa.select(JOBS.c.seq).where(JOBS.c.repository.in_(sa.select(names.c.name).where(fits)))


def _seen(tx: Transaction, repo_ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Select the work in some repositories."""
    # Little work is selected by its rows: an index of the order would be read past nearly all others.
    there = JOBS.c.repo_id.in_(repo_ids)
    few = tx.rows.execute(sa.select(JOBS.c.seq).where(JOBS.c.lane == "work", there).limit(_FEW + 1)).scalars().all()
    return JOBS.c.seq.in_(few) if len(few) <= _FEW else there


def _pulse(tx: Transaction) -> str:
    live = sa.select(JOBS.c.seq, JOBS.c.state, JOBS.c.leg, JOBS.c.attempts)
    live = live.where(_IS_WORK, JOBS.c.state.in_(Backlog.STATES))
    stored, ended = sa.select(sa.func.max(JOBS.c.seq)), sa.select(sa.func.max(JOBS.c.finished_at))
    ended = ended.where(JOBS.c.body.is_not(None))  # as its index has it
    seen = [sorted(map(tuple, tx.rows.execute(live))), *(tx.rows.execute(each).scalar() for each in (stored, ended))]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def _readable(found: Iterable[sa.Row[Any]]) -> tuple[Stored, ...]:
    """Return the jobs that this version can read: one that it cannot read must not block its thread's other jobs."""
    kept: list[Stored] = []
    for row in found:
        try:
            kept.append(_stored(row))
        except OtherVersionError:
            log.warning("the stored job %s cannot be read by this version, and is passed over", row.id)
    return tuple(kept)


def _stored(row: sa.Row[Any]) -> Stored:
    return Stored(
        job=decode_job(row.body),
        state=JobState(row.state),
        reason=row.reason,
        attempts=row.attempts,
        enqueued_at=row.enqueued_at,
        finished_at=row.finished_at,
        until=row.waits_until,
    )


def _sweep(tx: Transaction, before: float, most: int, limit: int) -> int:
    """Forget all but the ids of jobs that ended before a time, and of the oldest ended ones beyond `most`.

    At most `limit` at once; return their number.
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


def _check(tx: Transaction, work: Leg | Owed) -> None:
    if isinstance(work, Owed):
        transitions.check_owed(tx, work)
    else:
        transitions.check_ours(tx, work.job_id, work.number, work.worker)


def _write_something(tx: Transaction) -> None:
    """Write a row and take it out again, so that a database that can only be read is found out."""
    row = (TOLD.c.repo_id == 0) & (TOLD.c.thread == 0)
    tx.lock("check")
    tx.rows.execute(TOLD.delete().where(row))
    tx.rows.execute(TOLD.insert().values(repo_id=0, thread=0, cause="the database can be written", until=tx.now))


class Arrivals:
    """Stores jobs; those that come while others are being stored are stored together.

    Args:
        store: the database.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting = Gathering[Arrival, bool | None](store.of_arrivals, self._accept)

    async def accept(self, job: Job, held_seconds: float) -> bool:
        """See `Inbox.accept`."""
        stored = None
        # Where the jobs of a repository are bounded, storing one may change those of all its threads.
        if not transitions.is_bounded(self._store, job.lane):
            values = transitions.row_of(job, self._store.clock(), held_seconds)
            stored = await self._waiting.put(Arrival(job=job, values=values, held_seconds=held_seconds))
        if stored is None:
            return await self._store.run(lambda tx: transitions.accept(tx, job, held_seconds))
        return stored

    def _accept(self, arrivals: Sequence[Arrival]) -> Sequence[bool | None]:
        try:
            return self._store.run_here(lambda tx: accept_together(tx, arrivals))
        except QueueError as error:
            # What a lost connection has stored is unknown. All else stored nothing, and one job may be at fault.
            cause = error.__cause__
            if len(arrivals) == 1 or (isinstance(cause, DBAPIError) and cause.connection_invalidated):
                raise
            return [None] * len(arrivals)


# Asked with LIMIT, for each job by itself: PostgreSQL would turn EXISTS into one look at all jobs that have not ended.
_BUSY = (
    "coalesce((SELECT true FROM jobs AS other WHERE other.lane = new.lane AND other.repo_id = new.repo_id "
    "AND other.thread = new.thread AND other.state IN ('queued', 'running') LIMIT 1), false)"
)
_COMPUTED = (("released", f"NOT {_BUSY}"), ("leg", f"CASE WHEN {_BUSY} THEN 0 ELSE 1 END"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job that is to be stored.

    Attributes:
        job: the job.
        values: its row, as `transitions.row_of` makes it.
        held_seconds: how long it is held back from the workers.
    """

    job: Job
    values: dict[str, str | int | float | None]
    held_seconds: float

    @property
    def lock(self) -> str:
        """Name the lock on its thread."""
        return transitions.lock_of(self.job.lane, self.job.repo.id, self.job.thread.key)


def accept_together(tx: Transaction, arrivals: Sequence[Arrival]) -> list[bool | None]:
    """Store jobs, and have them run when it is their turn.

    The statements are few, however many the jobs: a receiver under load spends most of its time on statements, not on
    the disk. Of two jobs that could conflict, one is left to `transitions.accept`.

    Returns:
        For each whether it is new, as `transitions.accept` says it; None for one that has to be accepted by itself.
    """
    apart = _apart(arrivals)
    free = try_locks(tx.rows, [each.lock for each in apart])
    chosen = [each for each, is_free in zip(apart, free, strict=True) if is_free]
    if not chosen:
        return [None] * len(arrivals)
    stored = insert_rows(tx.rows, "jobs", [each.values for each in chosen], _COMPUTED, " RETURNING id, released")
    released = {row.id: bool(row.released) for row in stored}
    tx.enqueue_all([_enqueued(each) for each in chosen if released.get(each.job.id)])
    for each in chosen:
        if released.get(each.job.id) is False:
            transitions.release_next(tx, each.job.lane, each.job.repo.id, each.job.thread.key)
    ours = {id(each) for each in chosen}
    return [each.job.id in released if id(each) in ours else None for each in arrivals]


def _apart(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return the arrivals that share no thread and no id with an earlier one."""
    seen, apart = set[tuple[str, str]](), list[Arrival]()
    for each in arrivals:
        marks = {("id", each.job.id), ("delivery", each.job.delivery_id), ("lock", each.lock)}
        if seen.isdisjoint(marks):
            apart.append(each)
        seen |= marks
    return apart


def _enqueued(arrival: Arrival) -> Enqueued:
    job = arrival.job
    return Enqueued(
        workflow=transitions.RUN,
        id=transitions.workflow_id(job.id, 1),
        queue=transitions.queue_name(job.lane),
        partition=transitions.share_of(job.lane, job.installation, job.actor.id),
        delay=arrival.held_seconds,
        args=(job.id, 1),
    )
