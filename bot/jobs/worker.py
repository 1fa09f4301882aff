"""The worker: takes jobs from the queue, and sees to it that each ends in a word to its asker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Never

from agent_runtime import AgentError
from bot.errors import BotError, LeaseLostError, QueueError
from bot.gate.repo_config import RepoConfigError
from bot.github import GitHubError, Urgency
from bot.jobs import waiting
from bot.jobs.case import ENDING, Case, Desk, Ending
from bot.jobs.corridor import Corridor
from bot.jobs.job import Job, JobState, Lane
from bot.jobs.memory import JobMemory
from bot.jobs.queue import Claimed, Queue, Signal
from bot.jobs.status import StatusComment
from bot.publishing.render import render_reply, render_status
from bot.publishing.view import StatusView
from bot.workspace import WorkspaceError

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
POLL_SECONDS = 2.0
HEAR_SECONDS = 0.5
_STEERING_HANDS = 3
"""More than one: where GitHub makes one installation wait, the others want to stop their jobs all the same."""

PATIENCE_SECONDS = 6 * 3600.0
"""Longer than a rate limit of GitHub's lasts, and most of its outages."""

_SILENT = "silent"
"""The fact that keeps since when GitHub has been silent, in seconds since the epoch; empty once the job waits."""


class Worker:
    """Walks jobs through the corridor."""

    def __init__(
        self,
        name: str,
        *,
        desk: Desk,
        jobs_at_once: int = 1,
        lease_seconds: float = LEASE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Prepare; nothing is claimed before `run`.

        Args:
            name: no other live worker has it.
            desk: where jobs come from, and all that they share.
            jobs_at_once: how many pieces of work, of different threads, it walks side by side.
            lease_seconds: how long a claimed job stays this worker's without a sign of life.
            patience_seconds: for how long GitHub may be silent before what it breaks off counts as an attempt.
        """
        self._name = name
        self._desk = desk
        self._queue = desk.queue
        work: Lane = "work"
        steer: Lane = "steer"
        event: Lane = "event"
        self._lanes = (*(work for _ in range(jobs_at_once)), *(steer for _ in range(_STEERING_HANDS)), event)
        self._lease_seconds = lease_seconds
        self._patience_seconds = patience_seconds

    async def run(self) -> None:
        """Work until cancelled; jobs in hand are then given back to the queue.

        Raises:
            QueueError: the queue cannot be used any more.
        """
        hands = [asyncio.create_task(self._keep_working(lane)) for lane in self._lanes]
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
            seconds = max(self._lease_seconds, error.retry_after)
            log.exception("job %s: GitHub cannot be reached; trying again in %.0f s", job.id, seconds)
            await self._put_off(job.id, seconds)
        except QueueError:
            raise
        except Exception as error:  # one job must not take the worker, and so all the others, with it
            log.exception("job %s: given up", job.id)
            reason = str(error) if isinstance(error, BotError) else "The bot has a fault of its own; see the log."
            with suppress(LeaseLostError):
                await self._queue.finish(job.id, JobState.FAILED, reason, worker=self._name)
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

    async def _put_off(self, job_id: str, seconds: float) -> None:
        """Give a job back for a while: GitHub's silence is no attempt that died, until it lasts for too long."""
        memory, now = JobMemory(self._queue, job_id), time.time()
        since = float(await memory.recall(_SILENT) or now)
        await memory.remember(_SILENT, str(since))
        if now - since < self._patience_seconds:
            with suppress(LeaseLostError):
                await self._queue.release(job_id, self._name, held_seconds=seconds)

    async def _give_back(self, job_id: str) -> None:
        with suppress(LeaseLostError):  # it had come to its end already, or another worker has it
            await self._queue.release(job_id, self._name)

    async def _see_through(self, claimed: Claimed) -> None:
        """Walk a job, tell its ending, and give it out of our hands."""
        job = claimed.job
        async with self._desk.case(job) as case:
            memory = case.memory
            corridor = Corridor(case)
            told_before = await memory.recall(ENDING)
            if told_before is not None:
                state, _, body = told_before.partition("\n")
                case.github.hurry(Urgency.ENDING)
                await _tell(corridor.comment, body, job)
                await self._queue.finish(job.id, JobState(state), "told by a later attempt", worker=self._name)
                return
            ears = Ears(self._queue, job.id, corridor.hear)
            async with ears.open():
                told = await memory.recall("commenting") is not None
                ending = await self._ending(corridor, claimed, told=told)
            case.github.hurry(Urgency.ENDING)
            ending = corridor.heard_out(ending)
            await self._tell(corridor, memory, ending, job)
            if ending.state is JobState.WAITING:
                await self._park(case, corridor, ending, heard=ears.heard)
            else:
                await self._queue.finish(job.id, ending.state, ending.reason, worker=self._name)
            log.info("job %s: %s %s", job.id, ending.state, ending.reason)

    async def _tell(self, corridor: Corridor, memory: JobMemory, ending: Ending, job: Job) -> None:
        view = ending.view
        await corridor.show_check(ending)
        if isinstance(view, StatusView):
            body = await asyncio.to_thread(render_status, view)
        elif view is not None:
            allowed = self._desk.house.allowed(job)
            marker = self._desk.house.marker(job)
            body = await asyncio.to_thread(
                render_reply, view.text, allowed, job_id=job.id, marker=marker, refused=view.refused
            )
        else:
            return
        if ending.state is not JobState.WAITING:
            # Kept before it is sent: should this worker die now, the next one tells it without working again.
            await memory.remember(ENDING, f"{ending.state}\n{body}")
            if not ending.patch and ending.state is not JobState.REFUSED:
                self._desk.house.work.forget(job.id)
        await _tell(corridor.comment, body, job)
        if ending.state is JobState.WAITING and corridor.comment.told_at:
            await waiting.note_shown(memory, at=corridor.comment.told_at)

    async def _park(self, case: Case, corridor: Corridor, ending: Ending, *, heard: int) -> None:
        """Let a job wait for a person or the model; whoever was faster than this has answered, or stopped it."""
        job_id = case.job.id
        await case.memory.remember(_SILENT, "")
        answer = waiting.fact_of_answer(ending.request_id) if ending.request_id else ""
        if corridor.is_to_stop or not await self._queue.park(
            job_id, self._name, until=ending.until, heard=heard, answer=answer
        ):
            await self._queue.release(job_id, self._name)

    async def _ending(self, corridor: Corridor, claimed: Claimed, *, told: bool) -> Ending:
        """Walk the corridor; whatever goes wrong there becomes an ending."""
        try:
            if claimed.exhausted:
                reason = (
                    f"This job was begun {claimed.attempt - 1} times and never came to its end, so it was given up."
                )
                remedy = f"The operator finds the cause in the log under job `{claimed.job.id}`; then ask again."
                return await corridor.give_up(f"{reason} {remedy}") or await corridor.failed(reason, remedy, told=told)
            return await corridor.walk()
        except GitHubError as error:
            if error.passing:
                raise
            return await corridor.failed(str(error))
        except (WorkspaceError, RepoConfigError) as error:
            return await corridor.failed(error.reason, error.remedy)
        except LeaseLostError:
            raise
        except (BotError, AgentError) as error:
            return await corridor.failed(str(error))
        except Exception:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("job %s: a fault of the bot's own", claimed.job.id)
            return await corridor.failed(
                "The bot has a fault of its own.", f"The operator finds it in the log under job `{claimed.job.id}`."
            )

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


class Ears:
    """Hears what people say to a job while it is walked.

    Attributes:
        heard: the number of the last signal that was passed on.
    """

    def __init__(self, queue: Queue, job_id: str, hear: Callable[[Signal], None]) -> None:
        self._queue = queue
        self._job_id = job_id
        self._hear = hear
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
            self._hear(signal)
            self.heard = number


async def _tell(comment: StatusComment, body: str, job: Job) -> None:
    """Tell the ending; where GitHub will not take it (archived, conversation or comment gone), the log has it."""
    try:
        await comment.put(body)
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("job %s: its ending could not be told: %s", job.id, error)
