"""Terminals of Windows: pseudo consoles (ConPTY, through pywinpty) with PowerShell, cmd or bash in them.

There is no sandbox on Windows: what runs here may do what its user may. Nothing in this module needs Windows, so that
it can be tried with any shell on any terminal; see `conpty`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.temporary import Temporary
from agent_runtime.terminals.command import CommandReport, TerminalCommand
from agent_runtime.terminals.conpty import ConPty, Console, Starter
from agent_runtime.terminals.output import Output
from agent_runtime.terminals.screen import ROWS
from agent_runtime.terminals.spool import Spool
from agent_runtime.terminals.windows_shells import DIALECTS, Dialect, Parted, Unpainted

_START_SECONDS = 30.0
_GRACE_SECONDS = 1.0
_QUIET_SECONDS = 0.15


class Windows:
    """See `Place`."""

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
    """A shell on a pseudo console; see `LiveTerminal`.

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
        return command.text if command is not None and command.status == "running" else None

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """Run a command; see `LiveTerminal`."""
        if self.running is not None:
            raise RuntimeError("a command is running in this terminal")
        self._take_in()
        if self._console is None:
            await self._open()
        self._commands += 1
        command = await self._launch(Output(spool=self._spool, name=f"{self._name}-{self._commands}"), text)
        await self._wait(lambda: command.status != "running", timeout)
        return command.report(command.output.take(), cwd=self.cwd)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """What is new of the last command; see `LiveTerminal`."""
        command = self._command
        if command is None:
            return None
        was_running = command.status == "running"
        await self._wait(lambda: command.status != "running", timeout)
        fresh = was_running or command.output.fresh
        return command.report(command.output.take() if fresh else command.output.whole(), cwd=self.cwd)

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """Type `text` to the running command; see `LiveTerminal`."""
        command = self._command
        if command is None or command.status != "running" or self._console is None:
            raise RuntimeError("no command is running in this terminal")
        before = command.output.bytes
        self._console.write(text.replace("\r\n", "\n").replace("\n", "\r"))
        deadline = time.monotonic() + timeout
        await self._wait(lambda: command.status != "running" or command.output.bytes > before, timeout)
        while self.running is not None and time.monotonic() < deadline:
            seen = command.output.bytes
            if not await self._wait(partial(_moved, command, seen), _QUIET_SECONDS):
                break
        return command.report(command.output.take(), cwd=self.cwd)

    async def interrupt(self, reason: str) -> None:
        """Break off the running command: Ctrl+C, then the shell and all that it started."""
        command = self._command
        if command is None or command.status != "running" or self._console is None:
            return
        command.stop_reason = reason
        self._console.write("\x03")
        if not await self._wait(lambda: command.status != "running", _GRACE_SECONDS):
            await self.close()

    async def close(self) -> None:
        """Kill the shell and everything it started; idempotent."""
        console, self._console = self._console, None
        if console is not None:
            await console.kill()  # the thread that reads it ends with it
        if self._command is not None and self._command.status == "running":
            self._command.settle("restarted")
        self.cwd, self._pid = "", 0

    async def _open(self) -> None:
        console = self._console = self._start()
        heard = self._heard = deque()
        self._unpainted = Unpainted(ROWS)
        threading.Thread(target=self._listen, args=(console, heard), daemon=True, name=f"terminal {self._name}").start()
        ready = await self._launch(Output(), self._dialect.setup)
        if not await self._wait(lambda: ready.status != "running", _START_SECONDS) or ready.status != "completed":
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
            heard, running = self._heard.popleft(), command is not None and command.status == "running"
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


def _moved(command: TerminalCommand, since: int) -> bool:
    return command.status != "running" or command.output.bytes > since
