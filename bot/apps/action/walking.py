"""Run the jobs of a workflow's step one after another, in this process."""

from __future__ import annotations

import logging
from pathlib import Path

from bot.control.save_artifact import save
from bot.domain.errors import BotError
from bot.domain.job import Job, JobState
from bot.engine.protocols import JobEngine
from bot.engine.records import Signal, Stored
from bot.engine.work_loop import WorkLoop
from bot.jobs.context import JobContextFactory

log = logging.getLogger(__name__)


async def walk(contexts: JobContextFactory, loop: WorkLoop, job: Job) -> tuple[Stored, Path | None]:
    """Walk a job to its end, and then what it began, or has had go on.

    Returns:
        The last of them as it stands, and the file with its sealed state when it waits for a person.
    """
    last = await _walked(contexts.queue, loop, job.id)
    if contexts.services.handover is None:
        return last, None
    while (next_id := await _queued(contexts.queue, job)) is not None:
        last = await _walked(contexts.queue, loop, next_id)
    return await _left(contexts, loop, last)


async def _walked(queue: JobEngine, loop: WorkLoop, job_id: str) -> Stored:
    """Walk a job, and then the work that it began."""
    stored = await loop.run_job(job_id)
    begun = (await queue.record(job_id)).leads_to
    return stored if begun is None else await _walked(queue, loop, begun)


async def _queued(queue: JobEngine, job: Job) -> str | None:
    """The oldest job of the thread that an answer has woken, or that follows on another one."""
    queued = [
        each.job.id for each in await queue.of_thread(job.repo.id, job.thread.key) if each.state is JobState.QUEUED
    ]
    return queued[-1] if queued else None


async def _left(contexts: JobContextFactory, loop: WorkLoop, last: Stored) -> tuple[Stored, Path | None]:
    """Save a job that waits; one that cannot be is stopped, and what it did is kept as ever."""
    if last.state is not JobState.WAITING:
        return last, None
    job = last.job
    try:
        async with contexts.case(job) as context:
            return last, await save(context)
    except BotError as error:
        log.warning("job %s: not stored for a later run: %s", job.id, error)
        stop = Signal(
            kind="stop", text=f"The run requires an answer and cannot wait for one. {error}", by="", id="not kept"
        )
    await contexts.queue.send(job.id, stop)
    await contexts.queue.wake(job.id)
    return await _walked(contexts.queue, loop, job.id), None
