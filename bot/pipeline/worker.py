"""The worker: takes jobs from the queue, and sees to it that each ends in a word to its asker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Never

from agent_runtime import AgentError
from bot.domain.errors import BotError, LeaseLostError, QueueError, WrongInputError
from bot.domain.job import JobState, Lane
from bot.engine.deaths import MOST_DEATHS
from bot.engine.job_record import StoredRecord
from bot.engine.queue import Claimed, Queue
from bot.gate.repo_config import RepoConfigError
from bot.github import GitHubError, Urgency
from bot.jobs import approvals
from bot.jobs.context import Ending, JobContext, JobContextFactory
from bot.jobs.patience import PATIENCE_SECONDS, Patience
from bot.pipeline.pipeline import JobPipeline
from bot.reporting import endings
from bot.reporting.endings import EndingReporter
from bot.workspace import WorkspaceError

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
POLL_SECONDS = 2.0
HEAR_SECONDS = 0.5
_STEERING_HANDS = 3
"""More than one: where GitHub makes one installation wait, the others want to stop their jobs all the same."""

_TELLING_HANDS = 2

_PUBLISHING_DEATHS = MOST_DEATHS + 3
"""Up to how many deaths it is tried to publish work that is finished."""
_KEEPING_DEATHS = _PUBLISHING_DEATHS + 2
"""Up to how many it is tried to find out what a job did; from then on it only gets its last words."""


class Worker:
    """Walks jobs through the corridor."""

    def __init__(
        self,
        name: str,
        *,
        contexts: JobContextFactory,
        jobs_at_once: int = 1,
        lease_seconds: float = LEASE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Prepare; nothing is claimed before `run`.

        Args:
            name: no other live worker has it.
            contexts: where jobs come from, and all that they share.
            jobs_at_once: how many pieces of work, of different threads, it walks side by side.
            lease_seconds: how long a claimed job stays this worker's without a sign of life.
            patience_seconds: for how long GitHub may be silent before a job is given up.
        """
        self._name = name
        self._contexts = contexts
        self._queue = contexts.queue
        work: Lane = "work"
        steer: Lane = "steer"
        event: Lane = "event"
        self._lanes = (*(work for _ in range(jobs_at_once)), *(steer for _ in range(_STEERING_HANDS)), event)
        self._lease_seconds = lease_seconds
        self._patience = Patience(seconds=patience_seconds, longest_pause=lease_seconds)
        self._teller = EndingReporter(name, contexts)

    async def run(self) -> None:
        """Work until cancelled; jobs in hand are then given back to the queue.

        Raises:
            QueueError: the queue cannot be used any more.
        """
        hands = [asyncio.create_task(self._keep_working(lane)) for lane in self._lanes]
        hands += [asyncio.create_task(self._keep_telling()) for _ in range(_TELLING_HANDS)]
        try:
            # `gather` would cancel the others by itself: once more below, and a job's cleaning up would be cut short.
            ended, _ = await asyncio.wait(hands, return_when=asyncio.FIRST_COMPLETED)
            for hand in ended:
                hand.result()
        finally:
            for hand in hands:
                hand.cancel()
            await asyncio.gather(*hands, return_exceptions=True)

    async def _keep_working(self, lane: Lane) -> Never:
        while True:
            if not await self.step(lane):
                await self._queue.wait_for_work(POLL_SECONDS)

    async def _keep_telling(self) -> Never:
        while True:
            if not await self.tell_owed():
                await asyncio.sleep(POLL_SECONDS)

    async def tell_owed(self) -> bool:
        """Tell one ending that could not be told before and is due; False when there was none."""
        return await self._teller.step()

    async def step(self, lane: Lane) -> bool:
        """Take one job of a lane and see it through; False when there was none."""
        claimed = await self._claim(lane)
        if claimed is None:
            return False
        job = claimed.job
        log.info("job %s: attempt %d, delivery %s", job.id, claimed.attempt, job.delivery_id)
        try:
            await self._while_ours(claimed)
        except LeaseLostError:
            log.warning("job %s: taken over by another worker; nothing more is done here", job.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(job.id))
            raise
        except GitHubError as error:
            # What could not be asked or told now is asked or told when the job is taken up again.
            pause = await self._patience.pause(StoredRecord(self._queue, job.id), error)
            seconds = self._lease_seconds if pause is None else pause
            log.exception("job %s: GitHub cannot be reached; trying again in %.0f s", job.id, seconds)
            with suppress(LeaseLostError):
                await self._queue.release(job.id, self._name, held_seconds=seconds)
        except QueueError:
            raise
        except Exception as error:  # one job must not take the worker, and so all the others, with it
            log.exception("job %s: given up", job.id)
            reason = str(error) if isinstance(error, BotError) else "The bot has a fault of its own; see the log."
            await endings.keep_fault(self._contexts, job, reason)
            with suppress(LeaseLostError):
                await self._queue.finish(job.id, JobState.FAILED, reason, worker=self._name, owed=0.0)
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

    async def _see_through(self, claimed: Claimed) -> None:
        """Walk a job, tell its ending, and give it out of our hands."""
        job = claimed.job
        async with self._contexts.case(job) as context:
            record = context.record
            pipeline = JobPipeline(context)
            if (ended := (await record.read()).ending) is not None:
                await self._conclude(pipeline, context, Ending(state=ended.state, reason="told by a later attempt"))
                return
            listener = SignalListener(self._queue, job.id, pipeline)
            async with listener.open():
                told = (await record.read()).comment.requests > 0
                ending = await self._ending(pipeline, context, claimed, told=told)
            context.github.hurry(Urgency.ENDING)
            ending = pipeline.heard_out(ending)
            log.info("job %s: %s %s", job.id, ending.state, ending.reason)
            if ending.state is JobState.WAITING:
                self._contexts.ended(ending)
                await self._tell_waiting(pipeline, context, ending)
                await self._park(context, pipeline, ending, heard=listener.heard)
                return
            self._contexts.ended(ending)
            await endings.keep(record, await endings.recorded(context, ending, checked=await pipeline.checked()))
            if ending.partial:
                await asyncio.to_thread(self._contexts.services.work.narrow, job.id, ending.patch)
            elif ending.view is not None and not ending.patch and ending.state is not JobState.REFUSED:
                self._contexts.services.work.forget(job.id)
            await self._conclude(pipeline, context, ending)

    async def _conclude(self, pipeline: JobPipeline, context: JobContext, ending: Ending) -> None:
        """Tell an ending that is kept, and end the job; what GitHub does not take now is told later."""
        owed = await endings.tell(context, comment=pipeline.comment, check=pipeline.check)
        await self._queue.finish(context.job.id, ending.state, ending.reason, worker=self._name, owed=owed)

    async def _tell_waiting(self, pipeline: JobPipeline, context: JobContext, ending: Ending) -> None:
        """Tell what a job waits for.

        Raises:
            GitHubError: it could not be told; the job is to be taken up again for that.
        """
        try:
            await pipeline.show_check(ending)
            if (body := await endings.body_of(context, ending)) is not None:
                await pipeline.comment.put(body)
            if pipeline.comment.told_at:
                await approvals.note_shown(context.record, at=pipeline.comment.told_at)
        except GitHubError as error:
            if await self._patience.pause(context.record, error) is not None:
                raise
            log.warning("job %s: what it waits for could not be told: %s", context.job.id, error)

    async def _park(self, context: JobContext, pipeline: JobPipeline, ending: Ending, *, heard: int) -> None:
        """Let a job wait for a person or the model; whoever was faster than this has answered, or stopped it."""
        job_id = context.job.id
        if pipeline.is_to_stop or not await self._queue.park(
            job_id, self._name, until=ending.until, heard=heard, request_id=ending.request_id
        ):
            await self._queue.release(job_id, self._name)

    async def _ending(self, pipeline: JobPipeline, context: JobContext, claimed: Claimed, *, told: bool) -> Ending:
        """Walk the corridor; whatever goes wrong there becomes an ending."""
        try:
            if claimed.exhausted:
                return await self._given_up(pipeline, context, claimed, told=told)
            return await pipeline.walk()
        except GitHubError as error:
            # A job that is to stop, e.g. since the App is gone, waits for nothing; its end is told when it can be.
            stops = pipeline.is_to_stop and error.unsettled
            if not stops and await self._patience.pause(context.record, error) is not None:
                raise
            ending = await pipeline.failed(str(error), told=told, unproven=True)
            return replace(ending, misconfigured=error.lacks_permission)
        except (WorkspaceError, RepoConfigError) as error:
            return await pipeline.failed(error.reason, error.remedy)
        except LeaseLostError:
            raise
        except (BotError, AgentError) as error:
            return replace(await pipeline.failed(str(error)), misconfigured=isinstance(error, WrongInputError))
        except Exception as error:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("job %s: a fault of the bot's own, or of its machine", claimed.job.id)
            said = error.strerror if isinstance(error, OSError) else ""
            reason = f"The machine that the bot runs on failed: {said}." if said else "The bot has a fault of its own."
            return await pipeline.failed(reason, f"The operator finds it in the log under job `{claimed.job.id}`.")

    async def _given_up(self, pipeline: JobPipeline, context: JobContext, claimed: Claimed, *, told: bool) -> Ending:
        """End a job that its workers keep dying of, with as much of what it did as can be had without dying of that."""
        finished = (await context.record.read()).result is not None
        if finished and claimed.deaths < _PUBLISHING_DEATHS:
            return await pipeline.walk()
        reason = "The bot's process died several times while it had this job in hand, so it was given up."
        remedy = f"The operator finds the cause in the log under job `{claimed.job.id}`; then ask again."
        if claimed.deaths < _KEEPING_DEATHS:
            ending = await pipeline.give_up(f"{reason} {remedy}")
            if ending is not None:
                return ending
        return await pipeline.failed(reason, remedy, told=told, unproven=True)

    async def _while_ours(self, claimed: Claimed) -> None:
        """See a job through while its lease is renewed; when the lease is lost the work is cancelled.

        Raises:
            LeaseLostError: another worker has the job now.
        """
        working = asyncio.create_task(self._see_through(claimed))
        renewing = asyncio.create_task(self._renew(claimed.job.id))
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


class SignalListener:
    """Hears what people say to a job while it is walked, and keeps how far it is.

    Attributes:
        heard: the number of the last signal that was passed on.
    """

    def __init__(self, queue: Queue, job_id: str, pipeline: JobPipeline) -> None:
        self._queue = queue
        self._job_id = job_id
        self._pipeline = pipeline
        self._steps = 0
        self.heard = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Pass on what was said already, and then what is said until the body ends."""
        await self._listen()
        task = asyncio.create_task(self._keep_listening())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._listen()

    async def _keep_listening(self) -> Never:
        while True:
            await asyncio.sleep(HEAR_SECONDS)
            await self._listen()

    async def _listen(self) -> None:
        for number, signal in await self._queue.signals(self._job_id, self.heard):
            self._pipeline.hear(signal)
            self.heard = number
        if (steps := self._pipeline.steps) > self._steps:
            await self._queue.get_on(self._job_id, steps)
            self._steps = steps
