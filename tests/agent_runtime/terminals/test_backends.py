"""Terminals of one backend: shared resources, and processes that end together."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import Launch, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.select import Local
from agent_runtime.terminals import backends, sandbox_init
from agent_runtime.terminals.backends import Backend, create_backend
from agent_runtime.terminals.command import CommandReport
from agent_runtime.terminals.processes import ProcessFamily
from agent_runtime.terminals.sandbox_init import SandboxInit
from agent_runtime.terminals.terminal import Terminal
from tests.containers import IMAGE, StandIn
from tests.sandboxes import descriptors, parent_of, processes_with, seconds
from tests.source_files import ROOT
from tests.waiting import eventually


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Backend]:
    made = create_backend(Bubblewrap(SandboxSettings()), tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def main(place: Backend) -> AsyncIterator[Terminal]:
    made = Terminal("main", backend=place)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def server(place: Backend) -> AsyncIterator[Terminal]:
    made = Terminal("server", backend=place)
    yield made
    await made.close()


async def run(terminal: Terminal, command: str, timeout: float = 20) -> CommandReport:  # noqa: ASYNC109 - as there
    return await terminal.run(command, timeout=timeout)


async def test_a_server_in_one_terminal_is_reached_from_another(main: Terminal, server: Terminal) -> None:
    await run(main, "echo hello > index.html")
    serving = await run(server, "/usr/bin/python3 -u -m http.server --bind 127.0.0.1 8000", timeout=1)
    said = serving.output
    while "Serving HTTP" not in said:  # a busy machine takes longer to start it; pytest's own limit ends this
        later = await server.read(timeout=1)
        said += later.output if later else ""
    fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/index.html').read())"
    assert (await run(main, f'/usr/bin/python3 -c "{fetch}"')).output == "b'hello\\n'\n"
    ended = await server.send("\x03", timeout=30)
    assert (ended.status, ended.exit_code) == ("completed", 0)


async def test_temporary_files_and_processes_are_shared_and_shells_are_not(main: Terminal, server: Terminal) -> None:
    await run(main, "echo kept > /tmp/file; echo home > ~/file; x=1; cd /tmp")
    await run(main, "sleep 50505 & until pgrep -f '^sleep 50505'; do :; done")
    seen = await run(server, 'cat /tmp/file ~/file; pgrep -f "^sleep 50505" | wc -l; echo "[$x]"; pwd; tty')
    assert seen.output == "kept\nhome\n1\n[]\n/workspace\n/dev/pts/1\n"


async def test_the_process_id_is_that_of_the_shell_s_namespace(main: Terminal, server: Terminal) -> None:
    pid = int((await run(main, "echo $$")).output)
    assert main.pid == pid
    assert (await run(server, f"cat /proc/{pid}/comm")).output == "bash\n"


async def test_control_c_reaches_only_its_own_terminal(main: Terminal, server: Terminal) -> None:
    await run(main, "sleep 60", timeout=0.1)
    await run(server, "sleep 60", timeout=0.1)
    assert (await server.send("\x03", timeout=30)).exit_code == 130
    assert main.running_command == "sleep 60"


@pytest.mark.parametrize(
    "daemon",
    [
        "sleep {tag} &",
        "setsid sleep {tag} >/dev/null 2>&1 </dev/null & disown",
        "nohup sleep {tag} >/dev/null 2>&1 & disown",
        "(setsid sh -c '(sleep {tag} &) &' &) >/dev/null 2>&1 </dev/null",
        "setsid bash -c 'trap \"\" HUP INT TERM; sleep {tag}; :' >/dev/null 2>&1 </dev/null & disown",
    ],
)
@pytest.mark.parametrize("ending", ["close", "exit"])
async def test_processes_of_a_closed_terminal_end_and_no_others(
    main: Terminal, server: Terminal, daemon: str, ending: str
) -> None:
    tag, others = seconds(70600), seconds(70699)
    await run(main, f"sleep {others} &")
    await run(server, daemon.format(tag=tag))
    await eventually(lambda: processes_with(others) and processes_with(tag))
    if ending == "close":
        await server.close()
    else:
        assert (await run(server, "exit 3")).exit_code == 3
    await eventually(lambda: not processes_with(tag))
    assert processes_with(others)
    assert (await run(main, "echo ok")).output == "ok\n"


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # ended meanwhile
        return ""


async def test_a_daemon_that_hides_from_its_terminal_ends_with_the_place(
    main: Terminal, server: Terminal, place: Backend
) -> None:
    await run(main, "true")
    tag = seconds(70701)
    await run(server, f"env -i setsid sleep {tag} >/dev/null 2>&1 </dev/null & disown")
    await eventually(lambda: [pid for pid in processes_with(tag) if _program(pid) == "sleep"])
    await server.close()
    assert processes_with(tag)
    await place.close()
    await eventually(lambda: not processes_with(tag))


async def test_a_shell_that_exits_is_noticed_while_a_job_holds_its_terminal_open(main: Terminal) -> None:
    tag = seconds(70702)
    report = await run(main, f"sleep {tag} & exit 5")
    assert (report.status, report.exit_code) == ("restarted", 5)
    assert not processes_with(tag)


async def test_a_sandbox_that_is_killed_starts_again(main: Terminal, server: Terminal) -> None:
    await run(server, "sleep 60", timeout=0.1)
    tag = seconds(70705)
    await run(main, f"sleep {tag}", timeout=0.1)
    [sleep] = await eventually(lambda: processes_with(tag))
    first = parent_of(parent_of(parent_of(sleep)))  # the keeper, from its job, from the shell
    os.kill(first, signal.SIGKILL)
    report = await main.read(timeout=30)
    assert report is not None
    assert report.status == "restarted"
    assert (await run(main, "echo ok")).output == "ok\n"
    broken = await server.read(timeout=30)
    assert broken is not None
    assert broken.status == "restarted"
    assert (await run(server, "ls /proc | grep -c '^[0-9]' >/dev/null; echo ok")).output == "ok\n"


async def test_opening_fails_without_free_terminals(
    main: Terminal, server: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(main, "true")
    opening = os.open

    def refuse_terminals(path: str, *how: int, dir_fd: int | None = None) -> int:
        if path == "ptmx":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opening(path, *how, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse_terminals)
    with pytest.raises(SandboxError, match=r"No terminal could be opened in the sandbox: .*No space left"):
        await run(server, "echo never")
    monkeypatch.undo()
    assert (await run(server, "echo ok")).output == "ok\n"


async def test_a_process_that_runs_away_by_forking_ends_with_its_terminal(main: Terminal, place: Backend) -> None:
    # One lineage, not a bomb: for root the kernel does not count processes.
    other = Terminal("other", backend=place)
    await run(main, "true")
    beside, runaway = seconds(70703), seconds(70704)
    await run(other, f"sleep {beside} & f() {{ (exec -a {runaway} sleep 0.005); f & }}; f", timeout=0.3)
    await other.close()
    await eventually(lambda: not processes_with(beside) + processes_with(runaway))
    assert (await run(main, "set -- /proc/[0-9]*; echo $#")).output.strip() in {"3", "4", "5", "6"}


async def test_filter_capabilities_and_limits_hold_in_every_terminal(main: Terminal, server: Terminal) -> None:
    ask = (
        "grep -E '^(Seccomp|NoNewPrivs|CapPrm|CapEff|CapAmb):' /proc/self/status; ulimit -u; ulimit -c; unshare -U true"
    )
    first, second = await run(main, ask), await run(server, ask)
    assert first.output == second.output
    for fact in (
        "Seccomp:\t2",
        "NoNewPrivs:\t1",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "\n512\n0\n",
    ):
        assert fact in second.output
    assert "Operation not permitted" in second.output


async def test_no_descriptor_of_ours_is_open_in_a_terminal(main: Terminal) -> None:
    shown = await run(main, "for fd in /proc/$$/fd/*; do readlink $fd; done")
    assert set(shown.output.splitlines()) == {"/dev/pts/0"}


async def test_opening_and_closing_leaves_nothing_behind(place: Backend) -> None:
    keeps = Terminal("keeps", backend=place)
    await run(keeps, "true")
    before = descriptors()
    for _ in range(20):
        terminal = Terminal("main", backend=place)
        assert (await run(terminal, "echo hi")).output == "hi\n"
        await terminal.close()
    await eventually(lambda: descriptors() <= before)
    left = await run(keeps, "ls /proc | grep -c '^[0-9]'; ls -x /dev/pts")
    assert left.output.split()[1:] == ["0", "ptmx"]
    assert int(left.output.split("\n")[0]) < 10
    await keeps.close()


async def test_sixteen_terminals_start_at_once(place: Backend) -> None:
    terminals = [Terminal(f"t{number}", backend=place) for number in range(16)]
    reports = await asyncio.gather(*(run(each, f"echo {number}") for number, each in enumerate(terminals)))
    assert [report.output for report in reports] == [f"{number}\n" for number in range(16)]
    await place.close()
    for each in terminals:
        await each.close()


async def test_a_sandbox_that_does_not_start_says_why(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    place = create_backend(Bubblewrap(SandboxSettings()), tmp_path, {"/logs": gone})
    gone.rmdir()
    with pytest.raises(SandboxError, match="Can't find source path"):
        await place.open()
    await place.close()


async def test_readable_directories_are_read_only(tmp_path: Path) -> None:
    for name in ("work", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "logs" / "a.log").write_text("line\n")
    place = create_backend(Bubblewrap(SandboxSettings()), tmp_path / "work", {"/logs": tmp_path / "logs"})
    terminal = Terminal("main", backend=place)
    assert (await run(terminal, "cat /logs/a.log")).output == "line\n"
    assert "Read-only file system" in (await run(terminal, "echo x > /logs/a.log")).output
    await terminal.close()
    await place.close()


async def test_without_a_sandbox_a_terminal_ends_with_its_processes(tmp_path: Path) -> None:
    place = create_backend(Local(SandboxSettings()), tmp_path)
    terminal, other = Terminal("main", backend=place), Terminal("other", backend=place)
    tag, others = seconds(70706), seconds(70708)
    await run(other, f"sleep {others} &")
    await run(terminal, f"setsid sleep {tag} >/dev/null 2>&1 </dev/null & disown; sleep {tag} &")
    await eventually(lambda: processes_with(others) and len(processes_with(tag)) == 2)
    report = await run(terminal, "exit 4")
    assert (report.status, report.exit_code) == ("restarted", 4)
    assert not processes_with(tag)
    assert processes_with(others)
    await place.close()
    await eventually(lambda: not processes_with(others))
    await terminal.close()
    await other.close()


_TAG = seconds(70707)
_PROGRAM = f"""
import asyncio, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals.backends import create_backend
from agent_runtime.terminals.terminal import Terminal
async def main():
    place = create_backend(Bubblewrap(SandboxSettings()), Path(sys.argv[1]))
    for name in ("a", "b"):
        terminal = Terminal(name, backend=place)
        await terminal.run("sleep {_TAG}", timeout=0.2)
        print((await terminal.send("\\x03", timeout=30)).exit_code)
        await terminal.run("setsid sleep {_TAG} & disown", timeout=30)
        await terminal.close()
    await place.close()
asyncio.run(main())
"""


def _interrupts(directory: Path, *before: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    packages = [path for path in sys.path if "site-packages" in path]
    root = str(Path(__file__).parents[3])
    argv = [*before, python, "-c", _PROGRAM, str(directory), root, *packages]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_control_c_works_for_a_bot_that_was_started_deaf_to_it(tmp_path: Path) -> None:
    done = _interrupts(tmp_path, "bash", "-c", "trap '' INT QUIT; exec \"$@\"", "bash")
    assert done.stdout == "130\n130\n", done.stderr
    assert not processes_with(_TAG)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_an_ordinary_user_has_the_same_terminals() -> None:
    user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    python = shutil.which("python3", path="/usr/bin:/bin")
    root = Path(__file__).parents[3]
    if python is None or subprocess.run([*user, "ls", str(root)], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python of the system, or the source cannot be read by other users")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        done = _interrupts(Path(directory), *user, python=python)
    assert done.stdout == "130\n130\n", done.stderr
    assert not processes_with(_TAG)


async def test_a_sandbox_that_ends_at_its_start_is_a_sandbox_error() -> None:
    keeper = SandboxInit(Launch(argv=("/bin/sh", "-c", "echo ready"), env={}))
    await eventually(lambda: not keeper.is_alive)
    with pytest.raises(SandboxError, match="The sandbox did not start"):
        await keeper.wait_ready()


def test_a_control_group_that_cannot_be_entered_is_an_error_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    with (tmp_path / "cgroup.procs").open() as removed, pytest.raises(SandboxError, match="could not be started"):
        SandboxInit(Launch(argv=("/bin/sh", "-c", "exit"), env={}), entrance=removed.fileno())


_FORKS = """
import asyncio, os, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.resident import Resident
from agent_runtime.terminals.backends import create_backend
from agent_runtime.terminals.terminal import Terminal
sandbox, place = Bubblewrap(SandboxSettings()), Path(sys.argv[1])
resident, inside = Resident(sandbox, place, {}), create_backend(sandbox, place)
terminal = Terminal("main", backend=inside)
async def run(command, words):
    said = b"".join([piece async for piece in resident.run(["sh", "-c", words])]).decode()
    return (await terminal.run(command, timeout=20)).output, said
asyncio.run(run("x=5", "echo 6 > /tmp/y"))
if (pid := os.fork()) == 0:
    sys.exit()
os.waitpid(pid, 0)
print(*asyncio.run(run("echo $x", "cat /tmp/y")))
asyncio.run(inside.close())
resident.close()
"""


def test_a_fork_that_ends_takes_no_sandbox_along(tmp_path: Path) -> None:
    argv = [sys.executable, "-W", "ignore", "-c", _FORKS, str(tmp_path), *sys.path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["5", "6"], done.stderr


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    return StandIn.at(tmp_path / "engine")


@pytest.fixture
async def container_place(engine: StandIn, tmp_path: Path) -> AsyncIterator[Backend]:
    (tmp_path / "work").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.log").write_text("logged\n")
    made = create_backend(engine.sandbox(), tmp_path / "work", {"/logs": tmp_path / "logs"})
    yield made
    await made.close()


@pytest.mark.slow
async def test_terminals_live_in_one_container_that_goes_with_them(engine: StandIn, container_place: Backend) -> None:
    one, two = Terminal("one", backend=container_place), Terminal("two", backend=container_place)
    first = await one.run("export A=b; pwd; cat /logs/1.log; echo x >/tmp/shared; (exit 4)", timeout=20)
    assert (first.output, first.exit_code) == ("/workspace\nlogged\n", 4)
    assert (await one.run("echo $A; tty >&2 </dev/tty", timeout=20)).output.startswith("b\n")
    assert (await two.run("cat /tmp/shared", timeout=20)).output == "x\n"
    assert len(engine.containers) == 1
    await container_place.close()
    assert engine.containers == []
    again = await one.run("echo again", timeout=20)
    assert (again.output, again.status, again.exit_code) == ("again\n", "completed", 0), again


@pytest.mark.slow
async def test_a_command_is_broken_off_by_ever_stronger_means(container_place: Backend) -> None:
    terminal = Terminal("main", backend=container_place)
    for stubborn in ("sleep 100", "sh -c 'trap \"\" INT; stty raw echo; sleep 100'"):
        assert (await terminal.run(stubborn, timeout=0.5)).status == "running"
        await terminal.interrupt("enough")
        report = await terminal.read(timeout=5)
        assert report is not None
        assert report.status == "stopped"
        assert (await terminal.run("echo well", timeout=10)).output == "well\n"


@pytest.mark.slow
async def test_a_terminal_s_processes_end_with_it_and_no_others(container_place: Backend) -> None:
    one, two = Terminal("one", backend=container_place), Terminal("two", backend=container_place)
    await one.run("setsid sleep 9001 & sleep 9002 & env -i sleep 9003 &", timeout=20)
    await two.run("sleep 9004 &", timeout=20)
    await one.close()
    shown = await two.run("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x '900[0-9]'", timeout=20)
    assert shown.output == "9004\n"


@pytest.mark.slow
async def test_a_container_whose_engine_does_not_answer_is_not_taken_for_an_ended_one(
    engine: StandIn, container_place: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal("main", backend=container_place)
    await terminal.run("true", timeout=20)
    with monkeypatch.context() as patched:
        patched.setattr(backends, "_run_to_end", lambda _launch: None)
        await terminal.close()
        with pytest.raises(SandboxError, match="did not confirm"):
            await container_place.close()
    await eventually(lambda: not engine.containers)  # the end of its client's input ends it, too


@pytest.mark.slow
async def test_a_container_ended_from_inside_is_restarted(engine: StandIn, container_place: Backend) -> None:
    terminal = Terminal("main", backend=container_place)
    first = await terminal.run("pkill cat", timeout=20)
    assert first.status in {"restarted", "completed"}
    await eventually(lambda: not engine.containers and terminal.pid is None)
    assert (await terminal.run("echo new", timeout=20)).output == "new\n"


@pytest.mark.slow
async def test_a_limit_unknown_to_the_engine_ends_the_container_and_is_reported(
    engine: StandIn, tmp_path: Path
) -> None:
    settings = replace(engine.settings, limits=SandboxLimits(files=50))
    container_place = create_backend(engine.sandbox(settings), tmp_path)
    terminal = Terminal("main", backend=container_place)
    try:
        report = await terminal.run("for n in {1..500}; do : >file-$n; done; sleep 100", timeout=30)
        assert report.status == "killed"
        assert "files" in report.note
        assert (await terminal.run("echo new", timeout=20)).output == "new\n"
    finally:
        await container_place.close()
    assert engine.containers == []


async def test_a_missing_image_is_reported(engine: StandIn, container_place: Backend) -> None:
    (engine.home / "images" / IMAGE).unlink()
    with pytest.raises(SandboxError, match=f"docker pull {IMAGE}"):
        await container_place.open()


@pytest.mark.slow
async def test_the_container_ends_with_its_owner(engine: StandIn, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from tests.containers import StandIn; from agent_runtime.terminals.backends import create_backend\n"
        "from agent_runtime.terminals.terminal import Terminal\n"
        "here = Path(sys.argv[1])\n"
        "engine = StandIn(home=here / 'engine', program=here / 'engine' / 'docker')\n"
        "async def main():\n"
        "    terminal = Terminal('main', backend=create_backend(engine.sandbox(), here))\n"
        "    await terminal.run('setsid sleep 1000 & sleep 1001 &', timeout=20)\n"
        "    print('up', flush=True); await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, "-c", program, str(tmp_path), str(ROOT), *sys.path], stdout=subprocess.PIPE
    ) as bot:
        assert bot.stdout is not None
        assert bot.stdout.readline() == b"up\n"
        assert len(engine.containers) == 1
        bot.kill()
    await eventually(lambda: not engine.containers)


@pytest.mark.parametrize("first", ["the sandbox", "a terminal"])
async def test_a_sandbox_whose_programs_do_not_end_is_not_taken_for_a_closed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    async def kill(_family: ProcessFamily, **_: float) -> bool:
        return False

    backend = create_backend(Bubblewrap(SandboxSettings()), tmp_path)
    terminal = Terminal("main", backend=backend)
    await run(terminal, "true")
    monkeypatch.setattr(sandbox_init, "_END_SECONDS", 0.0)
    monkeypatch.setattr(sandbox_init, "_is_empty", lambda _pidfd: False)
    if first == "a terminal":
        monkeypatch.setattr(ProcessFamily, "kill", kill)
        await terminal.close()
    with pytest.raises(SandboxError, match="did not end") as caught:
        await backend.close()
    assert isinstance(caught.value.__cause__, BlockingIOError)
