from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import BoundExceededError, ToolError, call_bounded, run_bounded
from agent_runtime.processes import bounded_worker
from tests.agent_runtime import bounded_work as work
from tests.source_files import ROOT
from tests.waiting import until


async def test_the_loop_turns_while_a_pattern_backtracks_for_ever() -> None:
    task = asyncio.create_task(run_bounded(work.backtrack, "a" * 60, seconds=0.3, task="The search for 'b'"))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    with pytest.raises(BoundExceededError, match=r"^The search for 'b' took more than 0\.3 seconds") as raised:
        await task
    assert raised.value.bound == "seconds"
    assert turns > 10


async def test_a_call_that_only_waits_is_ended_too() -> None:
    with pytest.raises(BoundExceededError, match=r"took more than 0\.1 seconds"):
        await run_bounded(time.sleep, 60, seconds=0.1)


def test_it_needs_no_event_loop_and_uses_a_worker_again() -> None:
    assert call_bounded(work.identity) == call_bounded(work.identity) != os.getpid()


async def test_a_result_is_text_bytes_or_json_data() -> None:
    for value in ("\udcff 1", b"\0\xff", [1, None, {"a": 2.5}]):
        assert await run_bounded(work.same, value) == value


@pytest.mark.parametrize(
    ("function", "arguments", "bound"),
    [
        (work.hoard, (200 * 1024**2,), "memory"),
        (work.hoard, (-(10**9),), "memory"),
        (work.die, (signal.SIGSEGV,), "memory"),
        (work.same, (["x" * 1024**2] * 5,), "result"),
    ],
)
async def test_memory_and_results_are_bounded(
    function: Callable[..., object], arguments: tuple[object, ...], bound: str
) -> None:
    with pytest.raises(BoundExceededError) as raised:
        await run_bounded(function, *arguments, memory=100 * 1024**2)
    assert raised.value.bound == bound
    assert await run_bounded(work.add, 1, 2) == 3


async def test_arguments_count_towards_the_memory() -> None:
    with pytest.raises(BoundExceededError, match="10 bytes of memory"):
        await run_bounded(work.add, 1, 2, memory=10)


async def test_an_exception_of_the_function_is_raised_again() -> None:
    with pytest.raises(ToolError, match="no such thing") as raised:
        await run_bounded(work.refuse)
    assert raised.value.kind == "ValueError"
    with pytest.raises(RuntimeError, match="bounded_work:fail failed in its worker process: Traceback"):
        await run_bounded(work.fail)


async def test_only_a_module_s_function_can_be_run() -> None:
    with pytest.raises(TypeError, match="must be a function at the top level of a module"):
        await run_bounded(lambda: 1)


async def test_a_cancelled_call_frees_its_worker() -> None:
    tasks = [asyncio.create_task(run_bounded(work.backtrack, "a" * 60, seconds=100)) for _ in range(9)]
    await asyncio.sleep(0)  # so that they begin; most of them wait for a worker
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await run_bounded(work.add, 1, 2, seconds=60) == 3


def test_the_next_call_does_not_have_the_answer_of_one_that_was_interrupted() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    known = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            call_bounded(time.sleep, 60, seconds=60)
        assert [call_bounded(str, word) for word in ("one", "two")] == ["one", "two"]
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, known)


async def test_a_worker_knows_nothing_of_its_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET", "s3cr3t")
    with (tmp_path / "open").open("wb") as opened:
        os.set_inheritable(opened.fileno(), True)  # noqa: FBT003 - the function takes no name for it
        worker, environment, links, dumpable = await run_bounded(work.clock_and_random)
    assert worker != os.getpid()
    assert "SECRET" not in environment
    assert all(link.startswith(("/dev/null", "pipe:", "/proc/")) for link in links), links
    assert dumpable == 0


async def test_a_worker_writes_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="File too large"):
        await run_bounded(work.write, str(tmp_path / "file"))


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_workers_die_with_a_host_that_is_killed(state: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.agent_runtime.bounded_host", state],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as host:
        assert host.stdout
        worker = int(host.stdout.readline())
        if state == "busy":
            until(lambda: not _sleeps(worker))
        host.kill()
        until(lambda: not Path(f"/proc/{worker}").exists() or _state(worker) == "Z")


def test_a_worker_whose_host_was_killed_before_its_call_began_does_not_begin_it() -> None:
    name = f"{work.backtrack.__module__}:{work.backtrack.__qualname__}"
    messages = map(pickle.dumps, (sys.path, (name, ("a" * 60,), 600.0, 256 * 1024**2)))
    sent = b"".join(len(message).to_bytes(8, "big") + message for message in messages)
    subprocess.run([sys.executable, bounded_worker.__file__], cwd=ROOT, input=sent, timeout=60, check=True)


def test_a_process_leaves_none_behind_and_says_nothing() -> None:
    host = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "tests.agent_runtime.bounded_host", "busy"],
        cwd=ROOT,
        input=b"",
        capture_output=True,
        check=True,
    )
    assert host.stderr == b""
    assert not Path(f"/proc/{int(host.stdout)}").exists()


def _sleeps(process: int) -> bool:
    return _state(process) == "S"


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
