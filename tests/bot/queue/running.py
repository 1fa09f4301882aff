"""An engine with a worker whose handler does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, PendingReport
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, Slots

DONE = JobEnded(state=JobState.DONE)
SECONDS = 60.0
"""A deadline, for a machine that is busy."""


@dataclass
class Scripted:
    """Handles jobs as it is told to, and keeps what it saw.

    Attributes:
        dispositions: what becomes of each job, by its id, in the order of its attempts; then it is done.
        doing: what is done in each attempt, by the job's id.
        takes: whether GitHub takes an ending, in the order of the tries.
        handled: each attempt: the job's id, the number, and the deaths if there are any.
    """

    dispositions: dict[str, list[Disposition]] = field(default_factory=dict)
    doing: dict[str, Callable[[JobAttempt], Awaitable[object]]] = field(default_factory=dict)
    takes: list[bool] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        job_id = attempt.job.id
        self.handled.append(f"{job_id} {attempt.number}" + (f" +{attempt.deaths}" if attempt.deaths else ""))
        async with attempt.listen(lambda signal: self.signals.append(signal.id)):
            if job_id in self.doing:
                await self.doing[job_id](attempt)
        left = self.dispositions.get(job_id)
        return left.pop(0) if left else DONE

    async def report(self, report: PendingReport) -> bool:
        self.reports.append(f"{report.job_id} {report.tries}")
        return self.takes.pop(0) if self.takes else True


class Running:
    """A store, an engine on it, and a worker of this process."""

    def __init__(self, store: JobStore, slots: Slots) -> None:
        self.store, self.slots = store, slots
        self.engine, self.handler = DurableEngine(store), Scripted()
        self.worker: DurableWorker | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, jobs_at_once: int = 4) -> None:
        self.worker = DurableWorker(self.store, self.handler, jobs_at_once=jobs_at_once, slots=self.slots)
        self._task = asyncio.create_task(self.worker.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def ended(self) -> None:
        """Wait for the worker to end by itself, and raise what it ended with."""
        assert self._task is not None
        async with asyncio.timeout(SECONDS):
            await self._task

    async def until(self, question: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something to become true.

        Raises:
            TimeoutError: it does not.
        """
        pause = 0.02
        async with asyncio.timeout(SECONDS):
            while not await question():
                if self._task is not None and self._task.done():
                    self._task.result()
                await asyncio.sleep(pause)
                pause = min(pause * 1.3, 0.1)  # what is asked often is a transaction of its own

    async def until_state(self, job_id: str, state: JobState) -> None:
        async def stands() -> bool:
            stored = await self.engine.get(job_id)
            return stored is not None and stored.state is state

        await self.until(stands)
