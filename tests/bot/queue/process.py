"""A worker in a process of its own.

Each job appends lines to `FOLDER/log`: `begin JOB NAME ATTEMPT`, and `end JOB NAME` once `FOLDER/go` exists.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from bot.domain.job import JobState
from bot.jobs.record import StoredRecord
from bot.queue.engine import DurableEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, PendingReport
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, open_slots


class Logging:
    """Handles jobs by writing down that it does."""

    def __init__(self, engine: DurableEngine, folder: Path, name: str) -> None:
        self._engine, self._folder, self._name = engine, folder, name

    async def handle(self, attempt: JobAttempt) -> Disposition:
        job_id = attempt.job.id
        self._log(f"begin {job_id} {self._name} {attempt.number}")
        async with attempt.listen(lambda _: None):
            await self._told_to_go()
        await StoredRecord(self._engine, job_id).update(lambda record: replace(record, is_acknowledged=True))
        self._log(f"end {job_id} {self._name}")
        return JobEnded(state=JobState.DONE)

    async def _told_to_go(self) -> None:
        while not (self._folder / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)

    async def report(self, report: PendingReport) -> bool:
        self._log(f"tell {report.job_id} {self._name}")
        return True

    def _log(self, line: str) -> None:
        with (self._folder / "log").open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")


def work(database: str, folder: Path, name: str) -> None:
    """Be the worker `name` until it is killed."""

    async def run() -> None:
        store = JobStore(database)
        handler = Logging(DurableEngine(store), folder, name)
        slots = open_slots(store)
        await DurableWorker(store, handler, jobs_at_once=2, slots=slots).run()

    asyncio.run(run())
