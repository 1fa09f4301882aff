"""An engine in an SQLite file, for any number of processes; `work_loop` is the worker's side of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from bot.domain.job import Job, JobState, Lane
from bot.engine import job_rows, statements
from bot.engine import owed_rows as debts
from bot.engine.database import Database
from bot.engine.deaths import MOST_DEATHS
from bot.engine.job_record import JobRecord, RecordedEnding
from bot.engine.owed_endings import Owed
from bot.engine.records import Backlog, Signal, Stored

_DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job that one worker has claimed.

    Attributes:
        job: the job.
        attempt: 1 for the first time it is handed out, or handed out again after it waited for a person.
        deaths: how many deaths of workers it is charged with, since it last got on.
    """

    job: Job
    attempt: int
    deaths: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the job is not to be run again: only report that and finish it."""
        return self.deaths >= MOST_DEATHS


class SqliteQueue:
    """Implements `JobEngine` in the database. The worker's side has claims with leases; `WorkLoop` uses it.

    Args:
        database: where; whoever opened it closes it.
        clock: seconds since the epoch; the same for every process on the file.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._run = database.run
        self._clock = clock
        self._work = asyncio.Event()

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        """See `Inbox.accept`."""
        now = self._clock()
        stored = await self._run(lambda rows: statements.insert(rows, job, now, now + held_seconds))
        if stored:
            self._work.set()
        return stored

    async def restore(self, job: Job, record: JobRecord, *, until: float) -> None:
        """See `Inbox.restore`."""
        now = self._clock()
        await self._run(lambda rows: statements.restore(rows, job, record, now, until))

    async def unhold(self, job_id: str) -> None:
        """See `Inbox.unhold`."""
        await self._run(lambda rows: statements.unhold(rows, job_id))
        self._work.set()

    async def claim(self, worker: str, lease_seconds: float, *, lane: Lane = "work") -> Claimed | None:
        """Take the oldest queued job of a lane, of work only where none of its thread runs.

        A job whose worker let its lease run out is queued again first; so is one that waited until its time was over.

        Args:
            worker: a name that no other live worker has.
            lease_seconds: how long the job stays this worker's unless renewed.
            lane: which jobs to look at.
        """
        now = self._clock()
        row = await self._run(partial(statements.claim, worker=worker, lane=lane, now=now, until=now + lease_seconds))
        if row is None:
            return None
        job, attempt, deaths = row
        return Claimed(job=job, attempt=attempt, deaths=deaths)

    async def renew(self, job_id: str, worker: str, lease_seconds: float) -> None:
        """Keep a claimed job for another `lease_seconds` from now.

        Raises:
            LeaseLostError: the job is no longer this worker's.
        """
        until = self._clock() + lease_seconds
        await self._run(lambda rows: statements.renew(rows, job_id, worker, until))

    async def release(self, job_id: str, worker: str, *, held_seconds: float = 0.0) -> None:
        """Give a claimed job back, to be run from its start by anyone; the attempt is not counted.

        Args:
            job_id: the job.
            worker: whose it is.
            held_seconds: for how long nobody is to claim it.

        Raises:
            LeaseLostError: the job is no longer this worker's.
        """
        held_until = self._clock() + held_seconds if held_seconds else 0.0
        await self._run(lambda rows: statements.release(rows, job_id, worker, held_until))
        self._work.set()

    async def park(
        self, job_id: str, worker: str, *, until: float, heard: int | None = None, request_id: str = ""
    ) -> bool:
        """Let a claimed job wait for a person, claimed by no worker.

        Whoever answers keeps the answer first and calls `wake` then, so that nobody waits for what has been said.

        Args:
            job_id: the job.
            worker: whose it is.
            until: seconds since the epoch; it is queued again then, see `claim`.
            heard: the number of the last signal that the worker has seen.
            request_id: whose answer ends the wait; empty when none does.

        Returns:
            False when there is a later signal than `heard`, or the answer: the job is still this worker's.

        Raises:
            LeaseLostError: the job is no longer this worker's.
        """
        parked = await self._run(lambda rows: statements.park(rows, job_id, worker, until, heard, request_id))
        self._work.set()
        return parked

    async def wake(self, job_id: str) -> bool:
        """See `Signals.wake`."""
        woken = await self._run(lambda rows: statements.wake(rows, job_id))
        self._work.set()
        return woken

    async def finish(
        self, job_id: str, state: JobState, reason: str = "", *, worker: str, owed: float | None = None
    ) -> None:
        """End a claimed job in one of its last states.

        Args:
            job_id: the job.
            state: how it ended.
            reason: why.
            worker: whose it is.
            owed: in how many seconds its ending is to be told, see `claim_owed`; None when that is done.

        Raises:
            LeaseLostError: the job is no longer this worker's.
            TransitionError: a running job may not go to that state.
        """
        await self._run(lambda rows: statements.finish(rows, job_id, worker, state, reason, self._clock(), owed))
        self._work.set()

    async def cancel(self, job_id: str, state: JobState, reason: str, *, ending: RecordedEnding | None = None) -> bool:
        """See `Inbox.cancel`."""
        return await self._run(lambda rows: statements.end(rows, job_id, state, reason, self._clock(), ending))

    async def requeue_orphans(self, workers: Collection[str]) -> None:
        """Queue the jobs of workers that are known to be dead again, before their leases run out."""
        now = self._clock()
        await self._run(lambda rows: statements.requeue_orphans(rows, workers, now))
        self._work.set()

    async def get_on(self, job_id: str, steps: int) -> None:
        """Keep how many steps the agent of a job has made: one that gets on is not what kills its workers."""
        await self._run(lambda rows: statements.get_on(rows, job_id, steps))

    async def claim_owed(self, worker: str) -> Owed | None:
        """Take an ending that is due to be told; whoever takes it calls `settle` or `postpone`."""
        return await self._run(lambda rows: debts.claim(rows, worker, self._clock()))

    async def settle(self, job_id: str) -> None:
        """The ending of a job is told, or never can be."""
        await self._run(lambda rows: debts.settle(rows, job_id))

    async def postpone(self, job_id: str) -> None:
        """The ending of a job could not be told now; it is due again after a pause that grows."""
        await self._run(lambda rows: debts.postpone(rows, job_id, self._clock()))

    async def owed_at(self, job_id: str) -> float | None:
        """When the ending of a job is due to be told, in seconds since the epoch; None when it is told."""
        return await self._run(lambda rows: debts.due_at(rows, job_id))

    async def send(self, job_id: str, sent: Signal) -> bool:
        """See `Signals.send`."""
        return await self._run(lambda rows: statements.signal(rows, job_id, sent))

    async def signals(self, job_id: str, after: int) -> tuple[tuple[int, Signal], ...]:
        """What was sent to a job, numbered from 1, without the first `after`; every attempt sees all of it."""
        return await self._run(lambda rows: job_rows.signals(rows, job_id, after))

    async def record(self, job_id: str) -> JobRecord:
        """See `JobRecords.record`."""
        return await self._run(lambda rows: job_rows.record(rows, job_id))

    async def update(self, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """See `JobRecords.update`."""
        return await self._run(lambda rows: statements.update(rows, job_id, change))

    async def get(self, job_id: str) -> Stored | None:
        """See `JobIndex.get`."""
        return await self._run(lambda rows: job_rows.get(rows, job_id))

    async def of_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[Stored, ...]:
        """See `JobIndex.of_thread`."""
        return await self._run(lambda rows: job_rows.of_thread(rows, repo_id, number, limit))

    async def is_live(self, repo_id: int, number: int) -> bool:
        """See `JobIndex.is_live`."""
        return await self._run(lambda rows: job_rows.is_live(rows, repo_id, number))

    async def live_of(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[Stored, ...]:
        """See `JobIndex.live_of`."""
        return await self._run(lambda rows: job_rows.live_of(rows, installation, repo_ids))

    async def live_ids(self) -> frozenset[str]:
        """See `JobIndex.live_ids`."""
        return await self._run(job_rows.live_ids)

    async def wait_for_work(self, timeout: float) -> None:  # noqa: ASYNC109 - the wait is the purpose, its end no error
        """Return as soon as there may be something to claim, at the latest after `timeout` seconds.

        Work that another process stored is seen only when `timeout` ends.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            return
        self._work.clear()

    async def backlog(self) -> Backlog:
        """See `JobIndex.backlog`."""
        counts = await self._run(job_rows.counts)
        return Backlog(by_state={state: counts[state] for state in Backlog.STATES}, oldest_seconds=0.0)

    async def counts(self) -> dict[JobState, int]:
        """See `JobIndex.counts`."""
        return await self._run(job_rows.counts)

    async def check(self) -> None:
        """See `EngineUpkeep.check`."""
        now = self._clock()
        await self._run(lambda rows: job_rows.check(rows, now))

    async def sweep(self, keep_days: float) -> int:
        """See `EngineUpkeep.sweep`."""
        before = self._clock() - keep_days * _DAY_SECONDS
        return await self._run(lambda rows: job_rows.sweep(rows, before))
