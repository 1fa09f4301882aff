"""What works on a stranger's files outside the sandbox does not hold up the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from agent_runtime import BoundExceededError, run_bounded
from agent_runtime.tools.files import FileTools
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest
from tests.agent_runtime import bounded_work as work


async def turns_during(work: Awaitable[object]) -> int:
    """How often the event loop turns while something is awaited."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A stranger's repository: with a matcher that backtracks, its files are listed when the universe is over."""
    (tmp_path / ".gitignore").write_text("*a" * 13 + "*b\n")
    (tmp_path / ("a" * 200)).touch()
    return tmp_path


async def test_the_loop_turns_while_files_are_listed(hostile: Path) -> None:
    with Workspace(hostile) as workspace:
        assert await turns_during(FileTools(workspace).list_files()) > 5
        assert await turns_during(FileTools(workspace).list_files("*a" * 13 + "*b")) > 5


async def test_the_loop_turns_while_files_are_noted_for_a_pause(hostile: Path) -> None:
    with Workspace(hostile) as workspace:
        assert await turns_during(Manifest.bounded(workspace)) > 5


async def test_a_worker_is_killed_when_its_time_is_over() -> None:
    async with asyncio.timeout(20):
        with pytest.raises(BoundExceededError, match="seconds"):
            await run_bounded(work.backtrack, "a" * 60, seconds=0.2)


async def test_a_worker_gets_no_more_memory_than_it_may_have() -> None:
    with pytest.raises(BoundExceededError, match="memory"):
        await run_bounded(work.hoard, 100 * 1024**2, memory=50 * 1024**2)
