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

from agent_runtime.compat.coding.agent import CallerThread
from agent_runtime.processes.spawn import LoopThread


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

    loop.run(begin)
    loop.stop()
    assert ended == ["endless"]
    kept.clear()
    assert "destroyed" not in caplog.text


class _Owner:
    """The owner of a loop."""


def test_collecting_the_owner_of_a_loop_does_not_wait_for_its_end() -> None:
    owner = _Owner()
    loop = LoopThread("Loop", owner=owner)
    lock, begun = threading.Lock(), threading.Event()

    async def needs_the_lock() -> None:
        begun.set()
        with lock:
            pass

    with lock:  # as in the middle of `ThreadPoolExecutor.submit`
        waiting = loop.prepare(needs_the_lock).begin()
        assert begun.wait(30)
        del owner
    waiting.result(30)
    loop.stop()
    assert loop.stopped


def test_a_loop_whose_owner_is_collected_runs_its_finalizer() -> None:
    ended = list[str]()

    async def last() -> None:
        ended.append("last")

    async def nothing() -> None:
        pass

    owner = _Owner()
    loop = LoopThread("Loop", owner=owner, finalizer=last)
    loop.run(nothing)
    del owner
    loop.stop()
    assert ended == ["last"]


def test_a_loop_that_is_stopped_while_it_is_made_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, make = LoopThread("Loop"), asyncio.new_event_loop
    stopping = threading.Thread(target=loop.stop)

    def create_loop() -> asyncio.AbstractEventLoop:
        stopping.start()
        stopping.join(0.1)  # it ends now, or waits for us
        return make()

    async def nothing() -> None:
        pass

    monkeypatch.setattr(asyncio, "new_event_loop", create_loop)
    loop.prepare(nothing)
    stopping.join(30)
    assert loop._thread is not None
    loop._thread.join(30)
    assert not loop._thread.is_alive()


def _seen(loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.run(work)


def _seen_with_its_calls(loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    CallerThread(loop).run(work)


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
    if sys.argv[3] == "dropped":
        del runtime
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("kind", [("blocking", "kept"), ("blocking", "dropped"), ("a task under way", "")])
def test_a_program_that_ends_without_closing_its_runtime_says_nothing(kind: tuple[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _EXITS, str(tmp_path), *kind]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")
