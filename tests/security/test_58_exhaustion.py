"""Threat 58: what takes memory, processes, time or disk without end is stopped, and nothing else is harmed by it.

The bounds are small here, so that the machine which runs the tests is never in danger: should the watcher fail, the
limits of each process and the test's own deadline remain.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_runtime.core.errors import SandboxError, SandboxLimitError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxLimits, SandboxSettings
from agent_runtime.tools.shell import ShellTools
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually

MIB = 1 << 20
PYTHON = "/usr/bin/python3"
SECONDS = 20
_NEIGHBOUR = seconds(58058)
"""A deadline, since other work may run on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An endless consumer.

    Attributes:
        told: the limit in the report to the model.
    """

    limits: dict[str, Any]
    command: str
    told: str


_MEMORY, _DISK, _FILES = {"memory_bytes": 200 * MIB}, {"disk_bytes": 100 * MIB}, {"files": 2_000}
_ONE_HOG = f"{PYTHON} -c 'import time; x = bytearray(80 << 20); time.sleep(60)'"
_BOMB = "bomb() { if (( $1 )); then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; sleep 60; }; bomb 8"
"""Doubles up to 511 processes: for root, the watcher is the only limit."""
_UNWAITED = f"""{PYTHON} -c '
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.time() + 0.4
        while time.time() < end: pass
        os._exit(0)
    time.sleep(0.4)
'"""

ATTACKS: dict[str, Attack] = {
    "memory in many processes": Attack(
        limits=_MEMORY, command=f"for i in 1 2 3 4; do {_ONE_HOG} & done; wait", told="memory 200 MiB"
    ),
    "memory shared between processes": Attack(
        limits=_MEMORY,
        command=f"{PYTHON} -c 'import mmap, os, time; m = [mmap.mmap(-1, 80 << 20) for _ in range(4)]; "
        "[each.write(bytes(80 << 20)) for each in m]; os.fork(); time.sleep(60)'",
        told="memory 200 MiB",
    ),
    "files in memory": Attack(
        limits=_MEMORY,
        command="for d in /tmp /dev/shm ~; do head -c 90M /dev/zero >$d/x; done; sleep 60",
        told="memory 200 MiB",
    ),
    "files in memory without a name": Attack(
        limits=_MEMORY,
        command=f'{PYTHON} -c \'import os, time; f = os.memfd_create("x"); '
        "[os.write(f, bytes(1 << 20)) for _ in range(300)]; time.sleep(60)'",
        told="memory 200 MiB",
    ),
    "files in memory of a process that cannot be looked into": Attack(
        limits=_MEMORY,
        command=f"{PYTHON} -c 'import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "
        'f = os.memfd_create("x"); [os.write(f, bytes(1 << 20)) for _ in range(300)]; time.sleep(60)\'',
        told="memory 200 MiB",
    ),
    "fork bomb": Attack(limits={"processes": 50}, command=_BOMB, told="processes 50"),
    "daemons that sleep": Attack(
        limits={"processes": 50}, command="for i in {1..80}; do setsid sleep 60 & done; sleep 60", told="processes 50"
    ),
    "threads": Attack(
        limits={"processes": 50},
        command=f"{PYTHON} -c 'import threading, time; "
        "[threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(60)]'",
        told="processes 50",
    ),
    "processor time": Attack(
        limits={"cpu_seconds": 1.0}, command="(while :; do :; done) & while :; do :; done", told="processor time 1 s"
    ),
    "processor time of children that nobody waits for": Attack(
        limits={"cpu_seconds": 1.0}, command=_UNWAITED, told="processor time 1 s"
    ),
    "wall time": Attack(limits={"seconds": 1.0}, command="sleep 60", told="time 1 s"),
    "a disk, file by file": Attack(
        limits=_DISK, command="for i in {1..50}; do head -c 10M /dev/zero >f$i; done; sleep 60", told="disk 100 MiB"
    ),
    "a disk, in a file without a name": Attack(
        limits=_DISK, command="exec 7<>gone; rm gone; head -c 300M /dev/zero >&7; sleep 60", told="disk 100 MiB"
    ),
    "a disk, far below": Attack(
        limits=_DISK,
        command="for i in {1..150}; do mkdir d && cd d; done; head -c 300M /dev/zero >x; sleep 60",
        told="disk 100 MiB",
    ),
    "a disk, in a directory that others may not read": Attack(
        limits=_DISK, command="mkdir -m 311 d; head -c 300M /dev/zero >d/x; chmod 755 d; sleep 60", told="disk 100 MiB"
    ),
    "a million empty files": Attack(
        limits=_FILES,
        command=f"{PYTHON} -c 'for i in range(1_000_000): open(str(i), \"w\").close()'; sleep 60",
        told="files 2,000",
    ),
    "empty directories": Attack(
        limits=_FILES, command="mkdir {1..60}; mkdir {1..60}/{1..60}; sleep 60", told="files 2,000"
    ),
    "a million empty files in memory": Attack(
        limits=_FILES,
        command=f"cd /tmp; {PYTHON} -c 'for i in range(1_000_000): open(str(i), \"w\").close()'; sleep 60",
        told="files 2,000",
    ),
}


def tools_with(limits: dict[str, Any], workspace: Path) -> ShellTools:
    workspace.mkdir(exist_ok=True)
    return ShellTools(Bubblewrap(SandboxSettings(limits=SandboxLimits(**limits))), workspace)


@pytest_asyncio.fixture
async def neighbour(tmp_path: Path) -> AsyncIterator[ShellTools]:
    """An active terminal of another job."""
    tools = tools_with({}, tmp_path / "neighbour")
    await tools.execute("main", f"echo kept >file; kept=yes; sleep {_NEIGHBOUR} &", SECONDS)
    yield tools
    await tools.close()


@pytest.mark.parametrize("kind", ATTACKS)
async def test_it_is_stopped_and_the_model_told(kind: str, neighbour: ShellTools, tmp_path: Path) -> None:
    attack = ATTACKS[kind]
    tools = tools_with(attack.limits, tmp_path / "job")
    try:
        async with asyncio.timeout(3 * SECONDS):
            result = await tools.execute("main", attack.command, SECONDS)
        assert isinstance(result.value, dict)
        assert result.value["status"] == "killed"
        assert f"| limit: {attack.told};" in result.text
        beside = await neighbour.execute("main", "echo $kept; cat file; jobs -r | wc -l", SECONDS)
        assert "yes\nkept\n1\n" in beside.text, "the other job"
        assert len(processes_with(_NEIGHBOUR)) == 1
    finally:
        await tools.close()


async def test_the_next_command_has_a_shell_and_the_workspace(tmp_path: Path) -> None:
    tools = tools_with({"files": 20}, tmp_path / "job")
    first = await tools.execute("main", "echo kept >file; echo lost >/tmp/file; mkdir {1..60}; sleep 60", SECONDS)
    assert "limit: files 20;" in first.text
    result = await tools.execute("main", "cat file /tmp/file", SECONDS)
    assert "kept\n" in result.text
    assert "file: No such file" in result.text
    await tools.close()


async def test_background_events_are_reported_with_the_next_command(tmp_path: Path) -> None:
    tools = tools_with({"cpu_seconds": 0.5}, tmp_path / "job")
    first = await tools.execute("main", "while :; do :; done &", SECONDS)
    assert "status: completed" in first.text
    # No event loop is needed for the limit to be kept.
    deadline = time.monotonic() + SECONDS
    place: Any = tools._place
    while place._backend._watcher.verdict() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251 - the loop is to stand still
    after = await tools.execute("main", "echo works", SECONDS)
    assert "works\n" in after.text
    assert "since the last command the old one was killed: limit: processor time 0.5 s;" in after.text
    again = await tools.execute("main", "echo works", SECONDS)
    assert "limit" not in again.text
    await tools.close()


async def test_nothing_starts_on_a_disk_that_is_full(tmp_path: Path) -> None:
    tools = tools_with({"free_bytes": 1 << 60}, tmp_path / "job")
    try:
        # On a busy machine the thread that watches looks for the first time when the command runs already.
        said = (await tools.execute("main", "sleep 60", SECONDS)).text
    except SandboxError as error:
        said = str(error)
    finally:
        await tools.close()
    assert "limit: free disk space of the machine 1073741824 GiB;" in said


async def test_all_terminals_count_together(tmp_path: Path) -> None:
    tools = tools_with(_MEMORY, tmp_path / "job")
    for number in range(3):
        await tools.execute(f"t{number}", f"{_ONE_HOG} &", SECONDS, new_terminal=True)
    result = await tools.execute("t2", "wait", SECONDS)
    assert "memory 200 MiB" in result.text
    await tools.close()


@pytest.mark.parametrize(("size", "said"), [(64 << 10, "0"), ((64 << 10) + 1, "22"), (1 << 32, "22")])
async def test_memory_that_nobody_would_see_is_kept_small(size: int, said: str, tmp_path: Path) -> None:
    tools = tools_with({}, tmp_path / "job")
    call = (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); "
        f"c.shmget(0, ctypes.c_size_t({size}), 0o1600); print(ctypes.get_errno())"
    )
    assert f"\n{said}\n" in (await tools.execute("main", f"{PYTHON} -c '{call}'", SECONDS)).text
    await tools.close()


async def test_a_file_that_is_too_large_ends_its_command_only(tmp_path: Path) -> None:
    tools = tools_with({"file_bytes": MIB}, tmp_path / "job")
    await tools.execute("main", "kept=yes", SECONDS)
    result = await tools.execute("main", "head -c 2M /dev/zero >x", SECONDS)
    assert "| limit: size of one file 1 MiB]" in result.text
    assert (tmp_path / "job" / "x").stat().st_size == MIB
    assert "yes\n" in (await tools.execute("main", "echo $kept", SECONDS)).text
    await tools.close()


async def test_after_three_times_it_is_over_until_it_is_asked_anew(tmp_path: Path) -> None:
    tools = tools_with({"processes": 20}, tmp_path / "job")
    for _ in range(3):
        result = await tools.execute("main", "for i in {1..40}; do sleep 60 & done; wait", SECONDS)
        assert "status: killed" in result.text
    with pytest.raises(SandboxLimitError, match=r"ended 3 times .*\(processes 20\)"):
        await tools.execute("main", "true", SECONDS)
    assert "works\n" in (await tools.execute("main", "echo works", SECONDS)).text
    await tools.close()


async def test_what_was_there_before_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for number in range(50):
        (tmp_path / "job" / str(number)).write_bytes(bytes(MIB))
    tools = tools_with({"disk_bytes": 20 * MIB, "files": 20}, tmp_path / "job")
    result = await tools.execute("main", "echo x >new; for i in {1..20}; do cat [0-9]* | tail -c1 >new; done", SECONDS)
    assert "status: completed" in result.text
    await tools.close()


async def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    tools = tools_with(_MEMORY, tmp_path / "job")
    share = "import os, time; x = bytes(60 << 20); [os.fork() for _ in range(3)]; time.sleep(1.5)"
    result = await tools.execute("main", f"{PYTHON} -c '{share}'; sleep 0.3", SECONDS)
    assert "status: completed" in result.text
    await tools.close()


async def test_watchers_end_with_their_sandboxes(tmp_path: Path) -> None:
    def watchers() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == "sandbox watcher"}

    before = watchers()  # those of tests before may be about to end
    tools = tools_with({}, tmp_path / "job")
    await tools.execute("main", "true", SECONDS)
    assert len(watchers() - before) == 1
    await tools.close()
    await eventually(lambda: not watchers() - before)
