"""Trouble of machines: a disk that is full, a database that can only be read, a clock that jumps, two for one place."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from bot.domain.errors import QueueError
from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.protocols import JobParked
from bot.queue.store import JobStore
from bot.queue.worker import PostgresSlots, slots_of
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.durable import is_free


async def test_workers_of_one_database_never_have_the_same_place_wherever_their_data_is(database: str) -> None:
    stores = [JobStore(database), JobStore(database)]
    first, second = (slots_of(each) for each in stores)
    taken = [await first.take(), await second.take()]
    assert len(set(taken)) == 2
    assert not await is_free(second, taken[0])
    await first.close()
    assert await is_free(second, taken[0])
    assert await second.still_taken()
    await second.close()
    for each in stores:
        await each.close()


async def test_a_worker_whose_connection_is_lost_is_told_so_whatever_it_asks(postgres_url: str) -> None:
    slots = PostgresSlots(postgres_url)
    await slots.take()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    with pytest.raises(QueueError, match="was lost"):
        await is_free(slots, 7)
    assert not await slots.still_taken()
    await slots.close()


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Let no file grow beyond the size that one has now, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_refuses_jobs_and_loses_none_that_was_accepted(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    accepted = [f"j{number}" for number in range(20)]
    for number, job_id in enumerate(accepted):
        assert await engine.accept(a_job(job_id, number=number))

    async def fill() -> None:
        for number in range(1000):
            await engine.accept(a_job(f"more{number}", number=100 + number))
            accepted.append(f"more{number}")

    with full(tmp_path / "jobs.sqlite-wal"), pytest.raises(QueueError, match="disk has space"):
        await fill()
    assert await engine.accept(a_job("after", number=5000))
    assert await engine.live_ids() == {*accepted, "after"}
    await store.close()


async def test_a_database_that_can_only_be_read_is_told_and_takes_jobs_again_later(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    store = JobStore(postgres_url)
    engine = DurableEngine(store)
    await engine.accept(a_job())
    with psycopg.connect(postgres_url.replace(f"/{name}", "/postgres"), autocommit=True) as server:
        for only_read in ("on", "off"):
            server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {only_read}".encode())
            server.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            if only_read == "on":
                for refused in (engine.check(), engine.accept(a_job("refused", number=8))):
                    with pytest.raises(QueueError, match="read-only"):
                        await refused
    await engine.check()
    assert await engine.accept(a_job("later", number=9))
    assert await engine.live_ids() == {"j1", "later"}
    await store.close()


async def test_a_clock_that_jumps_loses_no_job(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = [7200.0]
    monkeypatch.setattr(running.store, "clock", lambda: time.time() + shift[0])
    running.handler.dispositions = {"waits": [JobParked(until=time.time() + 3600)]}
    await running.engine.accept(a_job("held"), held_seconds=0.2)
    shift[0] = 0.0
    await running.engine.accept(a_job("waits", number=8))
    running.start()
    await running.until_state("held", JobState.DONE)
    await running.until_state("waits", JobState.WAITING)
    shift[0] = -7200.0
    await running.engine.accept(a_job("early", number=9))
    await running.until_state("early", JobState.DONE)
    assert await running.engine.wake("waits")
    await running.until_state("waits", JobState.DONE)
