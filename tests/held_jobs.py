"""Jobs of an engine that run until the test says what becomes of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from bot.domain.job import Lane
from bot.queue.protocols import Disposition, JobAttempt, JobHandler, PendingReport


class Runner(Protocol):
    """Runs jobs one by one: an engine in memory, or `Legs` of a durable one."""

    async def run_next(self, handler: JobHandler, lane: Lane = "work") -> bool: ...


class HeldJobs:
    """Handles jobs by waiting for `end`.

    Args:
        runner: where jobs come from.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._begun: asyncio.Queue[str] = asyncio.Queue()
        self._running: dict[str, tuple[asyncio.Task[bool], asyncio.Future[Disposition]]] = {}

    async def begin(self, lane: Lane = "work") -> str | None:
        """Have the next job of a lane run; its id, or None when none may run."""
        ends = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self._runner.run_next(_Waiting(self._begun, ends), lane))
        begins = asyncio.create_task(self._begun.get())
        await asyncio.wait((running, begins), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            begins.cancel()
            assert not running.result()
            return None
        job_id = begins.result()
        self._running[job_id] = running, ends
        return job_id

    async def end(self, job_id: str, disposition: Disposition) -> None:
        """Let a job that runs come to this."""
        running, ends = self._running.pop(job_id)
        ends.set_result(disposition)
        assert await running

    async def cut_off(self, job_id: str) -> None:
        """Cancel a job that runs, as the end of its process does."""
        running, _ = self._running.pop(job_id)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


class _Waiting:
    """Handles one job."""

    def __init__(self, begun: asyncio.Queue[str], ends: asyncio.Future[Disposition]) -> None:
        self._begun, self._ends = begun, ends

    async def handle(self, attempt: JobAttempt) -> Disposition:
        self._begun.put_nowait(attempt.job.id)
        return await self._ends

    async def report(self, report: PendingReport) -> bool:
        return True
