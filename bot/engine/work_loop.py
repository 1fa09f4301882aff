"""Have the jobs of the queue handled: claims, leases, polling, signals, and endings that are still to be told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Never, assert_never

from bot.domain.errors import LeaseLostError, QueueError
from bot.domain.job import TRANSITIONS, Job, JobState, Lane
from bot.engine.queue import Claimed, SqliteQueue
from bot.engine.records import Signal, Stored
from bot.engine.work import JobEnded, JobHandler, JobParked, JobReleased

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
_POLL_SECONDS = 2.0
_HEAR_SECONDS = 0.5
_STEERING_TASKS = 3
"""More than one: where GitHub makes one installation wait, the others still want to stop their jobs."""

_TELLING_TASKS = 2


class WorkLoop:
    """Hands jobs to a handler, several at once.

    Args:
        name: no other live worker has it.
        queue: where jobs come from.
        handler: does the work.
        jobs_at_once: how many pieces of work, of different threads, are handled side by side.
        lease_seconds: how long a claimed job stays this worker's without a sign of life.
    """

    def __init__(
        self,
        name: str,
        queue: SqliteQueue,
        handler: JobHandler,
        *,
        jobs_at_once: int = 1,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._name, self._queue, self._handler = name, queue, handler
        self._lease_seconds = lease_seconds
        work: Lane = "work"
        steer: Lane = "steer"
        self._lanes: list[Lane] = [*[work] * jobs_at_once, *[steer] * _STEERING_TASKS, "event"]

    async def run(self) -> None:
        """Work until cancelled; jobs under way are then given back to the queue.

        Raises:
            QueueError: the queue cannot be used any more.
        """
        tasks = [asyncio.create_task(self._keep_working(lane)) for lane in self._lanes]
        tasks += [asyncio.create_task(self._keep_telling()) for _ in range(_TELLING_TASKS)]
        try:
            # `gather` would cancel the others by itself: once more below, and a job's cleaning up would be cut short.
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run_job(self, job_id: str) -> Stored:
        """Work until a job has ended, or waits; the job as it stands then.

        Raises:
            QueueError: there is no such job, or the queue cannot be used any more.
        """
        while (stored := await self._queue.get(job_id)) is not None:
            if stored.state is JobState.WAITING or not TRANSITIONS[stored.state]:
                return stored
            if not await self.run_next(stored.job.lane):
                await self._queue.wait_for_work(_POLL_SECONDS)
        raise QueueError(f"job {job_id} is no longer in its queue")

    async def tell_ending(self, job_id: str, *, until: float) -> None:
        """Tell an ending that could not be told at once, as long as it is due before `until`."""
        while (due := await self._queue.owed_at(job_id)) is not None and due < until:
            if not await self.tell_next():
                await asyncio.sleep(max(0.0, due - time.time()))

    async def _keep_working(self, lane: Lane) -> Never:
        while True:
            if not await self.run_next(lane):
                await self._queue.wait_for_work(_POLL_SECONDS)

    async def _keep_telling(self) -> Never:
        while True:
            if not await self.tell_next():
                await asyncio.sleep(_POLL_SECONDS)

    async def tell_next(self) -> bool:
        """Tell one ending that is due; False when there was none."""
        owed = await self._queue.claim_owed(self._name)
        if owed is None:
            return False
        if await self._handler.tell(owed):
            await self._queue.settle(owed.job_id)
        else:
            await self._queue.postpone(owed.job_id)
        return True

    async def run_next(self, lane: Lane = "work") -> bool:
        """Take one job of a lane and have it handled; False when there was none."""
        claimed = await self._claim(lane)
        if claimed is None:
            return False
        job = claimed.job
        try:
            await self._while_ours(LeasedAttempt(self._queue, claimed))
        except LeaseLostError:
            log.warning("job %s: taken over by another worker; this one stops", job.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(job.id))
            raise
        return True

    async def _claim(self, lane: Lane) -> Claimed | None:
        """Take a job; one that is handed out while the worker ends is given back, not kept until its lease ends."""
        claiming = asyncio.create_task(self._queue.claim(self._name, self._lease_seconds, lane=lane))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claimed = await claiming
            if claimed is not None:
                await self._give_back(claimed.job.id)
            raise

    async def _give_back(self, job_id: str) -> None:
        with suppress(LeaseLostError):  # it had come to its end already, or another worker has it
            await self._queue.release(job_id, self._name)

    async def _while_ours(self, attempt: LeasedAttempt) -> None:
        """Have a job handled while its lease is renewed; when the lease is lost the work is cancelled.

        Raises:
            LeaseLostError: another worker has the job now.
        """
        working = asyncio.create_task(self._handle(attempt))
        renewing = asyncio.create_task(self._renew(attempt.job.id))
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()
            await working
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)

    async def _renew(self, job_id: str) -> Never:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            await self._queue.renew(job_id, self._name, self._lease_seconds)

    async def _handle(self, attempt: LeasedAttempt) -> None:
        job_id, queue = attempt.job.id, self._queue
        match await self._handler.handle(attempt):
            case JobEnded(state=state, reason=reason, owed=owed):
                await queue.finish(job_id, state, reason, worker=self._name, owed=owed)
            case JobReleased(held_seconds=seconds):
                await queue.release(job_id, self._name, held_seconds=seconds)
            case JobParked(until=until, request_id=request_id):
                heard = attempt.heard
                if not await queue.park(job_id, self._name, until=until, heard=heard, request_id=request_id):
                    await queue.release(job_id, self._name)
            case other:
                assert_never(other)


class LeasedAttempt:
    """An attempt whose signals are polled for.

    Attributes:
        heard: the number of the last signal that was passed on.
    """

    def __init__(self, queue: SqliteQueue, claimed: Claimed) -> None:
        self._queue, self._claimed = queue, claimed
        self._steps = 0
        self.heard = 0

    @property
    def job(self) -> Job:
        """The job."""
        return self._claimed.job

    @property
    def number(self) -> int:
        """See `JobAttempt.number`."""
        return self._claimed.attempt

    @property
    def deaths(self) -> int:
        """See `JobAttempt.deaths`."""
        return self._claimed.deaths

    @property
    def exhausted(self) -> bool:
        """See `JobAttempt.exhausted`."""
        return self._claimed.exhausted

    @asynccontextmanager
    async def listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> AsyncIterator[None]:
        """See `JobAttempt.listening`."""
        await self._listen(hear, steps)
        task = asyncio.create_task(self._keep_listening(hear, steps))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._listen(hear, steps)

    async def _keep_listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> Never:
        while True:
            await asyncio.sleep(_HEAR_SECONDS)
            await self._listen(hear, steps)

    async def _listen(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> None:
        for number, signal in await self._queue.signals(self.job.id, self.heard):
            hear(signal)
            self.heard = number
        if (made := steps()) > self._steps:
            await self._queue.get_on(self.job.id, made)
            self._steps = made
