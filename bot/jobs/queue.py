"""The hand-over from the doors to the workers: what a queue is, and one in an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bot.errors import QueueError
from bot.jobs import sqlite
from bot.jobs.job import Job, JobState

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job in the hands of one worker.

    Attributes:
        job: the job.
        attempt: 1 for the first time it is handed out.
        exhausted: every attempt died before this one; do not run the job again, only report that and finish it.
    """

    job: Job
    attempt: int
    exhausted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A job as the queue holds it.

    Attributes:
        job: the job.
        state: where it stands.
        reason: why it ended as it did; empty for one that has not ended or needs no reason.
        attempts: how often it was handed out.
    """

    job: Job
    state: JobState
    reason: str
    attempts: int


class Queue(Protocol):
    """Jobs on their way from a door to a worker, kept across restarts; every method may raise `QueueError`."""

    async def enqueue(self, job: Job) -> bool:
        """Store a job for good; False, and nothing stored, when its id or delivery is known already."""

    async def claim(self, worker: str, lease_seconds: float) -> Claimed | None:
        """Take the oldest waiting job whose thread has none running, or one whose worker let its lease run out.

        Args:
            worker: a name that no other live worker has.
            lease_seconds: how long the job stays this worker's unless renewed.
        """

    async def renew(self, job_id: str, worker: str, lease_seconds: float) -> None:
        """Keep a claimed job for another `lease_seconds` from now.

        Raises:
            LeaseLostError: the job is no longer this worker's.
        """

    async def release(self, job_id: str, worker: str) -> None:
        """Give a claimed job back, to be run from its start by anyone; the attempt is not counted.

        Raises:
            LeaseLostError: the job is no longer this worker's.
        """

    async def finish(self, job_id: str, state: JobState, reason: str = "", *, worker: str) -> None:
        """End a claimed job in one of its last states.

        Raises:
            LeaseLostError: the job is no longer this worker's.
            TransitionError: a running job may not go to that state.
        """

    async def take_back(self, workers: Collection[str]) -> None:
        """Let the jobs of workers that are known to be dead wait again, before their leases run out."""

    async def remember(self, job_id: str, key: str, value: str) -> None:
        """Keep a fact about a job for good, e.g. the comment it made; an older value of the same key is replaced."""

    async def recall(self, job_id: str) -> dict[str, str]:
        """Every fact kept about a job."""

    async def get(self, job_id: str) -> Stored | None:
        """The job as it stands, or None when it was never stored."""

    async def wait_for_work(self, timeout: float) -> None:  # noqa: ASYNC109 - the wait is the purpose, its end no error
        """Return as soon as there may be something to claim, at the latest after `timeout` seconds."""

    async def counts(self) -> dict[JobState, int]:
        """How many jobs stand in each state."""


class SqliteQueue:
    """A queue in one SQLite file, for any number of processes of one machine; must not lie on a network file system.

    All statements run in one thread of its own, so the event loop never waits for the disk. Every answer is given after
    the commit has reached the disk (`synchronous=FULL`): GitHub does not send a delivery again that was acknowledged,
    so an acknowledged job has to outlive a power cut.
    """

    def __init__(self, path: Path, *, max_attempts: int = 3, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or make it.

        Args:
            path: the file; its directory must exist.
            max_attempts: how often a job is run before it is given up because its workers die.
            clock: seconds since the epoch; the same for every process on the file.

        Raises:
            QueueError: the file cannot be opened, is no queue, or belongs to a newer version.
        """
        self._path = path
        self._max_attempts = max_attempts
        self._clock = clock
        self._work = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue")
        try:
            self._connection = self._thread.submit(sqlite.connect, path).result()
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown()
            raise _explained(path, error) from error
        except QueueError:
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        """Close the file; further calls fail."""
        await self._run(sqlite3.Connection.close)
        self._thread.shutdown(wait=False)

    async def enqueue(self, job: Job) -> bool:
        """See `Queue.enqueue`."""
        stored = await self._run(lambda rows: sqlite.insert(rows, job, self._clock()))
        if stored:
            self._work.set()
        return stored

    async def claim(self, worker: str, lease_seconds: float) -> Claimed | None:
        """See `Queue.claim`."""
        now = self._clock()
        row = await self._run(
            lambda rows: sqlite.claim(
                rows, worker=worker, now=now, until=now + lease_seconds, max_attempts=self._max_attempts
            )
        )
        if row is None:
            return None
        job, attempt = row
        return Claimed(job=job, attempt=attempt, exhausted=attempt > self._max_attempts)

    async def renew(self, job_id: str, worker: str, lease_seconds: float) -> None:
        """See `Queue.renew`."""
        until = self._clock() + lease_seconds
        await self._run(lambda rows: sqlite.renew(rows, job_id, worker, until))

    async def release(self, job_id: str, worker: str) -> None:
        """See `Queue.release`."""
        await self._run(lambda rows: sqlite.release(rows, job_id, worker))
        self._work.set()

    async def finish(self, job_id: str, state: JobState, reason: str = "", *, worker: str) -> None:
        """See `Queue.finish`."""
        await self._run(lambda rows: sqlite.finish(rows, job_id, worker, state, reason, self._clock()))
        self._work.set()

    async def take_back(self, workers: Collection[str]) -> None:
        """See `Queue.take_back`."""
        now = self._clock()
        await self._run(lambda rows: sqlite.take_back(rows, workers, now, self._max_attempts))
        self._work.set()

    async def remember(self, job_id: str, key: str, value: str) -> None:
        """See `Queue.remember`."""
        await self._run(lambda rows: sqlite.remember(rows, job_id, key, value))

    async def recall(self, job_id: str) -> dict[str, str]:
        """See `Queue.recall`."""
        return await self._run(lambda rows: sqlite.recall(rows, job_id))

    async def get(self, job_id: str) -> Stored | None:
        """See `Queue.get`."""
        row = await self._run(lambda rows: sqlite.get(rows, job_id))
        if row is None:
            return None
        job, state, reason, attempts = row
        return Stored(job=job, state=state, reason=reason, attempts=attempts)

    async def wait_for_work(self, timeout: float) -> None:  # noqa: ASYNC109 - the wait is the purpose, its end no error
        """See `Queue.wait_for_work`; work that another process stored is seen only when `timeout` ends."""
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            return
        self._work.clear()

    async def counts(self) -> dict[JobState, int]:
        """See `Queue.counts`."""
        return await self._run(sqlite.counts)

    async def _run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, operation, self._connection)
        except sqlite3.Error as error:
            raise _explained(self._path, error) from error


def _explained(path: Path, error: Exception) -> QueueError:
    return QueueError(f"the job queue {path} failed: {error}; check that the disk has room and the file may be written")
