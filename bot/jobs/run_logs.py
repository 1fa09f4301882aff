"""Keep the log of a job's run for the dashboard, before its session is dropped."""

from __future__ import annotations

import asyncio
import logging

from agent_runtime import SessionError
from bot.domain.errors import QueueError
from bot.domain.job import Job
from bot.jobs.services import JobServices
from bot.publishing.run_log import following, log_of, pack_log, unpack_log

log = logging.getLogger(__name__)


async def keep_log(services: JobServices, job: Job) -> None:
    """Keep what the session of a job tells, where there is a session and a dashboard; no job fails for that."""
    if services.history is None:
        return

    def packed(before: bytes | None) -> tuple[bytes, float | None] | None:
        events = services.session_events(job)
        told = log_of(events, lambda text: services.without_places(services.redactor.redact(text)))
        found = following(told, None if before is None else unpack_log(before))
        return (pack_log(found), found.usage.cost_usd) if events else None

    try:
        kept = await asyncio.to_thread(packed, await services.history.log_of(job.id))
        if kept is not None:
            await services.history.keep_log(job, kept[0], cost_usd=kept[1])
    except (SessionError, QueueError) as error:
        log.warning("the log of the run is not kept for the dashboard: %s", error)
    except Exception:  # also where a job is given up for a fault of ours, which may be this one
        log.exception("the log of the run is not kept for the dashboard")
