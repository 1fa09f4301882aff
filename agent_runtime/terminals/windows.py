"""Terminals of Windows: pseudo consoles (ConPTY, through pywinpty) with PowerShell, cmd or bash in them.

There is no sandbox on Windows: what runs here may do what its user may. Only `ConPty` needs Windows, so that the rest
can be tried with any shell on any terminal. `ConPty` itself is not tested here.
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
from agent_runtime.sandbox.protocol import Sandbox, Temporary
from agent_runtime.terminals.command import CommandReport, Marker, TerminalCommand, mark, parse_mark, possible_start
from agent_runtime.terminals.output import COLUMNS, ROWS, Output, Spool

_START_SECONDS = 30.0
_GRACE_SECONDS = 1.0
_QUIET_SECONDS = 0.15


class Windows:
    """Terminals with the shells that are installed on Windows."""

    def __init__(self, sandbox: Sandbox, workspace: Path, spool: Spool | None, *, start: Starter | None = None) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._spool = spool
        self._start = start or ConPty
        self._scripts = Temporary("codepilot-commands-")
        self._terminals: list[ConsoleTerminal] = []

    @property
    def shells(self) -> tuple[str, ...]:
        """Those of PowerShell, cmd and bash that are installed."""
        return tuple(name for name, dialect in DIALECTS.items() if shutil.which(dialect.argv[0]))

    def terminal(self, name: str, shell: str) -> ConsoleTerminal:
        """A terminal of that name with one of `shells`."""
        made = ConsoleTerminal(
            name,
            dialect=DIALECTS[shell],
            start=partial(self._begin, shell),
            scripts=self._scripts.path,
            spool=self._spool,
        )
        self._terminals.append(made)
        return made

    async def close(self) -> None:
        """End everything that was started, at once; idempotent."""
        await asyncio.gather(*(terminal.close() for terminal in self._terminals))

    def _begin(self, shell: str) -> Console:
        launch = self._sandbox.launch(DIALECTS[shell].argv, workspace=self._workspace)
        try:
            return self._start(launch.argv, launch.env, self._workspace)
        except OSError as error:
            raise SandboxError(f"`{launch.argv[0]}` could not be started on a terminal: {error}") from error


class ConsoleTerminal:
    """A shell on a pseudo console; used as `Terminal` is.

    A thread of its own reads the console, because Windows has no way to wait for one among other things.

    Attributes:
        cwd: the shell's working directory when it last said so; empty before it started.
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
        self._heard: deque[str | None] = deque()
        self._changed: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._parted = Parted("")
        self._unpainted = Unpainted(ROWS)
        self._command: TerminalCommand | None = None
        self._commands = 0
        self._pid = 0
        self.cwd = ""

    @property
    def pid(self) -> int | None:
        """The shell's process id; None when no shell lives."""
        return None if self._console is None else self._pid or self._console.pid

    @property
    def running(self) -> str | None:
        """The command that runs now, or None."""
        command = self._command
        return command.text if command is not None and command.running else None

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """Run a command; see `Terminal`."""
        if self.running is not None:
            raise RuntimeError("a command is running in this terminal")
        self._take_in()
        if self._console is None:
            await self._open()
        self._commands += 1
        command = await self._launch(Output(spool=self._spool, name=f"{self._name}-{self._commands}"), text)
        await self._wait(lambda: not command.running, timeout)
        return command.report(command.output.take(), cwd=self.cwd)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """What is new of the last command; see `Terminal`."""
        command = self._command
        if command is None:
            return None
        was_running = command.running
        await self._wait(lambda: not command.running, timeout)
        fresh = was_running or command.output.fresh
        return command.report(command.output.take() if fresh else command.output.whole(), cwd=self.cwd)

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """Type `text` to the running command; see `Terminal`."""
        command = self._command
        if command is None or not command.running or self._console is None:
            raise RuntimeError("no command is running in this terminal")
        before = command.output.bytes
        self._console.write(text.replace("\r\n", "\n").replace("\n", "\r"))
        deadline = time.monotonic() + timeout
        await self._wait(partial(command.has_progressed, before), timeout)
        while self.running is not None and time.monotonic() < deadline:
            seen = command.output.bytes
            if not await self._wait(partial(command.has_progressed, seen), _QUIET_SECONDS):
                break
        return command.report(command.output.take(), cwd=self.cwd)

    async def interrupt(self, reason: str) -> None:
        """Break off the running command: Ctrl+C, then the shell and all that it started."""
        command = self._command
        if command is None or not command.running or self._console is None:
            return
        command.stop_reason = reason
        self._console.write("\x03")
        if not await self._wait(lambda: not command.running, _GRACE_SECONDS):
            await self.close()

    async def close(self) -> None:
        """Kill the shell and everything it started; idempotent."""
        console, self._console = self._console, None
        if console is not None:
            await console.kill()  # the thread that reads it ends with it
        if self._command is not None and self._command.running:
            self._command.settle("restarted")
        self.cwd, self._pid = "", 0

    async def _open(self) -> None:
        console = self._console = self._start()
        heard = self._heard = deque()
        self._unpainted = Unpainted(ROWS)
        threading.Thread(target=self._listen, args=(console, heard), daemon=True, name=f"terminal {self._name}").start()
        ready = await self._launch(Output(), self._dialect.setup)
        if not await self._wait(lambda: not ready.running, _START_SECONDS) or ready.status != "completed":
            said = self._parted.unbegun() or ready.output.whole()
            await self.close()
            raise SandboxError(f"The shell did not start. It said: {said.strip() or 'nothing'}")

    async def _launch(self, output: Output, text: str) -> TerminalCommand:
        command = self._command = TerminalCommand(number=self._commands, text=text, output=output, launched=True)
        nonce = secrets.token_hex(16)
        self._parted = Parted(nonce)
        path, end = (self._scripts / f"{name}{self._dialect.suffix}" for name in (nonce, "end"))
        if not end.exists():
            end.write_bytes(self._dialect.ending())
        path.write_bytes(self._dialect.script(text, nonce))
        assert self._console is not None  # noqa: S101 - the caller has opened it
        self._console.write(self._dialect.typed(path, end, nonce))
        return command

    def _listen(self, console: Console, heard: deque[str | None]) -> None:
        """Hand on what comes, from a thread; None at the end."""
        text: str | None = ""
        while text is not None:
            try:
                text = console.read()
            except EOFError:
                text = None
            heard.append(text)
            if (waiting := self._changed) is not None:
                with contextlib.suppress(RuntimeError):  # that loop is closed; the next one looks for itself
                    waiting[0].call_soon_threadsafe(waiting[1].set)

    async def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Take in what comes until a condition holds that only this can bring about."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        deadline = loop.time() + seconds
        while True:
            self._changed = (loop, changed)
            changed.clear()
            self._take_in()
            command = self._command if self.running is not None else None
            if command is not None and command.output.over_quota and not command.stop_reason:
                await self.interrupt(f"it wrote more than {command.output.quota:,} bytes and was stopped")
            if until():
                return True
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                return until()

    def _take_in(self) -> None:
        command = self._command
        while self._heard:
            heard, running = self._heard.popleft(), command is not None and command.running
            console = self._console
            if heard is None:
                self._console = None
            if command is None or not running:
                continue
            if heard is None:
                command.exit_code = console.exit_code if console is not None else None
                command.settle("restarted")
                continue
            command.output.feed(self._unpainted.feed(self._parted.feed(heard)).encode())
            if (marker := self._parted.marker) is not None:
                command.exit_code, command.pipe, command.ok = marker.exit_code, marker.pipe, marker.ok
                self.cwd, self._pid = marker.cwd, marker.pid
                command.settle("completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One shell.

    The shell runs a command from a file in its own session: no quoting, line editing or half-typed line interferes, and
    anything left open in the file ends with it. The file first reports that the command begins, because the
    terminal echoes our line before that. A second file reports how the command ended, and the working directory.
    Both reports are escape sequences with a random nonce, as for bash (see `command`), which ConPTY passes through. The
    exit code is that of a pipe's last program: these shells do not keep the others.

    Attributes:
        argv: how it is started.
        suffix: of the files that it runs.
        encoding: of these files.
        newline: of these files.
        line: what is typed; `{command}` and `{end}` are the paths of the two files, `{nonce}` the nonce.
        apostrophe: how an apostrophe is written in `line`.
        begin: what a command's file begins with; `{mark}` is the text to write.
        after: what it ends with.
        end: the second file.
        setup: a command that makes a new shell ready.
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

    def typed(self, command: PurePath, end: PurePath, nonce: str) -> str:
        """The line that runs a command's file."""
        command_path, end_path = (path.as_posix().replace("'", self.apostrophe) for path in (command, end))
        return self.line.format(command=command_path, end=end_path, nonce=nonce) + "\r"

    def script(self, command: str, nonce: str) -> bytes:
        """The file of a command."""
        return self._file(self.begin.format(mark=f"\x1b]7770;{nonce};begin\x07") + command + "\n" + self.after)

    def ending(self) -> bytes:
        """The file that says how a command ended."""
        return self._file(self.end)

    def _file(self, text: str) -> bytes:
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
        # Ctrl+C ends the whole line, but not what stands before the prompt.
        line="PROMPT_COMMAND=\". '{end}' {nonce}\"; . '{command}'",
        apostrophe="'\\''",
        begin="builtin printf '%s' '{mark}'\n",
        end='builtin printf \'\\e]7770;%s;%s;%s;%s\\a\' "$1" "$?" "$$" "$PWD"\n',
        setup="set +o history +H; unset HISTFILE; PS1= PS2=; export PAGER=cat GIT_PAGER=cat NO_COLOR=1 CI=true",
    ),
}
"""By the name that `execute` knows them by, the usual one first."""
_LAST_WORDS = 2_000
"""Characters before a command begins that are looked through for its beginning, and told when it never comes."""


class Parted:
    """Parts what a terminal gives while a command runs: what comes before it, its output, and how it ended.

    Attributes:
        begun: whether the command has begun.
        marker: how it ended, or None.
    """

    def __init__(self, nonce: str) -> None:
        self._begin = f"\x1b]7770;{nonce};begin\x07"
        self._mark = mark(nonce).decode()
        self._rest = ""
        self.begun = False
        self.marker: Marker | None = None

    def feed(self, text: str) -> str:
        """Take the next piece; the output in it, without what may be the start of a marker."""
        text = self._rest + text
        self._rest = ""
        if not self.begun:
            at = text.find(self._begin)
            if at < 0:
                self._rest = text[-_LAST_WORDS:]
                return ""
            self.begun = True
            text = text[at + len(self._begin) :]
        start = text.find(self._mark)
        end = text.find("\x07", start) if start >= 0 else -1
        if end >= 0:
            self.marker = parse_mark(text[start + len(self._mark) : end].encode())
            return text[:start]
        cut = start if start >= 0 else possible_start(text, self._mark)
        self._rest = text[cut:]
        return text[:cut]

    def unbegun(self) -> str:
        """What was said instead of beginning: an error of the shell about the file."""
        return "" if self.begun else self._rest


_CURSOR = re.compile(r"\x1b\[(\d*)(?:;(\d*))?H|\x1b\[(\d*)X|\r?\n")
_CUT = re.compile(r"\x1b(?:\[[0-?]*)?\Z|\r\Z")


class Unpainted:
    """Turns a screen that ConPTY paints back into lines: it puts the cursor where a program has begun a new line."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._row = 1
        self._rest = ""

    def feed(self, text: str) -> str:
        """Take the next piece; the same with new lines in the place of cursor positions."""
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
        # Upwards it paints again what was there.
        return ("\n" * down if down > 0 else "") + f"\x1b[{column}G"


class Console(Protocol):
    """A program on a pseudo console."""

    @property
    def pid(self) -> int:
        """The program's process id."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How the program ended; None before its end, or when nobody knows."""
        ...

    def read(self) -> str:
        """Wait for what the program writes, and give it.

        Raises:
            EOFError: it has ended.
        """
        ...

    def write(self, text: str) -> None:
        """Type something; nothing happens when the program has ended."""
        ...

    async def kill(self) -> None:
        """Kill the program and all that it started; `read` ends."""
        ...


Starter = Callable[[Sequence[str], Mapping[str, str], Path], Console]
"""Starts a program with this environment in a directory.

Raises:
    OSError: it cannot be started.
"""


class ConPty:
    """See `Console`."""

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
        """The program's process id."""
        return int(self._pty.pid or 0)

    @property
    def exit_code(self) -> int | None:
        """How it ended."""
        code: int | None = self._pty.get_exitstatus()
        return code

    def read(self) -> str:
        """What it writes."""
        try:
            text: str = self._pty.read(blocking=True)
        except self._error as error:
            raise EOFError from error
        if not text and self._pty.iseof():
            raise EOFError
        return text

    def write(self, text: str) -> None:
        """Type something."""
        with contextlib.suppress(self._error):  # reading will tell
            self._pty.write(text)

    async def kill(self) -> None:
        """Kill it and all that it started."""
        if not self._pty.isalive():
            return
        killer = await asyncio.create_subprocess_exec(
            "taskkill",
            "/F",
            "/T",
            "/PID",
            str(self.pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await killer.wait()
        with contextlib.suppress(self._error):  # nobody was reading
            self._pty.cancel_io()
