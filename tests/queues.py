"""An SQLite queue for a test, with a database of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.domain.job import Lane
from bot.engine.database import Database
from bot.engine.queue import SqliteQueue
from tests.clocks import Clock

__all__ = ["Clock", "claimed", "opened_queue", "until_woken"]


@asynccontextmanager
async def opened_queue(path: Path, clock: Clock | None = None) -> AsyncIterator[SqliteQueue]:
    """A queue in the file `path`, which is closed when the body ends."""
    database = Database(path)
    try:
        yield SqliteQueue(database, clock=clock or Clock())
    finally:
        await database.close()


async def claimed(queue: SqliteQueue, worker: str = "w1", *, lane: Lane = "work") -> str | None:
    """Claim for a minute; the id of the job, or None when there was none."""
    found = await queue.claim(worker, 60, lane=lane)
    return found.job.id if found else None


async def until_woken(queue: SqliteQueue) -> None:
    """Wait until work wakes those who wait for it.

    Raises:
        TimeoutError: nothing did; the queue's own wait would just end one day.
    """
    async with asyncio.timeout(10):
        await queue.wait_for_work(3600)
