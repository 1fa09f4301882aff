"""Run the jobs of a workflow's step one after another, in this process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from bot.control.save_artifact import save
from bot.domain.errors import BotError
from bot.domain.job import Job, JobState
from bot.engine.records import Signal, Stored
from bot.jobs.context import JobContextFactory

log = logging.getLogger(__name__)


async def run_jobs(
    contexts: JobContextFactory, run_job: Callable[[str], Awaitable[Stored]], job: Job
) -> tuple[Stored, Path | None]:
    """Run a job, and then every job that it starts or resumes.

    Args:
        contexts: where the jobs are.
        run_job: runs the job with an id until it has ended, or waits.
        job: the first.

    Returns:
        The last of them as it stands, and the file with its sealed state when it waits for a person.
    """
    queue, resumes = contexts.queue, contexts.services.handover is not None
    last = await run_job(job.id)
    while True:
        next_id = (await queue.record(last.job.id)).leads_to
        if next_id is None and resumes:
            of_thread = await queue.of_thread(job.repo.id, job.thread.key)
            # The oldest one that an answer has woken, or that follows another job.
            next_id = next((each.job.id for each in reversed(of_thread) if each.state is JobState.QUEUED), None)
        if next_id is None:
            break
        last = await run_job(next_id)
    if not resumes or last.state is not JobState.WAITING:
        return last, None
    try:
        async with contexts.opened(last.job) as context:
            return last, await save(context)
    except BotError as error:
        log.warning("job %s: not stored for a later run: %s", last.job.id, error)
        why = f"The run requires an answer and cannot wait for one. {error}"
    await queue.send(last.job.id, Signal(kind="stop", text=why, by="", id="not kept"))
    await queue.wake(last.job.id)
    return await run_job(last.job.id), None
