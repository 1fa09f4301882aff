"""Threat 59: nothing inside can keep the sandbox alive, stop it, or take over the process that holds it together."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_runtime.core.errors import SandboxError
from agent_runtime.core.values import Plain
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import Launch, PrivateDirectory, SandboxSettings
from agent_runtime.terminals import sandbox_init as init_module
from agent_runtime.terminals.processes import ProcessFamily
from agent_runtime.terminals.sandbox_init import SandboxInit
from agent_runtime.tools.shell import ShellTools
from tests.waiting import eventually


@pytest_asyncio.fixture
async def tools(tmp_path: Path) -> AsyncIterator[ShellTools]:
    made = ShellTools(Bubblewrap(SandboxSettings()), tmp_path)
    yield made
    await made.close()


async def run(tools: ShellTools, command: str, terminal: str = "main", *, new: bool = False) -> dict[str, Plain]:
    value = (await tools.execute(terminal, command, 20, new_terminal=new)).value
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("part", ["mem", "environ", "fd/0", "root/etc"])
async def test_the_first_process_cannot_be_looked_into(tools: ShellTools, part: str) -> None:
    result = await run(tools, f"exec 3<>/proc/1/{part} || cat /proc/1/{part}; ls /proc/1/{part}/")
    assert "Permission denied" in str(result["output"])


async def test_the_keepers_socket_cannot_be_taken(tools: ShellTools) -> None:
    steal = (
        "import ctypes, os\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        "for pid in (1, os.getppid()): print(call(438, os.pidfd_open(pid), 0, 0), ctypes.get_errno())\n"
    )
    assert (await run(tools, f"/usr/bin/python3 -c '{steal}'"))["output"] == "-1 1\n-1 1\n"


@pytest.mark.parametrize("number", ["STOP", "KILL", "TERM", "TTIN"])
async def test_the_first_process_is_deaf_to_signals_from_inside(tools: ShellTools, number: str) -> None:
    await run(tools, f"kill -{number} 1; kill -{number} -1; true")
    assert (await run(tools, "echo works", "other", new=True))["output"] == "works\n"


async def test_orphans_are_reaped(tools: ShellTools) -> None:
    await run(tools, "for i in 1 2 3 4 5; do (setsid sleep 0.01 &) ; done")
    count = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '"
    deadline = time.monotonic() + 60
    while (await run(tools, count))["output"] != "0\n":
        assert time.monotonic() < deadline


@pytest.mark.parametrize("words", ["yes", "yes | tr -d '\\n'", "sleep 60", "exec >&- 2>&- <&-; sleep 60"])
async def test_a_compromised_keeper_does_not_block(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(init_module, "_START_SECONDS", 0.3)
    keeper = SandboxInit(Launch(argv=("/bin/bash", "-c", f"exec 2>/dev/null; {words}"), env={}))
    async with asyncio.timeout(60):
        with pytest.raises(SandboxError):
            await keeper.wait_ready()
    assert not keeper.is_alive


async def test_a_huge_exit_code_is_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "_START_SECONDS", 0.3)
    keeper = SandboxInit(Launch(argv=("/bin/bash", "-c", "printf '%07000d x\\n' 1; sleep 60"), env={}))
    keeper._replies["x"] = ""
    assert await keeper.wait_exit_code("x", within=0.5) is None
    await keeper.close()


async def test_a_group_number_is_signalled_only_inside(tmp_path: Path) -> None:
    """The kernel may reuse the number of an ended group for one outside."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:  # noqa: ASYNC220 - it has to be a group of ours
        namespace = (tmp_path / "of-no-process").parent.stat().st_ino
        ProcessFamily(mark="none", session=bystander.pid, namespace=namespace).signal_group(
            bystander.pid, signal.SIGKILL
        )
        assert bystander.poll() is None
        everywhere = ProcessFamily(mark="none", session=bystander.pid, namespace=None)
        everywhere.signal_group(bystander.pid, signal.SIGKILL)
        assert bystander.wait(60) == -signal.SIGKILL


async def test_keepers_that_nobody_closes_give_their_descriptors_back(tmp_path: Path) -> None:
    def is_open(descriptor: int) -> bool:
        return Path(f"/proc/self/fd/{descriptor}").is_symlink()

    launch = Bubblewrap(SandboxSettings()).launch(init_module.build_argv(["true"]), workspace=tmp_path, first=True)
    keeper = SandboxInit(launch)
    await keeper.wait_ready()
    keeper._socket.close()  # sockets are closed, and complained of, by Python itself
    held = [*keeper._descriptors]
    assert all(map(is_open, held))
    assert held
    del keeper
    # For a moment, another thread may have a file open by such a number.
    await eventually(lambda: not any(map(is_open, held)))


async def test_nothing_is_written_after_the_end(tools: ShellTools, tmp_path: Path) -> None:
    """The files are read for publication afterwards."""
    write = "while :; do echo $((i += 1)) > counter; done"
    await run(tools, f"for n in 1 2 3 4 5 6 7 8; do setsid bash -c '{write}' & done; sleep 0.2")
    await tools.close()
    counter = tmp_path / "counter"
    stamps = {counter.stat().st_mtime_ns for _ in range(2_000)}
    assert len(stamps) == 1


def test_leftovers_of_a_killed_process_are_removed_by_the_next() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from agent_runtime.sandbox.protocol import PrivateDirectory\n"
        "made = PrivateDirectory('codepilot-test-59-'); print(made.path, flush=True); sys.stdin.read()"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        _age(left)
        PrivateDirectory("codepilot-test-59-").close()
        assert left.is_dir(), "its owner lives"
        process.kill()
        process.wait()
    PrivateDirectory("codepilot-test-59-").close()
    assert not left.exists()


def test_a_directory_that_was_just_made_is_left_alone() -> None:
    newborn = Path(tempfile.mkdtemp(prefix="codepilot-test-59-"))
    PrivateDirectory("codepilot-test-59-").close()
    assert newborn.is_dir()
    newborn.rmdir()


def test_a_name_that_is_a_link_is_not_followed_by_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    link = Path(tempfile.gettempdir(), f"codepilot-test-59-link-{os.getpid()}")
    link.symlink_to(tmp_path)
    os.utime(link, (0, 0), follow_symlinks=False)
    PrivateDirectory("codepilot-test-59-").close()
    link.unlink()
    assert (tmp_path / "kept").exists()


def test_the_lock_goes_with_the_directory() -> None:
    made = PrivateDirectory("codepilot-test-59-")
    descriptor = os.open(made.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    made.close()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    assert not made.path.exists()


def _age(directory: Path) -> None:
    os.utime(directory, (0, 0))
