"""Acknowledge commands before a worker is free: react with 👀, and post the comment of the queued job."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from agent_runtime import AgentError
from bot.domain.errors import BotError, QueueError
from bot.domain.job import ENDED_STATES, Job
from bot.github.types import AppRemovedError
from bot.jobs.access import AccessCheck, check_access, fetch_snapshot
from bot.jobs.context import JobContext, JobContextFactory
from bot.jobs.pipeline import decide_early, restore_start
from bot.jobs.status import status_view
from bot.permissions.levels import Grant
from bot.publishing.outcome import ENDED

log = logging.getLogger(__name__)
_SHORT_LINE = 3
"""With more writes waiting than this, the queued comment would delay reports."""
MAX_CONCURRENT = 16
MAX_WAITING = 200
ACKNOWLEDGE_SECONDS = 6.0
"""Time in which the comment of a queued job is posted; later its worker does."""
REACTION_SECONDS = 90.0
"""Time in which the reaction is made, which goes before every other write."""
HOLD_SECONDS = 15.0
"""Time to hold a job back so that its comment is posted once: longer than an acknowledgement and its late requests."""


class Acknowledger:
    """React to commands and post their comments in the background; the worker does whatever is missing.

    Args:
        comments: false without an agent, where the sandbox is unknown.
    """

    def __init__(self, contexts: JobContextFactory, *, comments: bool = True) -> None:
        self._contexts, self._comments = contexts, comments
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._tasks: set[asyncio.Task[None]] = set()

    def acknowledge(self, job: Job) -> None:
        """Acknowledge a job soon, unless too many are waiting."""
        if job.lane != "work":
            return
        if len(self._tasks) >= MAX_WAITING:
            task = asyncio.create_task(self._release_hold(job))
        else:
            task = asyncio.create_task(self._acknowledge(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _acknowledge(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ACKNOWLEDGE_SECONDS
        try:
            async with asyncio.timeout(REACTION_SECONDS), AsyncExitStack() as stack:
                async with self._slots:
                    context = await stack.enter_async_context(self._contexts.open(job))
                    access = await react_to_command(context)
                # A comment has to wait for its turn to write, and others for their reaction meanwhile.
                if access is not None and self._comments and loop.time() < deadline:
                    async with asyncio.timeout_at(deadline):
                        await post_queued_comment(context, access)
        except TimeoutError:
            # GitHub may still do what it was asked: the job stays held until a worker would see that.
            log.warning("not acknowledged: GitHub did not answer in time")
            return
        except AppRemovedError:
            pass  # the end of the job says so
        except (BotError, AgentError) as error:
            log.warning("not acknowledged: %s", error)
        await self._release_hold(job)

    async def _release_hold(self, job: Job) -> None:
        try:
            await self._contexts.queue.release_hold(job.id)
        except QueueError as error:
            log.warning("the job begins only in some seconds: %s", error)


async def react_to_command(context: JobContext) -> AccessCheck | None:
    """React to a permitted command before its job runs; return the access check, or None if no comment is due."""
    job = context.job
    if job.lane != "work" or job.is_from_event:
        return None
    access = context.state.access = await check_access(context.github, job, bounds=context.services.bounds)
    if not access.may_command:
        return None
    record = await context.record.read()
    if not record.is_acknowledged and await context.react("eyes"):
        await context.record.update(lambda record: replace(record, is_acknowledged=True))
    context.access_checks.put(job.id, access)
    return access


async def post_queued_comment(context: JobContext, access: AccessCheck) -> None:
    """Post the comment of a permitted job, unless many writes wait."""
    state = context.state
    if state.comment.is_quiet or context.github.waiting_writes > _SHORT_LINE:
        return
    await restore_start(context)
    if not isinstance(await decide_early(context, fetch_snapshot(context.job, access)), Grant):
        return
    stored = await context.queue.get(context.job.id)
    if stored is None or stored.state in ENDED_STATES:
        return
    await state.comment.show(status_view(context, is_queued=True))
    now = time.time()
    record = await state.record.update(lambda record: replace(record, greeted_at=now))
    # The job may have been cancelled meanwhile, and this comment must not hide that.
    stored = await context.queue.get(context.job.id)
    if record.ending is not None:
        await state.comment.put(record.ending.body)
    elif stored is not None and stored.state in ENDED_STATES:
        await state.comment.show(status_view(context, ENDED[stored.state](reason=stored.reason)))
