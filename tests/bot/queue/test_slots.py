"""The places of workers: each is one worker's for as long as it lives."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.domain.errors import QueueError
from bot.queue.worker import FileSlots, PostgresSlots, Slots
from tests.durable import is_free
from tests.source_files import ROOT

_PRESENT = """
import asyncio, sys
from pathlib import Path
from bot.queue.worker import FileSlots, PostgresSlots

async def stay(where):
    slots = PostgresSlots(where) if "://" in where else FileSlots(Path(where))
    print(await slots.take(), flush=True)
    await asyncio.Event().wait()

asyncio.run(stay(sys.argv[1]))
"""


@pytest.fixture(params=["files", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, or the address of a database."""
    return str(tmp_path / "workers" if request.param == "files" else request.getfixturevalue("postgres_url"))


@pytest.fixture
async def slots(where: str) -> AsyncIterator[list[Slots]]:
    """Those of three workers."""
    async with AsyncExitStack() as stack:
        made: list[Slots] = [PostgresSlots(where) if "://" in where else FileSlots(Path(where)) for _ in range(3)]
        for each in made:
            stack.push_async_callback(each.close)
        yield made


async def test_each_worker_has_the_lowest_place_that_is_free(slots: list[Slots]) -> None:
    assert [await each.take() for each in slots[:2]] == [0, 1]
    await slots[0].close()
    assert await slots[2].take() == 0


async def test_the_living_are_not_taken_for_dead(slots: list[Slots]) -> None:
    for each in slots[:2]:
        await each.take()
    assert [await is_free(slots[0], number) for number in (1, 2)] == [False, True]
    # To look does not take it.
    assert [await is_free(slots[1], number) for number in (0, 2)] == [False, True]
    assert [await each.still_taken() for each in slots[:2]] == [True, True]


async def test_nobody_takes_the_place_of_a_dead_worker_while_its_jobs_are_given_to_others(slots: list[Slots]) -> None:
    assert await slots[0].take() == 0
    async with slots[0].vacant(1) as free:
        assert free
        assert await slots[1].take() == 2
    assert await slots[2].take() == 1


async def test_the_place_of_a_worker_that_was_killed_is_free(slots: list[Slots], where: str) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PRESENT, where, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"0\n"
    assert await slots[0].take() == 1
    assert not await is_free(slots[0], 0)
    other.kill()
    await other.communicate()
    async with asyncio.timeout(10):
        while not await is_free(slots[0], 0):  # noqa: ASYNC110 - the server has to see it first
            await asyncio.sleep(0.02)
    assert await slots[1].take() == 0


async def test_a_server_that_cannot_be_reached_is_an_error_of_the_database() -> None:
    with pytest.raises(QueueError, match="cannot be reached"):
        await PostgresSlots("postgresql://nobody:x@127.0.0.1:9/none").take()
