"""Keep the log of a job's run for the dashboard, before its session is dropped."""

from __future__ import annotations

import asyncio
import logging

from agent_runtime import SessionError
from bot.domain.errors import QueueError
from bot.jobs.context import JobContext
from bot.publishing.run_log import log_of, pack_log

log = logging.getLogger(__name__)


async def keep_log(context: JobContext) -> None:
    """Keep what the session of a job tells, where there is a session and a dashboard; no job fails for that."""
    services, job = context.services, context.job
    if services.history is None:
        return

    def packed() -> tuple[bytes, float | None] | None:
        events = services.session_events(job)
        found = log_of(events, lambda text: services.without_places(services.redactor.redact(text)))
        return (pack_log(found), found.usage.cost_usd) if events else None

    try:
        kept = await asyncio.to_thread(packed)
        if kept is not None:
            await services.history.keep_log(job, kept[0], cost_usd=kept[1])
    except (SessionError, QueueError) as error:
        log.warning("the log of the run is not kept for the dashboard: %s", error)
