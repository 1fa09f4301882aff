"""Store the jobs that arrive together: in a few statements, however many they are, and in one transaction.

A receiver under load spends most of its time on statements, not on the disk. Where two jobs of a transaction could be
in each other's way, one of them is left to `jobs.accept`, and so is each job of a transaction that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from bot.domain.errors import QueueError
from bot.domain.job import Job
from bot.engine.durable import bulk, jobs, turns
from bot.engine.durable.bulk import Enqueued
from bot.engine.durable.gathering import Gathering
from bot.engine.durable.store import JobStore, Transaction

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
        values: its row, as `jobs.row_of` makes it.
        held_seconds: how long it is held back from the workers.
    """

    job: Job
    values: dict[str, str | int | float | None]
    held_seconds: float

    @property
    def lock(self) -> str:
        """What is locked while it is stored."""
        return turns.lock_of(self.job.lane, self.job.repo.id, self.job.thread.key)


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
        if not turns.is_bounded(self._store, job.lane):
            values = jobs.row_of(job, self._store.clock(), held_seconds)
            stored = await self._waiting.put(Arrival(job=job, values=values, held_seconds=held_seconds))
        if stored is None:
            return await self._store.run(lambda tx: jobs.accept(tx, job, held_seconds))
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


def accept_together(tx: Transaction, arrivals: Sequence[Arrival]) -> list[bool | None]:
    """Store jobs, and have them run when it is their turn.

    Returns:
        For each whether it is new, as `jobs.accept` says it; None for one that has to be accepted by itself.
    """
    apart = _apart(arrivals)
    free = bulk.try_locks(tx.rows, [each.lock for each in apart])
    chosen = [each for each, is_free in zip(apart, free, strict=True) if is_free]
    if not chosen:
        return [None] * len(arrivals)
    stored = bulk.put(tx.rows, "jobs", [each.values for each in chosen], _COMPUTED, " RETURNING id, released")
    released = {row.id: bool(row.released) for row in stored}
    tx.enqueue_all([_enqueued(each) for each in chosen if released.get(each.job.id)])
    for each in chosen:
        if released.get(each.job.id) is False:
            turns.release_next(tx, each.job.lane, each.job.repo.id, each.job.thread.key)
    ours = {id(each) for each in chosen}
    return [each.job.id in released if id(each) in ours else None for each in arrivals]


def _apart(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Those that have neither a thread nor an id in common with one before."""
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
        workflow=turns.RUN,
        id=turns.workflow_id(job.id, 1),
        queue=turns.queue_of(job.lane),
        partition=turns.share_of(job.lane, job.installation, job.actor.id),
        delay=arrival.held_seconds,
        args=(job.id, 1),
    )
