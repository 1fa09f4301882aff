"""The watchdog and the signals that end the service, on real processes whose event loop is stuck."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.source_files import ROOT
from tests.waiting import eventually

_SCRIPT = """
import asyncio, re, sys
from bot.__main__ import finish
from bot.server.process import Watchdog

watchdog = Watchdog(stuck_seconds=STUCK, ending_seconds=0.5)

def hostile():
    re.match("(a|a)*b", "a" * 200)  # holds the interpreter's lock for years

async def never_ends():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("told", flush=True)

async def main():
    watchdog.start()
    print("up", flush=True)
    WHAT

finish(main(), stopping=watchdog.ending)
"""


@asynccontextmanager
async def running(what: str, *, stuck_seconds: float | None = 0.5) -> AsyncIterator[Process]:
    """A process that does `what` once it is up; unwatched without `stuck_seconds`."""
    script = _SCRIPT.replace("WHAT", what).replace("STUCK", str(stuck_seconds))
    if stuck_seconds is None:
        script = script.replace("watchdog.start()", "pass")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=PIPE, stderr=PIPE, cwd=ROOT, env={"PATH": os.environ["PATH"]}
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: Process) -> tuple[int, str]:
    """How a process ended, and what it wrote to standard error."""
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_a_loop_that_is_stuck_while_c_code_holds_the_lock_ends_the_process_with_its_stacks() -> None:
    async with running("hostile()") as process:
        code, errors = await said(process)
    assert code == -signal.SIGABRT
    assert f"process {process.pid} " in errors
    assert "in hostile" in errors
    assert "in main" in errors


async def test_sigterm_ends_a_process_whose_loop_is_stuck() -> None:
    async with running("hostile()") as process:
        process.send_signal(signal.SIGTERM)
        code, _ = await said(process)
    assert code == -signal.SIGABRT


async def test_a_process_that_does_not_end_when_told_to_is_ended() -> None:
    async with running("await never_ends()") as process:
        process.send_signal(signal.SIGTERM)
        code, errors = await said(process)
    assert code == -signal.SIGABRT
    assert "has not ended" in errors


async def test_a_second_signal_ends_the_process_at_once() -> None:
    # Unwatched, so that nothing else ends it.
    async with running("await never_ends()", stuck_seconds=None) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"told\n"
        process.send_signal(signal.SIGTERM)
        assert await said(process) == (-signal.SIGTERM, "")


@pytest.mark.slow
async def test_a_process_that_is_stopped_is_left_alone() -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=2.0) as process:
        watcher = await _watcher_of(process)
        process.send_signal(signal.SIGSTOP)
        # It looks ten times in the seconds for which a loop may be stuck.
        looked = _looks(watcher)
        await eventually(lambda: _looks(watcher) > looked + 12)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert await said(process) == (0, "")


def _looks(watcher: int) -> int:
    """How often a process has gone to sleep."""
    status = Path(f"/proc/{watcher}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


async def _watcher_of(process: Process) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    [watcher] = await eventually(lambda: children.read_text().split())
    return int(watcher)


async def test_the_watcher_ends_with_the_process() -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=10.0) as process:
        watcher = await _watcher_of(process)
        process.kill()
        await process.wait()
        await eventually(lambda: not Path(f"/proc/{watcher}/stat").exists())


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_ends_a_healthy_process_without_a_word(ended: signal.Signals) -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=10.0) as process:
        process.send_signal(ended)
        assert await said(process) == (0, "")
