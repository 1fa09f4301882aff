"""Name a job in every log line that is written while something is done for it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars

from bot.domain.job import Job


def observed(job: Job, *, attempt: int | None = None) -> AbstractContextManager[None]:
    """Name a job in all that is logged in the body, and in the tasks and threads that are started there.

    Args:
        job: what is being worked for.
        attempt: which one of the job's, where it is run.
    """
    names = {"job": job.id, "delivery": job.delivery_id, "repository": job.repo.full_name, "repository_id": job.repo.id}
    place = {"thread": job.thread.number} if job.thread.has_comments else {}
    return bound_contextvars(**names, **place, **({} if attempt is None else {"attempt": attempt}))
