"""Acknowledge a command as soon as it is stored, while its job still waits for others."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from agent_runtime import AgentError
from bot.domain.errors import BotError, QueueError
from bot.domain.job import Job
from bot.jobs.context import JobContextFactory
from bot.pipeline.pipeline import JobPipeline

log = logging.getLogger(__name__)

AT_ONCE = 16
WAITING = 200
GREET_SECONDS = 6.0
HELD_SECONDS = 15.0
"""How long a job is kept from the workers for its greeting, so that its comment is made once; it is longer than a
greeting may wait and take, since a request that is given up may still be on its way."""


class Acknowledger:
    """Reacts to commands and makes their comments, in the background. A courtesy: the worker does what it has not.

    Args:
        contexts: makes those of the jobs.
        comments: whether it makes comments; where no agent runs, it is not known what they say of the sandbox.
    """

    def __init__(self, contexts: JobContextFactory, *, comments: bool = True) -> None:
        self._contexts, self._comments = contexts, comments
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def greet(self, job: Job) -> None:
        """Answer the job's command soon; with too many waiting, leave it to the worker."""
        if job.lane != "work":
            return
        if len(self._tasks) >= WAITING:
            task = asyncio.create_task(self._unhold(job))
        else:
            task = asyncio.create_task(self._greet(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, job: Job) -> None:
        try:
            async with asyncio.timeout(GREET_SECONDS), AsyncExitStack() as stack:
                async with self._slots:
                    context = await stack.enter_async_context(self._contexts.opened(job))
                    pipeline = JobPipeline(context)
                    access = await pipeline.greet()
                # A comment has to wait for its turn to write, and others for their reaction meanwhile.
                if access is not None and self._comments:
                    await pipeline.announce(access)
        except TimeoutError:
            # GitHub may still do what it was asked: the job stays held until a worker would see that.
            log.warning("not acknowledged: GitHub did not answer in time")
            return
        except (BotError, AgentError) as error:
            log.warning("not acknowledged: %s", error)
        await self._unhold(job)

    async def _unhold(self, job: Job) -> None:
        try:
            await self._contexts.queue.unhold(job.id)
        except QueueError as error:
            log.warning("the job begins only in some seconds: %s", error)
