"""Windows terminals, with bash on a POSIX terminal in place of ConPTY."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.select import Local
from agent_runtime.terminals import windows
from agent_runtime.terminals.output import Spool
from agent_runtime.terminals.windows import ConsoleTerminal, ConsoleTerminals


class PosixConsole:
    """A program on a terminal that echoes its input, as a console does."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self._master, theirs = os.openpty()
        modes = termios.tcgetattr(theirs)
        modes[1] &= ~termios.ONLCR
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *argv], env=dict(env), cwd=directory, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.wait(timeout=5)

    def read(self) -> str:
        try:
            return os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            os.close(self._master)
            raise EOFError from None

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, text.encode())

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGHUP)
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[ConsoleTerminals]:
    (tmp_path / "work").mkdir()
    made = ConsoleTerminals(Local(SandboxSettings()), tmp_path / "work", Spool(tmp_path / "logs"), start=PosixConsole)
    yield made
    await made.close()


@pytest.fixture
def terminal(place: ConsoleTerminals) -> ConsoleTerminal:
    return place.terminal("main", "bash")


@pytest.mark.parametrize(
    ("command", "exit_code", "output"),
    [
        ("echo hi", 0, "hi\n"),
        ("false", 1, ""),
        ("(exit 7)", 7, ""),
        ("cat <<E\n\ta\nE", 0, "\ta\n"),
        ("echo a # comment", 0, "a\n"),
        ("for i in 1 2\ndo echo $i\ndone", 0, "1\n2\n"),
        ("printf 'no end'", 0, "no end"),
        ("", 0, ""),
        ("printf '10%%\\r20%%\\n'", 0, "20%\n"),
        ("echo \u00fc '\U0001f600'", 0, "\u00fc \U0001f600\n"),
    ],
)
async def test_a_command_ends_with_its_output_and_exit_code(
    terminal: ConsoleTerminal, command: str, exit_code: int, output: str
) -> None:
    report = await terminal.run(command, timeout=20)
    assert (report.status, report.exit_code, report.output) == ("completed", exit_code, output)
    assert report.ok is (exit_code == 0)


async def test_shell_state_persists_and_the_directory_is_reported(terminal: ConsoleTerminal, tmp_path: Path) -> None:
    await terminal.run("mkdir sub; cd sub; x=5", timeout=20)
    report = await terminal.run("echo $x", timeout=20)
    assert (report.output, report.cwd, report.number) == ("5\n", str(tmp_path / "work" / "sub"), 2)
    assert terminal.pid == int((await terminal.run("echo $$", timeout=20)).output)


@pytest.mark.parametrize("command", ["echo 'open", "cat <<E\nx", "if true; then"])
async def test_unclosed_syntax_ends_with_its_command(terminal: ConsoleTerminal, command: str) -> None:
    assert (await terminal.run(command, timeout=20)).status == "completed"
    assert (await terminal.run("echo again", timeout=20)).output == "again\n"


async def test_a_command_that_goes_on_takes_input_and_is_read_in_pieces(terminal: ConsoleTerminal) -> None:
    report = await terminal.run("read -p 'name? ' -s name; echo; echo hello $name", timeout=0.5)
    assert (report.status, report.output, terminal.running_command is not None) == ("running", "name? ", True)
    with pytest.raises(RuntimeError):
        await terminal.run("echo", timeout=1)
    report = await terminal.send("you\n", timeout=20)
    assert (report.status, report.output) == ("completed", "\nhello you\n")
    whole = await terminal.read(timeout=1)
    assert whole is not None
    assert whole.output == "name? \nhello you\n"
    with pytest.raises(RuntimeError):
        await terminal.send("x", timeout=1)


async def test_control_c_restores_the_shell_and_a_program_that_ignores_it_is_killed(
    terminal: ConsoleTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_GRACE_SECONDS", 30.0)  # however busy the machine is
    await terminal.run("sleep 100", timeout=0.2)
    await terminal.interrupt("enough")
    report = await terminal.read(timeout=5)
    assert report is not None
    assert (report.status, report.note) == ("stopped", "enough")
    monkeypatch.setattr(windows, "_GRACE_SECONDS", 0.5)
    await terminal.run("trap '' INT; sleep 100", timeout=0.3)
    await terminal.interrupt("enough")
    assert terminal.pid is None
    assert (await terminal.run("echo anew", timeout=20)).output == "anew\n"


async def test_a_shell_that_ends_says_so_and_starts_again(terminal: ConsoleTerminal) -> None:
    report = await terminal.run("exit 3", timeout=20)
    assert (report.status, report.exit_code) == ("restarted", 3)
    assert (await terminal.run("echo anew", timeout=20)).output == "anew\n"


async def test_long_output_is_truncated_and_logged_in_full(terminal: ConsoleTerminal, tmp_path: Path) -> None:
    report = await terminal.run("seq 20000", timeout=20)
    assert "characters left out" in report.output
    (log,) = (tmp_path / "logs").glob("*.log")
    assert log.read_text() == "".join(f"{number}\n" for number in range(1, 20001))


async def test_a_shell_that_does_not_start_says_why(tmp_path: Path) -> None:
    def start(argv: Sequence[str], env: Mapping[str, str], directory: Path) -> PosixConsole:
        return PosixConsole(["sh", "-c", "echo no such thing; exit 1"], env, directory)

    place = ConsoleTerminals(Local(SandboxSettings()), tmp_path, None, start=start)
    with pytest.raises(SandboxError, match="no such thing"):
        await place.terminal("main", "bash").run("echo", timeout=20)


def test_a_terminal_lives_on_from_one_event_loop_to_the_next(tmp_path: Path) -> None:
    place = ConsoleTerminals(Local(SandboxSettings()), tmp_path, None, start=PosixConsole)
    terminal = place.terminal("main", "bash")
    asyncio.run(terminal.run("x=5", timeout=20))
    assert asyncio.run(terminal.run("echo $x", timeout=20)).output == "5\n"
    asyncio.run(place.close())
