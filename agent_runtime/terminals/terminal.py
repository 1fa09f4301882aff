"""One live shell: commands go in one at a time, their output and how they ended come out."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial

from agent_runtime.processes.tracing import traced
from agent_runtime.terminals import bash
from agent_runtime.terminals.attention import UNCLEAR, Attention
from agent_runtime.terminals.backend import Backend
from agent_runtime.terminals.command import CommandReport, TerminalCommand
from agent_runtime.terminals.output import Output
from agent_runtime.terminals.pty import LONGEST_LINE
from agent_runtime.terminals.shell import Shell
from agent_runtime.terminals.spool import Spool

_GRACE_SECONDS = 1.0
_QUIET_SECONDS, _LISTENING_SECONDS = 0.5, 2.0
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.15, 1.0
"""Between looks at whether a command that is quiet waits for input; the longer it is quiet, the rarer."""


class Terminal:
    """A bash on a terminal. It starts with the first command, and again after it died.

    Use it from one event loop at a time, in the process's main thread: the sandbox dies with the thread that
    started it.

    Attributes:
        cwd: the shell's working directory when it last said so; empty before it started.
    """

    def __init__(
        self, name: str, *, backend: Backend, spool: Spool | None = None, start: bash.ShellStart | None = None
    ) -> None:
        self._start = start or bash.ShellStart()
        self._name = name
        self._backend = backend
        self._spool = spool
        self._shell: Shell | None = None
        self._command: TerminalCommand | None = None
        self._commands = 0
        self._stopping: asyncio.Task[None] | None = None
        self._ended_for = ""
        self.cwd = ""

    @property
    def pid(self) -> int | None:
        """The shell's process id as programs beside it see it; None when no shell lives."""
        shell = self._shell
        return None if shell is None or shell.ended or shell.marker is None else shell.marker.pid

    @property
    def running(self) -> str | None:
        """The command that runs now, or None."""
        command = self._command
        return command.text if command is not None and command.status == "running" else None

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """Run a command; come back when it ended, waits for input, or after `timeout` seconds, whichever is first.

        Raises:
            SandboxError: the shell cannot be started.
            RuntimeError: a command is running; see `running`.
        """
        if self.running is not None:
            raise RuntimeError("a command is running in this terminal")
        shell = await self._living_shell()
        late, ended_for = shell.late(), self._ended_for
        self._ended_for = ""
        self._commands += 1
        output = Output(spool=self._spool, name=f"{self._name}-{self._commands}")
        command = self._command = TerminalCommand(number=self._commands, text=text, output=output)
        command.add(_late_note(late))
        if ended_for:
            command.add(f"this is a new shell; since the last command the old one was killed: {ended_for}")
        exit_code = shell.marker.exit_code if shell.marker is not None else 0
        try:
            # Bash parses it first and says why it cannot be run as it stands. The shell may die of that, too.
            *pieces, last = bash.pieces(text)
            for index, piece in enumerate(pieces):
                if not shell.ended:
                    await shell.ask(partial(bash.remember, piece=piece, first=index == 0))
            said = "" if shell.ended else await shell.ask(partial(bash.check, piece=last, first=not pieces))
            unfinished = bash.unfinished(said)
            if unfinished is None and not shell.ended:
                shell.pty.reset_modes()
                await shell.send(lambda nonce: bash.run(nonce, last_exit_code=exit_code), output)
        except BaseException:
            # Cancelled in the middle of a line: what bash has read so far is unknown.
            await self.close()
            raise
        if unfinished is not None:
            command.note = unfinished
            command.settle("incomplete")
            return command.report("", cwd=self.cwd)
        command.launched = True
        self._update()
        with traced("sandbox command"):
            waits = await _followed(shell, command, timeout)
        return command.report(output.take(), cwd=self.cwd, waits=waits)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """What is new of the last command; after it ended and was shown, all of it. None when there was no command.

        Waits until the command ends or waits for input, or `timeout` seconds.
        """
        command, shell = self._command, self._shell
        if command is None or shell is None:
            return None
        shell.attach()
        was_running = command.status == "running"
        waits = was_running and await _followed(shell, command, timeout)
        if was_running or command.output.fresh:
            return command.report(command.output.take(), cwd=self.cwd, waits=waits)
        return command.report(command.output.whole(), cwd=self.cwd, late=_late_note(shell.late()))

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """Type `text` to the running command; come back when it ended or waits for more, or at the timeout.

        Where nobody can tell whether it waits, a moment without output after an answer is taken for it.

        Raises:
            RuntimeError: no command runs.
            ValueError: a line is longer than the terminal can pass on.
        """
        command, shell = self._command, self._shell
        if command is None or command.status != "running" or shell is None:
            raise RuntimeError("no command is running in this terminal")
        shell.attach()
        data = text.encode(errors="replace")
        longest = max(len(line) for line in data.split(b"\n")) + 1
        if longest > LONGEST_LINE and shell.pty.takes_lines():
            raise ValueError(f"a line has {longest:,} bytes; the program reads lines of at most {LONGEST_LINE:,}")
        before = command.output.bytes
        wakes = b"\n" in data or not shell.pty.takes_lines()
        asleep = await shell.pty.attention() if wakes else UNCLEAR
        sent = await shell.pty.write(data, timeout=timeout)
        waits = await _followed(shell, command, timeout, answered=before, asleep=asleep)
        if sent < len(data):
            command.note = f"the program took only {sent:,} of {len(data):,} bytes of the input"
        return command.report(command.output.take(), cwd=self.cwd, waits=waits)

    async def interrupt(self, reason: str) -> None:
        """Break off the running command: Ctrl+C, then signals, then the shell itself. Nothing to do when none runs."""
        command, shell = self._command, self._shell
        if command is None or command.status != "running" or shell is None:
            return
        shell.attach()
        command.stop_reason = reason
        await shell.pty.write(b"\x03", timeout=_GRACE_SECONDS)
        for number in (signal.SIGINT, signal.SIGKILL):
            if await shell.wait(partial(_ended, command), _GRACE_SECONDS):
                return
            shell.pty.signal_foreground(number)
        if not await shell.wait(partial(_ended, command), _GRACE_SECONDS):
            await shell.close()

    async def close(self) -> None:
        """Kill the shell and everything it started, at once; idempotent. A next command starts a new shell."""
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        if self._shell is not None:
            await self._shell.close()
        if self._command is not None:
            self._command.output.close()
        self.cwd = ""

    async def _living_shell(self) -> Shell:
        if self._shell is not None and not self._shell.ended:
            self._shell.attach()
            if await self._shell.lives():
                return self._shell
        told = self._command is not None and self._command.status == "killed"
        await self.close()
        if self._shell is not None and not told:
            self._ended_for = self._shell.pty.ended_for
        with traced("sandbox start"):
            opened = await self._backend.open()
        shell = self._shell = Shell(opened, on_change=self._update, start=self._start)
        shell.attach()
        try:
            await shell.start()
        except BaseException:  # cancelled, too: a shell that is half up answers nothing
            await self.close()
            raise
        self._update()
        return shell

    def _update(self) -> None:
        """Take over what the shell has said: where it is, and whether the command is done."""
        command, shell = self._command, self._shell
        if shell is None:
            return
        if shell.marker is not None:
            self.cwd = shell.marker.cwd
        if command is None or command.status != "running":
            return
        if shell.ended:
            command.exit_code = shell.pty.exit_code
            command.add(shell.pty.ended_for or shell.stuck)
            command.settle("killed" if shell.pty.ended_for else "restarted")
        elif shell.at_prompt and command.launched and shell.marker is not None:
            command.exit_code, command.pipe, command.ok = shell.marker.exit_code, shell.marker.pipe, shell.marker.ok
            command.add(shell.pty.meaning(command.exit_code))
            command.settle("completed")
        elif command.output.over_quota and self._stopping is None:
            reason = f"it wrote more than {command.output.quota:,} bytes and was stopped"
            self._stopping = asyncio.get_running_loop().create_task(self._stop(reason))

    async def _stop(self, reason: str) -> None:
        await self.interrupt(reason)
        self._stopping = None


async def _followed(
    shell: Shell, command: TerminalCommand, seconds: float, *, answered: int | None = None, asleep: Attention = UNCLEAR
) -> bool:
    """Wait until a command ends, waits for input, or `seconds` are over.

    Args:
        shell: it runs there.
        command: the command.
        seconds: the most to wait.
        answered: the bytes of its output before something was typed: where nobody can tell whether it waits, it is left
            alone once it wrote more and fell quiet. None when nothing was typed.
        asleep: how it waited before something was typed that must wake it.

    Returns:
        Whether it waits for input.
    """
    begun = time.monotonic()
    deadline = begun + seconds
    seen, before, pause = -1, UNCLEAR, _LOOK_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        until = partial(_moved, command, seen)
        if command.output.bytes != seen:
            seen, before, pause = command.output.bytes, UNCLEAR, _LOOK_SECONDS
            # While more comes all the time, only the end is waited for: to be woken for each piece costs more than
            # to read it.
            until, left = partial(_ended, command), min(left, max(shell.heard, begun) + pause - time.monotonic())
        if await shell.wait(until, min(pause, left)) or command.output.bytes != seen:
            if command.status != "running":
                return False
            continue
        now = await shell.pty.attention()
        # Nothing came at all: a busy machine has not passed the command on yet, and what waits is bash.
        if not seen or command.output.bytes != seen or command.status != "running":
            continue
        quiet = time.monotonic() - max(shell.heard, begun)
        # Twice the same without a wake-up between: it has read all that was typed. On a busy machine, the system may
        # not have passed that on yet.
        at_once = now.kind == "waits" and now != asleep
        if now == before and (at_once or (now.kind in {"waits", "listens"} and quiet >= _LISTENING_SECONDS)):
            return True
        if now.kind == "unclear" and answered is not None and seen > answered and quiet >= _QUIET_SECONDS:
            return False
        before, pause = now, _LOOK_SECONDS if now.kind == "waits" else min(2 * pause, _LONGEST_LOOK_SECONDS)
    return False


def _ended(command: TerminalCommand) -> bool:
    return command.status != "running"


def _moved(command: TerminalCommand, since: int) -> bool:
    """Whether the command ended, or wrote more than `since` bytes."""
    return _ended(command) or command.output.bytes > since


def _late_note(late: str) -> str:
    return f"background jobs wrote since the last command:\n{late.strip()}" if late.strip() else ""
