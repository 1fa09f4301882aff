"""Windows terminals: pseudo consoles (ConPTY, through pywinpty) with PowerShell, cmd or bash, without a sandbox.

Only `ConPty` needs Windows; it is not tested here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Protocol

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import PrivateDirectory, Sandbox
from agent_runtime.terminals import command as command_module
from agent_runtime.terminals.command import CommandReport, Marker, TerminalCommand
from agent_runtime.terminals.output import COLUMNS, ROWS, Output, Spool

_START_SECONDS = 30.0
_GRACE_SECONDS = 1.0
_QUIET_SECONDS = 0.15


class ConsoleTerminals:
    """Terminals with the shells installed on Windows."""

    def __init__(self, sandbox: Sandbox, workspace: Path, spool: Spool | None, *, start: Starter | None = None) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._spool = spool
        self._start = start or ConPty
        self._scripts = PrivateDirectory("codepilot-commands-")
        self._terminals: list[ConsoleTerminal] = []

    @property
    def shells(self) -> tuple[str, ...]:
        """Installed shells, of PowerShell, cmd and bash."""
        return tuple(name for name, dialect in DIALECTS.items() if shutil.which(dialect.argv[0]))

    def terminal(self, name: str, shell: str) -> ConsoleTerminal:
        """Create a terminal with one of `shells`."""
        console_terminal = ConsoleTerminal(
            name,
            dialect=DIALECTS[shell],
            start=partial(self._start_console, shell),
            scripts=self._scripts.path,
            spool=self._spool,
        )
        self._terminals.append(console_terminal)
        return console_terminal

    async def close(self) -> None:
        """Kill all shells at once; idempotent."""
        await asyncio.gather(*(terminal.close() for terminal in self._terminals))

    def _start_console(self, shell: str) -> Console:
        launch = self._sandbox.launch(DIALECTS[shell].argv, workspace=self._workspace)
        try:
            return self._start(launch.argv, launch.env, self._workspace)
        except OSError as error:
            raise SandboxError(f"`{launch.argv[0]}` could not be started on a terminal: {error}") from error


class ConsoleTerminal:
    """A shell on a pseudo console, with the interface of `Terminal`.

    A thread reads the console, which Windows cannot poll.
    """

    def __init__(
        self, name: str, *, dialect: Dialect, start: Callable[[], Console], scripts: Path, spool: Spool | None = None
    ) -> None:
        self._name = name
        self._dialect = dialect
        self._start = start
        self._scripts = scripts
        self._spool = spool
        self._console: Console | None = None
        self._chunks: deque[str | None] = deque()
        self._changed: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._parser = OutputParser("")
        self._repaint_filter = RepaintFilter(ROWS)
        self._command: TerminalCommand | None = None
        self._commands = 0
        self._pid = 0
        self.cwd = ""

    @property
    def pid(self) -> int | None:
        """The shell's process id, or None."""
        return None if self._console is None else self._pid or self._console.pid

    @property
    def running_command(self) -> str | None:
        """The running command, or None."""
        command = self._command
        return command.text if command is not None and command.is_running else None

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """See `Terminal.run`."""
        if self.running_command is not None:
            raise RuntimeError("a command is running in this terminal")
        self._process_chunks()
        if self._console is None:
            await self._open()
        self._commands += 1
        command = await self._launch(Output(spool=self._spool, name=f"{self._name}-{self._commands}"), text)
        await self._wait(lambda: not command.is_running, timeout)
        return command.report(command.output.take_new(), cwd=self.cwd)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """See `Terminal.read`."""
        command = self._command
        if command is None:
            return None
        was_running = command.is_running
        await self._wait(lambda: not command.is_running, timeout)
        fresh = was_running or command.output.has_new
        return command.report(command.output.take_new() if fresh else command.output.render_all(), cwd=self.cwd)

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """See `Terminal.send`."""
        command = self._command
        if command is None or not command.is_running or self._console is None:
            raise RuntimeError("no command is running in this terminal")
        before = command.output.bytes
        self._console.write(text.replace("\r\n", "\n").replace("\n", "\r"))
        deadline = time.monotonic() + timeout
        await self._wait(partial(command.has_progressed, before), timeout)
        while self.running_command is not None and time.monotonic() < deadline:
            seen_bytes = command.output.bytes
            if not await self._wait(partial(command.has_progressed, seen_bytes), _QUIET_SECONDS):
                break
        return command.report(command.output.take_new(), cwd=self.cwd)

    async def list_programs(self) -> tuple[str, ...]:
        """List the running command; programs in the background cannot be told from others here."""
        return tuple(filter(None, [self.running_command]))

    async def interrupt(self, reason: str) -> None:
        """Press Ctrl+C, then kill the shell."""
        command = self._command
        if command is None or not command.is_running or self._console is None:
            return
        command.stop_reason = reason
        self._console.write("\x03")
        if not await self._wait(lambda: not command.is_running, _GRACE_SECONDS):
            await self.close()

    async def close(self) -> None:
        """Kill the shell and its processes; idempotent."""
        console, self._console = self._console, None
        if console is not None:
            await console.kill()  # the thread that reads it ends with it
        if self._command is not None and self._command.is_running:
            self._command.finish("restarted")
        self.cwd, self._pid = "", 0

    async def _open(self) -> None:
        console = self._console = self._start()
        chunks = self._chunks = deque()
        self._repaint_filter = RepaintFilter(ROWS)
        threading.Thread(target=self._pump, args=(console, chunks), daemon=True, name=f"terminal {self._name}").start()
        ready = await self._launch(Output(), self._dialect.setup)
        if not await self._wait(lambda: not ready.is_running, _START_SECONDS) or ready.status != "completed":
            message = self._parser.startup_error() or ready.output.render_all()
            await self.close()
            raise SandboxError(f"The shell did not start. It said: {message.strip() or 'nothing'}")

    async def _launch(self, output: Output, text: str) -> TerminalCommand:
        command = self._command = TerminalCommand(number=self._commands, text=text, output=output, launched=True)
        nonce = secrets.token_hex(16)
        self._parser = OutputParser(nonce)
        path, end = (self._scripts / f"{name}{self._dialect.suffix}" for name in (nonce, "end"))
        if not end.exists():
            end.write_bytes(self._dialect.end_file())
        path.write_bytes(self._dialect.command_file(text, nonce))
        assert self._console is not None  # noqa: S101 - the caller has opened it
        self._console.write(self._dialect.input_line(path, end, nonce))
        return command

    def _pump(self, console: Console, chunks: deque[str | None]) -> None:
        text: str | None = ""
        while text is not None:
            try:
                text = console.read()
            except EOFError:
                text = None
            chunks.append(text)
            if (waiting := self._changed) is not None:
                with contextlib.suppress(RuntimeError):  # that loop is closed; the next one reads the queue itself
                    waiting[0].call_soon_threadsafe(waiting[1].set)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        deadline = loop.time() + seconds
        while True:
            self._changed = (loop, changed)
            changed.clear()
            self._process_chunks()
            command = self._command if self.running_command is not None else None
            if command is not None and command.output.is_over_quota and not command.stop_reason:
                await self.interrupt(f"it wrote more than {command.output.quota:,} bytes and was stopped")
            if condition():
                return True
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                return condition()

    def _process_chunks(self) -> None:
        command = self._command
        while self._chunks:
            chunk, running = self._chunks.popleft(), command is not None and command.is_running
            console = self._console
            if chunk is None:
                self._console = None
            if command is None or not running:
                continue
            if chunk is None:
                command.exit_code = console.exit_code if console is not None else None
                command.finish("restarted")
                continue
            command.output.feed(self._repaint_filter.feed(self._parser.feed(chunk)).encode())
            if (marker := self._parser.marker) is not None:
                command.exit_code, command.pipe, command.ok = marker.exit_code, marker.pipe, marker.ok
                self.cwd, self._pid = marker.cwd, marker.pid
                command.finish("completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Syntax of one shell.

    A command runs from a file in the shell's session; a second file reports the end by an escape sequence with a nonce.

    Attributes:
        line: input that runs both files, `{command}` and `{end}`.
        apostrophe: its escape in `line`.
        begin: start of a command file; `{mark}` is the text to write.
    """

    argv: tuple[str, ...]
    suffix: str
    encoding: str
    newline: str
    line: str
    apostrophe: str
    begin: str
    after: str = ""
    end: str
    setup: str

    def input_line(self, command: PurePath, end: PurePath, nonce: str) -> str:
        """Return the input that runs a command file."""
        command_path, end_path = (path.as_posix().replace("'", self.apostrophe) for path in (command, end))
        return self.line.format(command=command_path, end=end_path, nonce=nonce) + "\r"

    def command_file(self, command: str, nonce: str) -> bytes:
        """Return the command file."""
        return self._encode(self.begin.format(mark=f"\x1b]7770;{nonce};begin\x07") + command + "\n" + self.after)

    def end_file(self) -> bytes:
        """Return the file that reports the end."""
        return self._encode(self.end)

    def _encode(self, text: str) -> bytes:
        return text.replace("\r\n", "\n").replace("\n", self.newline).encode(self.encoding, errors="replace")


DIALECTS = {
    "powershell": Dialect(
        argv=("powershell.exe", "-NoLogo", "-NoProfile", "-ExecutionPolicy", "Bypass"),
        suffix=".ps1",
        encoding="utf-8-sig",  # without the mark, Windows PowerShell takes a file for the system's own code page
        newline="\r\n",
        line="$__cp_ok = $false; $global:LASTEXITCODE = 0; "
        "try {{ . '{command}' }} catch {{ $_ | Out-Default }} finally {{ . '{end}' {nonce} }}",
        apostrophe="''",
        begin="[Console]::Write('{mark}')\n",
        after="$__cp_ok = $?\n",
        end="$__cp_code = if ($__cp_ok) { 0 } elseif ($LASTEXITCODE) { $LASTEXITCODE } else { 1 }\n"
        '[Console]::Write("$([char]27)]7770;$($args[0]);$__cp_code;$PID;$($PWD.ProviderPath)$([char]7)")\n',
        setup="Remove-Module PSReadLine -ErrorAction SilentlyContinue\n"
        "$ProgressPreference = 'SilentlyContinue'; $env:PAGER = 'cat'; $env:NO_COLOR = '1'; $env:CI = 'true'\n"
        "[Console]::OutputEncoding = [Text.Encoding]::UTF8; function global:prompt { ' ' }",
    ),
    "cmd": Dialect(
        argv=("cmd.exe", "/d", "/q"),
        suffix=".cmd",
        encoding="utf-8",
        newline="\r\n",
        line='call "{command}" & call "{end}" {nonce}',
        apostrophe="'",
        # `set /p` writes without a new line but leaves an error code, and `(call )` takes it away.
        begin='@echo off\n<nul set /p "={mark}"\n(call )\n',
        end='@<nul set /p "=\x1b]7770;%~1;%ERRORLEVEL%;0;%CD%\x07"\n',
        setup="chcp 65001 >nul\nset NO_COLOR=1\nset CI=true",
    ),
    "bash": Dialect(
        argv=("bash", "--noprofile", "--norc", "--noediting", "-i"),
        suffix=".sh",
        encoding="utf-8",
        newline="\n",
        # Ctrl+C ends the whole line, but not the prompt command.
        line="PROMPT_COMMAND=\". '{end}' {nonce}\"; . '{command}'",
        apostrophe="'\\''",
        begin="builtin printf '%s' '{mark}'\n",
        end='builtin printf \'\\e]7770;%s;%s;%s;%s\\a\' "$1" "$?" "$$" "$PWD"\n',
        setup="set +o history +H; unset HISTFILE; PS1= PS2=; export PAGER=cat GIT_PAGER=cat NO_COLOR=1 CI=true",
    ),
}
"""Dialects by shell name, the default first."""
_MAX_PREAMBLE_CHARS = 2_000
"""Characters kept before a command starts, for the error message."""


class OutputParser:
    """Splits terminal text into preamble, output and end report (`marker`)."""

    def __init__(self, nonce: str) -> None:
        self._begin = f"\x1b]7770;{nonce};begin\x07"
        self._marker_prefix = command_module.marker_prefix(nonce).decode()
        self._rest = ""
        self.has_started = False
        self.marker: Marker | None = None

    def feed(self, text: str) -> str:
        """Return the output in the next piece, keeping back a partial marker."""
        text = self._rest + text
        self._rest = ""
        if not self.has_started:
            index = text.find(self._begin)
            if index < 0:
                self._rest = text[-_MAX_PREAMBLE_CHARS:]
                return ""
            self.has_started = True
            text = text[index + len(self._begin) :]
        start = text.find(self._marker_prefix)
        end = text.find("\x07", start) if start >= 0 else -1
        if end >= 0:
            self.marker = command_module.parse_marker(text[start + len(self._marker_prefix) : end].encode())
            return text[:start]
        cut = start if start >= 0 else command_module.find_partial(text, self._marker_prefix)
        self._rest = text[cut:]
        return text[:cut]

    def startup_error(self) -> str:
        """Return the shell's error if the command did not start, else ""."""
        return "" if self.has_started else self._rest


_CURSOR = re.compile(r"\x1b\[(\d*)(?:;(\d*))?H|\x1b\[(\d*)X|\r?\n")
_CUT = re.compile(r"\x1b(?:\[[0-?]*)?\Z|\r\Z")


class RepaintFilter:
    """Converts a screen painted by ConPTY into lines: cursor positions stand for new lines."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._row = 1
        self._rest = ""

    def feed(self, text: str) -> str:
        """Return the next piece with line ends instead of cursor positions."""
        text = self._rest + text
        cut = _CUT.search(text)
        self._rest = cut[0] if cut else ""
        return _CURSOR.sub(self._line, text[: len(text) - len(self._rest)])

    def _line(self, match: re.Match[str]) -> str:
        if match[0].endswith("\n"):
            self._row = min(self._row + 1, self._rows)
            return "\n"
        if match[3] is not None:  # blanks that leave the cursor where it is
            return ""
        row, column = int(match[1] or 1), int(match[2] or 1)
        down, self._row = row - self._row, row
        # Upward moves repaint existing text.
        return ("\n" * down if down > 0 else "") + f"\x1b[{column}G"


class Console(Protocol):
    """A program on a pseudo console."""

    @property
    def pid(self) -> int:
        """The program's process id."""

    @property
    def exit_code(self) -> int | None:
        """None before the end, or if unknown."""

    def read(self) -> str:
        """Wait for output.

        Raises:
            EOFError: the program has ended.
        """

    def write(self, text: str) -> None:
        """Type text; ignored after the program's end."""

    async def kill(self) -> None:
        """Kill the program and its children; `read` ends."""


Starter = Callable[[Sequence[str], Mapping[str, str], Path], Console]
"""Starts a program with this environment in a directory.

Raises:
    OSError: it does not start.
"""


class ConPty:
    """Implementation of `Console` with pywinpty."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        from winpty import PTY, Backend, WinptyError  # noqa: PLC0415 - for this system only

        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            raise FileNotFoundError(f"there is no {argv[0]} on the PATH")
        variables = "".join(f"{name}={value}\0" for name, value in env.items())
        self._error = WinptyError
        try:
            self._pty = PTY(COLUMNS, ROWS, backend=Backend.ConPTY)
            self._pty.spawn(program, cmdline=f" {subprocess.list2cmdline(argv[1:])}", cwd=str(directory), env=variables)
        except WinptyError as error:
            raise OSError(str(error)) from error

    @property
    def pid(self) -> int:
        """See `Console`."""
        return int(self._pty.pid or 0)

    @property
    def exit_code(self) -> int | None:
        """See `Console`."""
        code: int | None = self._pty.get_exitstatus()
        return code

    def read(self) -> str:
        """See `Console`."""
        try:
            text: str = self._pty.read(blocking=True)
        except self._error as error:
            raise EOFError from error
        if not text and self._pty.iseof():
            raise EOFError
        return text

    def write(self, text: str) -> None:
        """See `Console`."""
        with contextlib.suppress(self._error):  # reading reports the end
            self._pty.write(text)

    async def kill(self) -> None:
        """See `Console`."""
        if not self._pty.isalive():
            return
        null = asyncio.subprocess.DEVNULL
        killer = await asyncio.create_subprocess_exec(
            "taskkill", "/F", "/T", "/PID", str(self.pid), stdin=null, stdout=null, stderr=null
        )
        await killer.wait()
        with contextlib.suppress(self._error):  # there was no reader
            self._pty.cancel_io()
