"""Which workers are alive, told by the kernel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from bot.engine.database import Database
from bot.engine.queue import SqliteQueue
from bot.engine.worker_presence import present
from tests.builders import a_job

_PRESENT = """
import asyncio, sys
from pathlib import Path
from bot.engine.worker_presence import present

async def nobody(dead):
    assert not dead, dead

async def stay():
    async with present(Path(sys.argv[1]), "other", on_death=nobody):
        print("here", flush=True)
        await asyncio.Event().wait()

asyncio.run(stay())
"""


class Obituary:
    """Who was said to be dead, a list a time."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    async def __call__(self, dead: Collection[str]) -> None:
        self.told.append(list(dead))


async def test_the_living_are_not_taken_for_dead(tmp_path: Path) -> None:
    told = Obituary()
    async with present(tmp_path, "one", on_death=told), present(tmp_path, "two", on_death=told):
        pass
    async with present(tmp_path, "three", on_death=told):
        pass
    assert told.told == [[], [], []]


async def test_who_was_killed_is_told_of_once(tmp_path: Path) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PRESENT, tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"here\n"
    told = Obituary()
    async with present(tmp_path, "one", on_death=told):
        assert told.told == [[]]
    other.kill()
    await other.communicate()
    async with present(tmp_path, "two", on_death=told), present(tmp_path, "three", on_death=told):
        pass
    assert told.told == [[], ["other"], []]


async def test_a_name_is_used_once(tmp_path: Path) -> None:
    async with present(tmp_path, "one", on_death=Obituary()):
        with pytest.raises(ValueError, match="one"):
            async with present(tmp_path, "one", on_death=Obituary()):
                pass


async def test_only_a_dead_workers_jobs_wait_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "queue.sqlite")
    queue = SqliteQueue(database)
    try:
        for number in (1, 2):
            await queue.accept(a_job(f"j{number}", number=number))
        assert await queue.claim("dead", lease_seconds=3600)
        assert await queue.claim("alive", lease_seconds=3600)
        assert await queue.claim("new", lease_seconds=3600) is None
        await queue.requeue_orphans(["dead", "who"])
        again = await queue.claim("new", lease_seconds=3600)
        assert again is not None
        assert (again.job.id, again.attempt) == ("j1", 2)
        assert await queue.claim("new", lease_seconds=3600) is None
    finally:
        await database.close()
