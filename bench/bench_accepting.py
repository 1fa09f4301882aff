"""Durable accepts per second of the engine, next to DBOS's enqueues alone; SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from multiprocessing.connection import Connection

from dbos import DBOS, DBOSClient, DBOSConfig

from bench.measure import Figure, percentile
from bench.stores import NewDatabase, stores
from bot.domain.job import Job
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from tests.builders import a_job

JOBS = 2000
_AT_ONCE = 32
_RATE, _SECONDS = 100, 10
_LEAST = {"SQLite": 300, "PostgreSQL": 500}
_MOST_MS = 100
_Do = Callable[[int], Awaitable[object]]


def measure() -> list[Figure]:
    """Accept from one process; count the stored jobs afterwards."""
    with stores() as found:
        return [figure for name, new in found.items() for figure in _store(name, new)]


def job(number: int, *, installation: int = 1) -> Job:
    """A job in a thread of its own."""
    made = a_job(f"job-{number}", number=number + 1, comment_id=number + 1)
    return replace(made, installation=installation)


def _store(name: str, new: NewDatabase) -> list[Figure]:
    url, least = new(), _LEAST[name]
    ours, late = asyncio.run(_accept(url))
    client = asyncio.run(_enqueue_by_client(new()))
    application = _in_a_process(_enqueue_in_application, new())
    beside = f"{ours:.0f}/s; DBOS alone: {client:.0f}/s (client), {application:.0f}/s (application, as installed)"
    return [
        Figure(label=f"accepting a job, {name}", value=1000 / ours, unit="ms", bound=1000 / least, note=beside),
        Figure(label=f"accepting at {_RATE}/s, {name} (p99)", value=late * 1000, unit="ms", bound=_MOST_MS),
    ]


async def _accept(url: str) -> tuple[float, float]:
    store = JobStore(url)
    engine, waits = DurableEngine(store), list[float]()

    async def accept(number: int) -> None:
        begun = time.perf_counter()
        assert await engine.accept(job(number, installation=number % 50 + 1))
        waits.append(time.perf_counter() - begun)

    await engine.accept(job(10**6))
    rate = await _rate(accept)
    assert sum((await engine.counts()).values()) == JOBS + 1
    waits.clear()
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(_RATE * _SECONDS):
            await asyncio.sleep(max(0.0, begun + number / _RATE - time.perf_counter()))
            group.create_task(accept(JOBS + number))
    await store.close()
    return rate, percentile(waits, 0.99)


async def _rate(do: _Do) -> float:
    numbers = iter(range(JOBS))

    async def some() -> None:
        for number in numbers:
            await do(number)

    begun = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))
    return JOBS / (time.perf_counter() - begun)


async def _enqueue_by_client(url: str) -> float:
    logging.getLogger("dbos").setLevel(logging.WARNING)
    DBOS.migrate(url)
    client = DBOSClient(system_database_url=url)

    async def enqueue(number: int) -> None:
        await client.enqueue_async(
            {"workflow_name": "work", "queue_name": "queue", "workflow_id": f"job-{number}"}, f"job-{number}", 1
        )

    rate = await _rate(enqueue)
    assert len(await client.list_workflows_async(load_input=False, load_output=False)) == JOBS
    await asyncio.to_thread(client.destroy)
    return rate


def _in_a_process(measured: Callable[[Connection, str], None], url: str) -> float:
    """Run in a new process, because DBOS leaves state behind."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=measured, args=(theirs, url), daemon=True)
    process.start()
    theirs.close()
    rate: float = ours.recv()
    process.join()
    return rate


def _enqueue_in_application(pipe: Connection, url: str) -> None:
    os.environ["DBOS__APPVERSION"] = "1"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="WARNING"))

    @DBOS.workflow(name="work")
    async def work(job_id: str, leg: int) -> None:
        raise AssertionError((job_id, leg))

    async def main() -> float:
        # Nobody takes anything from it: only what enqueueing costs is measured.
        DBOS.listen_queues([])
        DBOS.launch()
        queue = await DBOS.register_queue_async("queue")

        async def enqueue(number: int) -> None:
            await queue.enqueue_async(work, f"job-{number}", 1)

        return await _rate(enqueue)

    pipe.send(asyncio.run(main()))
    os._exit(0)  # without waiting for its threads
