"""55. Who found a hole in the interpreter would stand in an empty room: its worker runs in a sandbox of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent_runtime.core.errors import LimitError, SandboxError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterLimits
from agent_runtime.sandbox.bubblewrap import write_enclosed
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
STUBS = "def ask(question: str) -> str: ..."
SECRET = "hunter2-of-the-host"


async def answer(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
    return "answer"


def descendants(pid: int | str) -> list[Path]:
    """`/proc` directories of all descendants of a process."""
    found: list[Path] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [Path("/proc", child), *descendants(child)]
    return found


def workers() -> list[Path]:
    """Interpreter processes of this test."""
    return [place for place in descendants("self") if (place / "comm").read_text() == "program\n"]


@pytest.fixture
async def interpreter(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Interpreter]:
    monkeypatch.setenv("SECRET", SECRET)
    interpreter = Interpreter(tools=["ask"], stubs=STUBS, limits=InterpreterLimits(seconds=2.0), enclose=write_enclosed)
    yield interpreter
    await interpreter.close()


@pytest.fixture
async def worker(interpreter: Interpreter) -> Path:
    others = workers()  # those of earlier tests may take a moment to go
    await interpreter.run("import json\nprint(json.dumps([1]), ask('x'))", call=answer, show=print)
    (worker,) = (each for each in workers() if each not in others)
    return worker


def status(worker: Path) -> dict[str, str]:
    lines = (worker / "status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def namespace(process: Path, kind: str) -> Path:
    return (process / "ns" / kind).readlink()


async def test_it_has_no_namespace_in_common_with_the_host(worker: Path) -> None:
    for kind in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
        assert namespace(worker, kind) != namespace(Path("/proc/self"), kind), kind


async def test_it_has_no_capability_and_gets_none(worker: Path) -> None:
    told = status(worker)
    assert {told[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"


async def test_its_files_are_itself_and_its_libraries_and_none_can_be_written(worker: Path) -> None:
    root = worker / "root"
    names = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    assert "program" in names
    assert all(name == "program" or name.endswith("/prlimit") or ".so" in name for name in names), names
    for mount in (worker / "mountinfo").read_text().splitlines():
        assert "ro" in mount.split()[5].split(","), mount


async def test_it_has_no_network_but_an_idle_loopback(worker: Path) -> None:
    lines = (worker / "net" / "dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]
    assert (worker / "net" / "route").read_text().splitlines()[1:] == []


async def test_it_knows_nothing_of_the_environment_and_holds_no_other_files(worker: Path) -> None:
    variables = (worker / "environ").read_bytes().split(b"\0")
    assert {variable.partition(b"=")[0] for variable in variables} <= {b"", b"LD_LIBRARY_PATH", b"PWD"}
    assert (worker / "cwd").readlink() == Path("/")
    # Besides the pipes, only what this process was itself given to pass on, such as standard error.
    passed_on = {entry.name for entry in descriptors() if is_passed_on(int(entry.name))}
    for entry in (worker / "fd").iterdir():
        opened = str(entry.readlink())
        assert entry.name in passed_on or opened.startswith(("pipe:", "anon_inode:")), (entry.name, opened)


def descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def is_passed_on(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # closed meanwhile
        return False


async def test_it_is_bounded_should_the_interpreter_not_bound_it(worker: Path) -> None:
    limits = {line[:25].strip(): line[26:46].strip() for line in (worker / "limits").read_text().splitlines()}
    assert limits["Max file size"] == "0"
    assert limits["Max processes"] == "64"
    assert limits["Max address space"] == str(4 * 1024**3)


async def test_it_ends_with_the_interpreter(interpreter: Interpreter, worker: Path) -> None:
    await interpreter.close()
    await eventually(lambda: not worker.exists())


async def test_limits_and_a_killed_worker_are_told_as_ever(interpreter: Interpreter, worker: Path) -> None:
    for bomb in ("while True: pass", "x = 'a' * 10**10", "def f(): return f()\nf()"):
        with pytest.raises(LimitError):
            await interpreter.run(bomb, call=answer, show=print)

    async def kill(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        for place in workers():
            os.kill(int(place.name), signal.SIGKILL)
        return "answer"

    with pytest.raises(LimitError, match="the interpreter stopped"):
        await interpreter.run("while True: ask('x')", call=kill, show=print)
    await interpreter.run("print('alive')", call=answer, show=print)


async def test_it_dies_with_a_host_that_is_killed() -> None:
    inside = killed_host_had()
    await eventually(lambda: not any(map(alive, inside)))


def killed_host_had() -> list[Path]:
    """Processes of a host that was killed during an endless block."""
    script = """
        import asyncio, time
        from agent_runtime.interpreter.interpreter import Interpreter
        from agent_runtime.interpreter.source import InterpreterLimits
        from agent_runtime.sandbox.bubblewrap import write_enclosed

        async def call(*_, **__):
            print("inside", flush=True)

        limits = InterpreterLimits(seconds=600)
        interpreter = Interpreter(tools=["ask"], stubs="def ask() -> None: ...", limits=limits, enclose=write_enclosed)
        asyncio.run(interpreter.run("ask()\\nwhile True: pass", call=call, show=print))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, stdout=subprocess.PIPE) as host:
        assert host.stdout
        assert host.stdout.readline() == b"inside\n"
        inside = descendants(host.pid)
        assert inside
        host.kill()
    return inside


def alive(process: Path) -> bool:
    try:
        return "Z" not in status(process)["State"]
    except FileNotFoundError:
        return False


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def by_a_shell(script: str) -> subprocess.CompletedProcess[str]:
    """Output of a shell in the worker's place, with builtins only."""
    shell = shutil.which("bash")
    assert shell
    return subprocess.run(
        [write_enclosed(Path(shell)), "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_who_stands_there_reaches_nothing(listener: int) -> None:
    assert by_a_shell("echo works").stdout == "works\n"
    for attempt in (
        "read -r x < /etc/passwd",
        "read -r x < /proc/self/status",
        "echo x > /x",
        "echo x > /tmp/x",
        "echo x > /program",
        "/bin/ls",
        f"exec 3<>/dev/tcp/127.0.0.1/{listener}",
        "exec 3<>/dev/tcp/192.0.2.1/80",
        f"kill -0 {os.getpid()}",
    ):
        done = by_a_shell(f"{attempt} && echo did")
        assert (done.returncode != 0, done.stdout) == (True, ""), attempt
    with socket.create_connection(("127.0.0.1", listener), timeout=5):
        pass  # the positive control: it is there, outside


def test_who_stands_there_knows_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    assert by_a_shell("echo ${SECRET-none}").stdout == "none\n"


def test_removed_temporary_files_are_written_again() -> None:
    program = write_enclosed(Path("/bin/sh"))
    assert write_enclosed(Path("/bin/sh")) == program
    program.unlink()
    (program.parent / "filter").unlink(missing_ok=True)
    done = subprocess.run(
        [write_enclosed(Path("/bin/sh")), "-c", "echo works"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "works\n"


async def test_a_worker_that_does_not_start_is_no_fault_of_the_block(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="cannot be started"):
        write_enclosed(tmp_path / "gone")
    broken = Interpreter(tools=[], stubs="", enclose=lambda _: Path("/bin/false"))
    with pytest.raises(SandboxError, match="worker"):
        await broken.run("1", call=answer, show=print)
    missing = Interpreter(tools=[], stubs="", enclose=lambda _: tmp_path / "gone")
    with pytest.raises(SandboxError, match="worker"):
        await missing.run("1", call=answer, show=print)
