"""A worker whose jobs do nothing but write down when: python -m bench.engine_worker DATABASE FOLDER JOBS_AT_ONCE.

Each attempt appends a line to a file of the worker in `FOLDER`: `JOB THREAD BEGUN ENDED`, in nanoseconds of the clock
that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from bot.domain.job import JobState
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, PendingReport
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, open_slots

WORK_SECONDS = 0.01


class _Recorder:
    def __init__(self, folder: Path) -> None:
        self._log = (folder / f"{os.getpid()}.log").open("a", encoding="utf-8", buffering=1)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        begun = time.monotonic_ns()
        await asyncio.sleep(WORK_SECONDS)
        self._log.write(f"{attempt.job.id} {attempt.job.thread.key} {begun} {time.monotonic_ns()}\n")
        return JobEnded(state=JobState.DONE)

    async def report(self, report: PendingReport) -> bool:
        raise AssertionError(report)


async def _main(url: str, folder: Path, jobs_at_once: int) -> None:
    store = JobStore(url)
    slots = open_slots(store)
    await DurableWorker(store, _Recorder(folder), jobs_at_once=jobs_at_once, slots=slots).run()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
