"""The engine as its users see it, over the store; `worker` runs the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Never

from bot.domain.job import Job, JobState
from bot.engine.durable import history, jobs, questions
from bot.engine.durable.arrivals import Arrivals
from bot.engine.durable.store import JobStore, Transaction
from bot.engine.durable.tables import TOLD
from bot.engine.job_record import JobRecord, RecordedEnding
from bot.engine.owed_endings import Owed
from bot.engine.protocols import MOST_ENDED
from bot.engine.records import Backlog, RunQuery, Signal, Stored, WeekCost

_DAY_SECONDS = 24 * 3600.0
_SWEPT_AT_ONCE = 500  # bound parameters are limited


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


UNDER_WAY: ContextVar[Leg | Owed | None] = ContextVar("under way", default=None)
"""What the current task works for: a worker that was taken for dead records nothing more of its jobs."""


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
        delayed = await self._run(lambda tx: jobs.unhold(tx, job_id))
        if delayed is not None:
            with self._store.checked():
                await self._store.client.set_workflow_delay_async(delayed, delay_seconds=0)
                # A worker looks once a second for what is delayed no longer, and every command would wait for that.
                await asyncio.to_thread(self._store.client._sys_db.transition_delayed_workflows)  # noqa: SLF001 - no other way in 3.4

    async def restore(self, job: Job, record: JobRecord, *, until: float) -> None:
        """See `Inbox.restore`."""
        await self._run(lambda tx: jobs.restore(tx, job, record, until))

    async def cancel(self, job_id: str, state: JobState, reason: str, *, ending: RecordedEnding | None = None) -> bool:
        """See `Inbox.cancel`."""
        return await self._run(lambda tx: jobs.cancel(tx, job_id, state, reason, ending))

    async def send(self, job_id: str, sent: Signal) -> bool:
        """See `Signals.send`."""
        return await self._run(lambda tx: jobs.send(tx, job_id, sent))

    async def wake(self, job_id: str) -> bool:
        """See `Signals.wake`."""
        return await self._run(lambda tx: jobs.wake(tx, job_id))

    async def record(self, job_id: str) -> JobRecord:
        """See `JobRecords.record`."""
        return await self._run(lambda tx: jobs.record(tx, job_id))

    async def update(self, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """See `JobRecords.update`.

        Raises:
            LeaseLostError: this task works for the job, which another worker has by now.
        """
        work = UNDER_WAY.get()

        def changed(tx: Transaction) -> JobRecord:
            if work is not None and work.job_id == job_id:
                _check(tx, work)
            return jobs.update(tx, job_id, change)

        return await self._run(changed)

    async def check_work(self) -> None:
        """See that what the current task works for is its worker's still; nothing to see in other tasks.

        Raises:
            LeaseLostError: another worker has it by now.
        """
        work = UNDER_WAY.get()
        if work is not None:
            await self._run(lambda tx: _check(tx, work))

    async def get(self, job_id: str) -> Stored | None:
        """See `JobIndex.get`."""
        return await self._run(lambda tx: questions.get(tx, job_id))

    async def of_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[Stored, ...]:
        """See `JobIndex.of_thread`."""
        return await self._run(lambda tx: questions.of_thread(tx, repo_id, number, limit))

    async def is_live(self, repo_id: int, number: int) -> bool:
        """See `JobIndex.is_live`."""
        return await self._run(lambda tx: questions.is_live(tx, repo_id, number))

    async def live_of(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[Stored, ...]:
        """See `JobIndex.live_of`."""
        return await self._run(lambda tx: questions.live_of(tx, installation, repo_ids))

    async def live_ids(self) -> frozenset[str]:
        """See `JobIndex.live_ids`."""
        return await self._run(questions.live_ids)

    async def backlog(self) -> Backlog:
        """See `JobIndex.backlog`."""
        return await self._run(questions.backlog)

    async def counts(self) -> dict[JobState, int]:
        """See `JobIndex.counts`."""
        return await self._run(questions.counts)

    async def runs(self, query: RunQuery) -> tuple[Stored, ...]:
        """See `RunHistory.runs`."""
        return await self._store.read(lambda tx: history.runs(tx, query))

    async def pulse(self) -> str:
        """See `RunHistory.pulse`."""
        return await self._store.read(history.pulse)

    async def keep_log(self, job: Job, body: bytes, *, cost_usd: float | None) -> None:
        """See `RunHistory.keep_log`."""
        await self._run(lambda tx: history.keep_log(tx, job, body, cost_usd))

    async def log_of(self, job_id: str) -> bytes | None:
        """See `RunHistory.log_of`."""
        return await self._store.read(lambda tx: history.log_of(tx, job_id))

    async def costs(self, since: int, repo_ids: Collection[int] | None = None) -> tuple[WeekCost, ...]:
        """See `RunHistory.costs`."""
        return await self._store.read(lambda tx: history.costs(tx, since, repo_ids))

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
        while some := await self._run(lambda tx: questions.sweep(tx, before, most, _SWEPT_AT_ONCE)):
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


def _check(tx: Transaction, work: Leg | Owed) -> None:
    if isinstance(work, Owed):
        jobs.check_owed(tx, work)
    else:
        jobs.check_ours(tx, work.job_id, work.number, work.worker)


def _write_something(tx: Transaction) -> None:
    """Write a row and take it out again, so that a database that can only be read is found out."""
    row = (TOLD.c.repo_id == 0) & (TOLD.c.thread == 0)
    tx.lock("check")
    tx.rows.execute(TOLD.delete().where(row))
    tx.rows.execute(TOLD.insert().values(repo_id=0, thread=0, cause="the database can be written", until=tx.now))
