from __future__ import annotations

import asyncio

import pytest

from agent_runtime.processes.loop_thread import LoopThread


def test_tasks_that_still_run_are_ended_before_the_loop_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    loop, ended, kept = LoopThread("Loop"), list[str](), list[asyncio.Task[None]]()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def begin() -> None:
        kept.append(asyncio.create_task(endless()))
        await asyncio.sleep(0)

    loop.see(begin)
    loop.stop()
    assert ended == ["endless"]
    kept.clear()
    assert "destroyed" not in caplog.text
