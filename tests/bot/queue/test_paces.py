"""All workers of a database together keep the pause between writes that GitHub asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.github.rate_limit import RequestPace
from bot.queue.ledger import reserve_write
from bot.queue.store import JobStore
from tests.clocks import Clock

SECONDS = 1.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database: str, clock: Clock) -> AsyncIterator[tuple[JobStore, JobStore]]:
    """Those of two workers."""
    both = JobStore(database, clock=clock), JobStore(database, clock=clock)
    yield both
    for store in both:
        await store.close()


async def test_writes_of_two_workers_are_spread_and_those_of_installations_are_apart(
    stores: tuple[JobStore, JobStore], clock: Clock
) -> None:
    ours, theirs = (reserve_write(store, 30) for store in stores)
    waits = await asyncio.gather(*(reserve(SECONDS) for reserve in (ours, theirs) * 3))
    assert sorted(waits) == [0, 1, 2, 3, 4, 5]
    assert await reserve_write(stores[0], 31)(SECONDS) == 0
    clock.now += 100
    assert await theirs(SECONDS) == 0


async def test_a_clock_that_was_set_back_stops_nobody(stores: tuple[JobStore, JobStore], clock: Clock) -> None:
    reserve = reserve_write(stores[0], 30)
    await reserve(SECONDS)
    clock.now -= 3600
    assert await reserve(SECONDS) == 0
    assert await reserve(SECONDS) == SECONDS


async def test_a_turn_to_write_waits_for_the_writes_of_others(stores: tuple[JobStore, JobStore]) -> None:
    asked = []

    async def reserve(seconds: float) -> float:
        asked.append(seconds)
        return 0.0

    pace = RequestPace(0.5, reserve)
    async with pace.turn():
        assert asked == [0.5]


async def test_a_database_that_is_gone_stops_no_write(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    reserve = reserve_write(store, 30)
    await reserve(SECONDS)
    (tmp_path / "jobs.sqlite").unlink()
    assert await reserve(SECONDS) == 0
    await store.close()
