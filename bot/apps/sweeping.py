"""Clean up, beside the jobs of a service: mirrors every hour, and once a day what has been kept long enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from bot.domain.errors import BotError
from bot.engine.queue import SqliteQueue
from bot.jobs.services import JobServices
from bot.workspace import WorkspaceError

log = logging.getLogger(__name__)

_HOUR_SECONDS = 3600.0
_HOURS = 24


async def _keep_swept(shared: JobServices, queue: SqliteQueue) -> None:
    """Tidy the mirrors every hour, beside the jobs; sweep once a day, for a service that is never restarted."""
    while True:
        for _ in range(_HOURS):
            with _logged("some mirrors were not cleaned up"):
                await shared.workspaces.tidy()
            await asyncio.sleep(_HOUR_SECONDS)
        with _logged("the daily sweep failed"):
            await _sweep(shared, queue)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Go on after a failure: what is kept too long harms nobody, and the next time tries again."""
    try:
        yield
    except (BotError, OSError):
        log.exception(what)


@asynccontextmanager
async def kept_swept(shared: JobServices, queue: SqliteQueue) -> AsyncIterator[None]:
    """Sweep now, and every day while the body runs."""
    await _sweep(shared, queue)
    task = asyncio.create_task(_keep_swept(shared, queue))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sweep(shared: JobServices, queue: SqliteQueue) -> None:
    """Clean up what killed workers left, and what has been kept long enough."""
    live = await queue.live_ids()
    try:
        # First, as the workspaces may take minutes, in which other jobs begin.
        await asyncio.to_thread(shared.sweep_sessions, live)
        await shared.workspaces.sweep(live)
        await asyncio.to_thread(shared.work.sweep, shared.keep_days, keep=live)
    except (WorkspaceError, OSError):  # files that are kept too long must not keep the bot from starting
        log.exception("some files of ended jobs could not be removed; the next sweep tries again")
    await queue.sweep(shared.keep_days)
