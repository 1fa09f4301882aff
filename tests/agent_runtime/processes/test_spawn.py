from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime.interpreter.interpreter import InterpreterWorker
from agent_runtime.interpreter.source import InterpreterLimits
from agent_runtime.processes.spawn import finish_start, run_in_thread
from agent_runtime.sandbox.protocol import FixedPath, Launch, SandboxSettings
from agent_runtime.sandbox.resident import Resident
from agent_runtime.sandbox.select import Local
from agent_runtime.terminals.sandbox_init import SandboxInit
from tests.sandboxes import processes_with
from tests.waiting import eventually

# As bubblewrap in its first milliseconds: two processes of one group, and the second does not die with the first.
_HALF_STARTED = ("sh", "-c", "sleep {0} & exec sleep 1{0}")


def half_started(seconds: str) -> Launch:
    return Launch(argv=tuple(word.format(seconds) for word in _HALF_STARTED), env={"PATH": "/usr/bin:/bin"})


class HalfStarted(Local):
    """A sandbox that never finishes starting."""

    @override
    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,
    ) -> Launch:
        return half_started("80811")


async def test_a_start_that_is_stopped_in_the_middle_comes_to_its_end_and_is_ended() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def start() -> str:
        begun.set()
        await may_end.wait()
        return "started"

    async def undo(what: str) -> None:
        await asyncio.sleep(0)
        ended.append(what)

    starting = asyncio.create_task(finish_start(start(), end=undo))
    await begun.wait()
    starting.cancel()
    await asyncio.sleep(0)
    starting.cancel()
    assert not ended
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended == ["started"]


async def test_a_start_that_fails_after_it_was_stopped_is_stopped() -> None:
    begun = asyncio.Event()

    async def start() -> str:
        begun.set()
        await asyncio.sleep(0)
        raise OSError("no such program")

    async def undo(what: str) -> None:
        raise AssertionError(what)

    starting = asyncio.create_task(finish_start(start(), end=undo))
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_a_call_in_a_thread_is_waited_for_when_its_caller_is_stopped() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), list[str]()
    ambient: ContextVar[str] = ContextVar("ambient")

    def call() -> None:
        begun.set()
        may_end.wait(30)
        ended.append(ambient.get())

    ambient.set("the caller's context")
    calling = asyncio.create_task(run_in_thread(call))
    await asyncio.to_thread(begun.wait, 30)
    calling.cancel()
    await asyncio.sleep(0)
    assert not calling.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ended == ["the caller's context"]


async def test_the_interpreters_worker_is_never_killed_while_its_sandbox_starts(tmp_path: Path) -> None:
    begun, up = tmp_path / "begun", tmp_path / "up"

    def slow(worker: Path) -> Path:
        script = tmp_path / "slow"
        script.write_text(f'#!/bin/sh\n: >"{begun}"\nsleep 0.3\n: >"{up}"\nexec "{worker}" "$@"\n')
        script.chmod(0o700)
        return script

    starting = asyncio.create_task(InterpreterWorker.start(stubs="", limits=InterpreterLimits(calls=10), enclose=slow))
    await eventually(begun.exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert up.exists()


async def test_a_resident_sandbox_that_is_closed_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    resident = Resident(HalfStarted(SandboxSettings()), tmp_path, {})
    asking = asyncio.create_task(anext(resident.run(["true"])))
    await eventually(lambda: len(processes_with("80811")) == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await eventually(lambda: not processes_with("80811"))


async def test_a_keeper_that_is_closed_while_it_starts_leaves_nothing() -> None:
    keeper = SandboxInit(half_started("80812"))
    await eventually(lambda: len(processes_with("80812")) == 1)
    await keeper.close()
    await eventually(lambda: not processes_with("80812"))
