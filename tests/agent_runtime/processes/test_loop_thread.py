from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.compat.coding.caller import CallerThread
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


def test_a_finalizer_in_the_thread_of_another_loop_does_not_wait_for_the_end() -> None:
    one, other = LoopThread("One"), LoopThread("Other")
    went_on, told = threading.Event(), list[bool]()

    async def blocked() -> None:
        told.append(went_on.wait(10))

    async def collecting_garbage() -> None:
        other.stop()
        went_on.set()

    waiting = other.prepare(blocked).begin()
    one.see(collecting_garbage)
    waiting.result(30)
    one.stop()
    assert told == [True]


def _seen(loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.see(work)


def _seen_with_its_calls(loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    CallerThread(loop).see(work)


@pytest.mark.parametrize("see", [_seen, _seen_with_its_calls])
def test_after_control_c_the_caller_goes_on_once_its_coroutine_has_ended(
    see: Callable[[LoopThread, Callable[[], Coroutine[Any, Any, None]]], None],
) -> None:
    loop, ended = LoopThread("Loop"), list[str]()

    async def slow_to_end() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for _ in range(1_000):
                await asyncio.sleep(0)
            ended.append("slow")

    with pytest.raises(KeyboardInterrupt):
        see(loop, slow_to_end)
    assert ended == ["slow"]
    loop.stop()


_EXITS = """
import asyncio, sys
from pathlib import Path
from agent_runtime import *
reply = '```codepilot\\nexecute("main", "sleep 100 & echo hi")\\n```\\n```completion\\nDone.\\n```\\n'
sandbox = pick_sandbox("auto", SandboxSettings())
agent = Agent(provider=ScriptedProvider([reply, reply]), work_dir=Path(sys.argv[1]), sandbox=sandbox)
async def main():
    global runtime, task
    runtime = AsyncRuntime(agent)
    print(await runtime.run("go"))
    task = asyncio.create_task(runtime.run("again"))
    await asyncio.sleep(0)
if sys.argv[2] == "blocking":
    runtime = Runtime(agent, quiet=True)
    print(runtime.run("go"))
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["blocking", "a task under way"])
def test_a_program_that_ends_without_closing_its_runtime_says_nothing(kind: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _EXITS, str(tmp_path), kind]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")
