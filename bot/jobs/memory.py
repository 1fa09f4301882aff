"""What one job has done so far, kept in the queue so that a restart does nothing twice."""

from __future__ import annotations

from bot.jobs.queue import Queue


class JobMemory:
    """The facts that the queue keeps about one job."""

    def __init__(self, queue: Queue, job_id: str) -> None:
        self._queue = queue
        self._job_id = job_id

    async def recall(self, key: str) -> str | None:
        """The value kept under `key`, or None."""
        return (await self._queue.recall(self._job_id)).get(key)

    async def remember(self, key: str, value: str) -> None:
        """Keep `value` under `key`; it is on disk when this returns."""
        await self._queue.remember(self._job_id, key, value)

    async def remember_once(self, key: str, value: str) -> bool:
        """Keep `value` under `key` when nothing is kept there; False when something is, which stays."""
        return await self._queue.remember_once(self._job_id, key, value)
