"""Delay of accepted jobs, the effect of a crowd on others, and many jobs on two workers; on both stores.

`make bench` queues 2,000 jobs for the two workers. All 10,000: `python -m bench.bench_engine`.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from bench.bench_accepting import job
from bench.measure import Figure, percentile, table
from bench.stores import NewDatabase, stores
from bot.domain.commands import Stop
from bot.domain.job import Job, JobState
from bot.queue.engine import DurableEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, PendingReport
from bot.queue.records import Signal
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, open_slots
from tests.builders import a_job

JOBS = 10_000
_SHORT_JOBS = 2000
_THREADS, _WORKERS, _AT_ONCE = 500, 2, 20
_WHALE, _JOB_SECONDS = 1000, 1.0
_TIMES = 20
_BOUND = 2
_LONG = "long"


def measure(jobs: int = _SHORT_JOBS) -> list[Figure]:
    """Measure the delay with a worker in this process, then throughput with two in processes of their own."""
    with stores() as found:
        return [figure for name, new in found.items() for figure in (*_soon(name, new), *_many(name, new, jobs))]


@dataclass
class _Handler:
    """Jobs end at once; those of the whale after a while; one goes on, and notes that it is told to stop."""

    engine: DurableEngine
    start_times: dict[str, float] = field(default_factory=dict)
    stopped: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    spread: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - spreads, and protects nothing

    async def handle(self, attempt: JobAttempt) -> Disposition:
        self.start_times.setdefault(attempt.job.id, time.perf_counter())
        async with self.changed:
            self.changed.notify_all()
        if attempt.job.lane == "steer":
            await self.engine.send(_LONG, Signal(kind="stop", text="", by="mona", id=attempt.job.id))
        elif attempt.job.id == _LONG:
            async with attempt.listen(lambda signal: self.stopped.put_nowait(signal.id)):
                await asyncio.Event().wait()  # until the worker ends
        elif attempt.job.installation == _WHALE:
            await asyncio.sleep(_JOB_SECONDS)
        return JobEnded(state=JobState.DONE)

    async def report(self, report: PendingReport) -> bool:
        raise AssertionError(report)

    async def beginning_of(self, job_id: str) -> float:
        async with self.changed:
            await self.changed.wait_for(lambda: job_id in self.start_times)
        return self.start_times[job_id]

    async def start_of(self, job: Job) -> float:
        """Accept a job; the seconds until it begins."""
        await asyncio.sleep(self.spread.uniform(0.0, 0.5))  # or each would come just after the worker has looked
        accepted_at = time.perf_counter()
        await self.engine.accept(job)
        return await self.beginning_of(job.id) - accepted_at


def _soon(name: str, new: NewDatabase) -> list[Figure]:
    starts, others, stops = asyncio.run(_on_one_worker(new()))
    beside, gaps = asyncio.run(_with_a_bound(new()))
    return [
        Figure(label=f"from accepting a job to its start, {name} (median)", value=1000 * percentile(starts, 0.5),
               unit="ms", bound=200, note=f"most: {1000 * max(starts):.0f} ms"),
        Figure(label=f"the same beside {_WHALE} jobs of another installation, {name} (most)", value=max(others),
               unit="s", bound=2, note=f"median: {percentile(others, 0.5):.2f} s"),
        Figure(label=f"the same beside {_WHALE} jobs of a repository of the same installation, {name} (most)",
               value=max(beside), unit="s", bound=2, note=f"median: {percentile(beside, 0.5):.2f} s"),
        Figure(label=f"from the end of a job to the start of the next, {_BOUND} of a repository at once, {name} (most)",
               value=max(gaps), unit="s", bound=1, note=f"median: {percentile(gaps, 0.5):.2f} s"),
        Figure(label=f"from accepting `stop` to the job that hears it, beside these, {name} (most)", value=max(stops),
               unit="s", bound=2, note=f"median: {percentile(stops, 0.5):.2f} s"),
    ]  # fmt: skip


async def _on_one_worker(url: str) -> tuple[list[float], list[float], list[float]]:
    store = JobStore(url)
    engine = DurableEngine(store)
    handler = _Handler(engine)
    worker = DurableWorker(store, handler, jobs_at_once=_AT_ONCE, slots=open_slots(store))
    running = asyncio.create_task(worker.run())

    async def start_of(number: int, installation: int) -> float:
        return await handler.start_of(job(number, installation=installation))

    await start_of(0, 1)
    starts = [await start_of(number + 1, 1) for number in range(_TIMES)]
    await engine.accept(replace(a_job(_LONG, number=1_000_000, comment_id=1_000_000), installation=2))
    await handler.beginning_of(_LONG)
    for number in range(_WHALE):
        await engine.accept(job(10_000 + number, installation=_WHALE))
    others = [await start_of(20_000 + number, 3 + number) for number in range(_TIMES)]
    stops = list[float]()
    for number in range(_TIMES):
        stop = a_job(f"stop-{number}", number=1_000_000, comment_id=2_000_000 + number, command=Stop())
        begun = time.perf_counter()
        await engine.accept(replace(stop, installation=2))
        assert await asyncio.wait_for(handler.stopped.get(), 30) == f"stop-{number}"
        stops.append(time.perf_counter() - begun)
    assert (await engine.counts())[JobState.QUEUED], "the crowd has gone before the end"
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    return starts, others, stops


async def _with_a_bound(url: str) -> tuple[list[float], list[float]]:
    """Many jobs of one repository: the starts of jobs of others beside them, and the pauses between two of its own."""
    store = JobStore(url, jobs_of_repository=_BOUND)
    engine = DurableEngine(store)
    handler = _Handler(engine)
    crowd = [job(number, installation=_WHALE) for number in range(_WHALE)]
    await asyncio.gather(*map(engine.accept, crowd))
    running = asyncio.create_task(DurableWorker(store, handler, jobs_at_once=_AT_ONCE, slots=open_slots(store)).run())
    await handler.beginning_of(crowd[0].id)
    beside = list[float]()
    for number in range(_TIMES):
        made = job(20_000 + number, installation=_WHALE)
        beside.append(await handler.start_of(replace(made, repo=replace(made.repo, id=made.repo.id + 1 + number))))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    begun = sorted(handler.start_times[each.id] for each in crowd if each.id in handler.start_times)
    return beside, [later - earlier - _JOB_SECONDS for earlier, later in zip(begun, begun[_BOUND:], strict=False)]


def _many(name: str, new: NewDatabase, jobs: int) -> list[Figure]:
    url = new()
    asyncio.run(_queue(url, jobs))
    with tempfile.TemporaryDirectory() as directory:
        folder, begun = Path(directory), time.perf_counter()
        with _workers(url, folder):
            asyncio.run(_wait_for_jobs(url, jobs))
            seconds = time.perf_counter() - begun
        lines = [line.split() for path in folder.glob("*.log") for line in path.read_text().splitlines()]
    times = Counter(line[0] for line in lines)
    of_thread: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, thread, began, ended in lines:
        of_thread[thread].append((int(began), int(ended)))
    overlaps = sum(
        later[0] < earlier[1] for spans in map(sorted, of_thread.values()) for earlier, later in pairwise(spans)
    )
    what = f"of {jobs:,} jobs of {len(of_thread)} threads on {_WORKERS} workers, {name}"
    return [
        Figure(label=f"lost {what}", value=jobs - len(times), unit="jobs", bound=1),
        Figure(label=f"run twice {what}", value=sum(count > 1 for count in times.values()), unit="jobs", bound=1),
        Figure(label=f"overlaps in a thread {what}", value=overlaps, unit="jobs", bound=1),
        Figure(label=f"time for each {what}", value=1000 * seconds / jobs, unit="ms", note=f"{jobs / seconds:.0f}/s"),
    ]


async def _queue(url: str, jobs: int) -> None:
    store = JobStore(url)
    engine = DurableEngine(store)
    for start in range(0, jobs, 50):
        numbers = range(start, min(start + 50, jobs))
        made = (a_job(f"job-{each}", number=each % _THREADS + 1, comment_id=each + 1) for each in numbers)
        await asyncio.gather(*(engine.accept(replace(each, installation=each.thread.key % 50 + 1)) for each in made))
    await store.close()


@contextmanager
def _workers(url: str, folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(_WORKERS):
            argv = [sys.executable, "-m", "bench.engine_worker", url, str(folder), str(_AT_ONCE)]
            process = stack.enter_context(subprocess.Popen(argv, cwd=Path(__file__).parent.parent))
            stack.callback(process.kill)
        yield


async def _wait_for_jobs(url: str, jobs: int) -> None:
    store = JobStore(url)
    engine, deadline = DurableEngine(store), time.monotonic() + 1800
    while (done := (await engine.counts())[JobState.DONE]) < jobs:
        assert time.monotonic() < deadline, f"{done} of {jobs} jobs are done"
        await asyncio.sleep(0.5)
    await store.close()


if __name__ == "__main__":
    print(table(measure(JOBS)))
