"""Live shells that run one command at a time.

`Terminal` runs commands; `Shell` is the bash below, whose output it splits at markers.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Callable
from functools import partial

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.spawn import traced
from agent_runtime.terminals import command as command_module
from agent_runtime.terminals.backends import Backend
from agent_runtime.terminals.command import CommandReport, TerminalCommand
from agent_runtime.terminals.output import Output, Spool
from agent_runtime.terminals.processes import UNCLEAR, ForegroundState
from agent_runtime.terminals.pty import MAX_LINE_BYTES, Pty

_GRACE_SECONDS = 1.0
_QUIET_SECONDS, _LISTENING_SECONDS = 0.5, 2.0
_PROBE_SECONDS, _MAX_PROBE_SECONDS = 0.15, 1.0
"""Intervals between checks whether a quiet command waits for input; they double."""


class Terminal:
    """A bash on a terminal; it starts with the first command, and again after its end.

    Use it in the main thread, which starts the sandbox.
    """

    def __init__(
        self, name: str, *, backend: Backend, spool: Spool | None = None, start: command_module.ShellStart | None = None
    ) -> None:
        self._start = start or command_module.ShellStart()
        self._name = name
        self._backend = backend
        self._spool = spool
        self._shell: Shell | None = None
        self._command: TerminalCommand | None = None
        self._commands = 0
        self._stopping: asyncio.Task[None] | None = None
        self._breach_message = ""
        self.cwd = ""

    @property
    def pid(self) -> int | None:
        """The shell's process id in its namespace, or None."""
        shell = self._shell
        return None if shell is None or shell.ended or shell.marker is None else shell.marker.pid

    @property
    def running_command(self) -> str | None:
        """The running command, or None."""
        command = self._command
        return command.text if command is not None and command.is_running else None

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """Run a command until it ends, waits for input, or times out.

        Raises:
            SandboxError: the shell does not start.
            RuntimeError: a command is running.
        """
        if self.running_command is not None:
            raise RuntimeError("a command is running in this terminal")
        shell = await self._ensure_shell()
        background, breach = shell.late_output(), self._breach_message
        self._breach_message = ""
        self._commands += 1
        output = Output(spool=self._spool, name=f"{self._name}-{self._commands}")
        command = self._command = TerminalCommand(number=self._commands, text=text, output=output)
        command.add_note(_late_note(background))
        if breach:
            command.add_note(f"this is a new shell; since the last command the old one was killed: {breach}")
        exit_code = shell.marker.exit_code if shell.marker is not None else 0
        try:
            # Bash parses it first and reports syntax errors, which may also end the shell.
            *leading, last = command_module.quote_pieces(text)
            for index, piece in enumerate(leading):
                if not shell.ended:
                    await shell.query(partial(command_module.append_line, piece=piece, first=index == 0))
            check = partial(command_module.check_line, piece=last, first=not leading)
            message = "" if shell.ended else await shell.query(check)
            unfinished = command_module.incomplete_reason(message)
            if unfinished is None and not shell.ended:
                shell.pty.reset_modes()
                await shell.send(lambda nonce: command_module.run_line(nonce, last_exit_code=exit_code), output)
        except BaseException:
            # Cancelled within a line: bash has read an unknown part of it.
            await self.close()
            raise
        if unfinished is not None:
            command.note = unfinished
            command.finish("incomplete")
            return command.report("", cwd=self.cwd)
        command.launched = True
        self._update()
        with traced("sandbox command"):
            waits = await _follow(shell, command, timeout)
        command.add_note(await self._backend.sweep())
        return command.report(output.take_new(), cwd=self.cwd, waits=waits)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """Report new output of the last command; after its end, all of it.

        Waits like `run`. None without a command.
        """
        command, shell = self._command, self._shell
        if command is None or shell is None:
            return None
        shell.attach()
        was_running = command.is_running
        waits = was_running and await _follow(shell, command, timeout)
        command.add_note(await self._backend.sweep())
        if was_running or command.output.has_new:
            return command.report(command.output.take_new(), cwd=self.cwd, waits=waits)
        return command.report(command.output.render_all(), cwd=self.cwd, late=_late_note(shell.late_output()))

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """Type `text` to the running command and follow it like `run`.

        Where waiting is not detectable, a pause after new output counts.

        Raises:
            RuntimeError: no command runs.
            ValueError: a line is too long for the terminal.
        """
        command, shell = self._command, self._shell
        if command is None or not command.is_running or shell is None:
            raise RuntimeError("no command is running in this terminal")
        shell.attach()
        data = text.encode(errors="replace")
        longest = max(len(line) for line in data.split(b"\n")) + 1
        if longest > MAX_LINE_BYTES and shell.pty.is_canonical():
            raise ValueError(f"a line has {longest:,} bytes; the program reads lines of at most {MAX_LINE_BYTES:,}")
        before = command.output.bytes
        wakes = b"\n" in data or not shell.pty.is_canonical()
        previous = await shell.pty.foreground_state() if wakes else UNCLEAR
        written = await shell.pty.write(data, timeout=timeout)
        waits = await _follow(shell, command, timeout, since=before, last=previous)
        if written < len(data):
            command.note = f"the program took only {written:,} of {len(data):,} bytes of the input"
        command.add_note(await self._backend.sweep())
        return command.report(command.output.take_new(), cwd=self.cwd, waits=waits)

    async def list_programs(self) -> tuple[str, ...]:
        """List the running command, and the command lines of programs in the background."""
        shell = self._shell
        if shell is None or shell.ended:
            return ()
        background = await asyncio.to_thread(shell.pty.list_background)
        return (*filter(None, [self.running_command]), *background)

    async def interrupt(self, reason: str) -> None:
        """Stop the running command, if any: Ctrl+C, then signals, then kill the shell."""
        command, shell = self._command, self._shell
        if command is None or not command.is_running or shell is None:
            return
        shell.attach()
        command.stop_reason = reason
        await shell.pty.write(b"\x03", timeout=_GRACE_SECONDS)
        for number in (signal.SIGINT, signal.SIGKILL):
            if await shell.wait(lambda: not command.is_running, _GRACE_SECONDS):
                return
            shell.pty.signal_foreground(number)
        if not await shell.wait(lambda: not command.is_running, _GRACE_SECONDS):
            await shell.close()

    async def close(self) -> None:
        """Kill the shell and its processes; idempotent. The next command starts a new one."""
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        if self._shell is not None:
            await self._shell.close()
        if self._command is not None:
            self._command.output.close()
        self.cwd = ""

    async def _ensure_shell(self) -> Shell:
        if self._shell is not None and not self._shell.ended:
            self._shell.attach()
            if await self._shell.is_usable():
                return self._shell
        is_reported = self._command is not None and self._command.status == "killed"
        await self.close()
        if self._shell is not None and not is_reported:
            self._breach_message = self._shell.pty.breach_message
        with traced("sandbox start"):
            pty = await self._backend.open()
        shell = self._shell = Shell(pty, on_change=self._update, start=self._start)
        shell.attach()
        try:
            await shell.start()
        except BaseException:  # cancelled, too: a partly started shell does not answer
            await self.close()
            raise
        self._update()
        return shell

    def _update(self) -> None:
        command, shell = self._command, self._shell
        if shell is None:
            return
        if shell.marker is not None:
            self.cwd = shell.marker.cwd
        if command is None or not command.is_running:
            return
        if shell.ended:
            command.exit_code = shell.pty.exit_code
            command.add_note(shell.pty.breach_message or shell.stuck_message)
            command.finish("killed" if shell.pty.breach_message else "restarted")
        elif shell.at_prompt and command.launched and shell.marker is not None:
            command.exit_code, command.pipe, command.ok = shell.marker.exit_code, shell.marker.pipe, shell.marker.ok
            command.add_note(shell.pty.describe_exit_code(command.exit_code))
            command.finish("completed")
        elif command.output.is_over_quota and self._stopping is None:
            reason = f"it wrote more than {command.output.quota:,} bytes and was stopped"
            self._stopping = asyncio.get_running_loop().create_task(self._stop(reason))

    async def _stop(self, reason: str) -> None:
        await self.interrupt(reason)
        self._stopping = None


async def _follow(
    shell: Shell, command: TerminalCommand, seconds: float, *, since: int | None = None, last: ForegroundState = UNCLEAR
) -> bool:
    """Wait until a command ends or waits, or the time is over; return whether it waits.

    `since` and `last` are output bytes and state before an input, which must change the state.
    """
    started = time.monotonic()
    deadline = started + seconds
    size, previous, pause = -1, UNCLEAR, _PROBE_SECONDS
    while (rest := deadline - time.monotonic()) > 0:
        condition: Callable[[], bool] = partial(command.has_progressed, size)
        if command.output.bytes != size:
            size, previous, pause = command.output.bytes, UNCLEAR, _PROBE_SECONDS
            # During steady output wait only for the end: waking for each piece costs more than reading it.
            condition, latest = lambda: not command.is_running, max(shell.output_at, started)
            rest = min(rest, latest + pause - time.monotonic())
        if await shell.wait(condition, min(pause, rest)) or command.output.bytes != size:
            if not command.is_running:
                return False
            continue
        state = await shell.pty.foreground_state()
        # No output at all: a busy machine has not passed the command on yet, and bash is waiting.
        if not size or command.output.bytes != size or not command.is_running:
            continue
        silence = time.monotonic() - max(shell.output_at, started)
        # Two equal states without a wake-up between: it has read all input, unless a busy machine delays it.
        is_certain = state.kind == "waits" and state != last
        if state == previous and (is_certain or (state.kind in {"waits", "listens"} and silence >= _LISTENING_SECONDS)):
            return True
        if state.kind == "unclear" and since is not None and size > since and silence >= _QUIET_SECONDS:
            return False
        previous, pause = state, _PROBE_SECONDS if state.kind == "waits" else min(2 * pause, _MAX_PROBE_SECONDS)
    return False


def _late_note(output: str) -> str:
    return f"background jobs wrote since the last command:\n{output.strip()}" if output.strip() else ""


_ANSWER_SECONDS = 30.0
"""More than a busy machine takes: killing the shell loses its variables and directory."""
_POLL_SECONDS = 0.1
_DRAIN_READS = 16


class Shell:
    """A bash from start to end.

    Attributes:
        ended: gone with its processes.
        stuck_message: for the model, if killed for not answering.
    """

    def __init__(self, pty: Pty, *, on_change: Callable[[], None], start: command_module.ShellStart) -> None:
        """Take over a started bash; `on_change` is called after output and at the end."""
        self._start = start
        self.pty = pty
        self.marker: command_module.Marker | None = None
        self.ended = False
        self.stuck_message = ""
        self._on_change = on_change
        self._output = Output()
        self._marker_prefix: bytes | None = None
        self._carry = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.output_at = time.monotonic()
        self._reap_task: asyncio.Task[None] | None = None

    @property
    def at_prompt(self) -> bool:
        """Whether the last line has completed."""
        return self._marker_prefix is None

    async def start(self) -> None:
        """Set up the shell.

        Raises:
            SandboxError: it ended or did not answer.
        """
        output = await self.query(partial(command_module.setup_lines, start=self._start))
        if not self.ended:
            self.pty.identify_leader()
            self._watch_end()
        if self.marker is None:
            reason = self.pty.breach_message or f"It said: {output.strip() or 'nothing'}"
            raise SandboxError(f"The shell did not start in its sandbox. {reason}")

    async def query(self, line: Callable[[str], bytes]) -> str:
        """Send an internal line and return the output; kill a bash that is stuck."""
        answer = Output()
        await self.send(line, answer)
        if not await self.wait(lambda: self.at_prompt, _ANSWER_SECONDS):
            self.stuck_message = f"the shell did not answer for {_ANSWER_SECONDS:g} s and was killed"
            await self.close()
        return answer.render_all()

    async def send(self, line: Callable[[str], bytes], output: Output) -> None:
        """Send a line; `output` receives everything up to the marker of its nonce."""
        nonce = secrets.token_hex(16)
        self._output = output
        self._marker_prefix = command_module.marker_prefix(nonce)
        self._resume_reading()
        await self.pty.write(line(nonce), timeout=_ANSWER_SECONDS)

    def late_output(self) -> str:
        """Return the output of background jobs since the last call."""
        return self._output.take_new() if self.at_prompt else ""

    async def wait(self, condition: Callable[[], bool], timeout: float) -> bool:  # noqa: ASYNC109 - the answer is a bool
        """Wait for a condition that only output or the shell's end can change."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():
            changed = loop.create_future()
            self._waiters.append((condition, changed))
            try:
                # Not wait_for: before Python 3.12 it can lose a cancellation that comes together with the result.
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                return condition()
        return True

    def attach(self) -> None:
        """Read in the running loop, which may change with each run."""
        loop = asyncio.get_running_loop()
        if self._loop is loop or self.ended:
            return
        self._detach()
        self._loop = loop
        self._resume_reading()
        self._watch_end()

    async def is_usable(self) -> bool:
        """Whether the shell is usable; it may have ended while no loop ran."""
        for _ in range(2):  # one turn of the loop selects the terminal, the next one reads
            await asyncio.sleep(0)
        if self._reap_task is not None:
            await self.close()
        return not self.ended and self.marker is not None and not self.pty.is_over_limit

    async def close(self) -> None:
        """Kill the shell and its processes; idempotent."""
        if self._reap_task is not None and not self._reap_task.done():
            await asyncio.wait([self._reap_task])  # a cancellation here must not cancel the task
        self._detach()
        await self._finish(ended=False)

    def _detach(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            for descriptor in (self.pty.fd, self.pty.end_fd):
                if descriptor >= 0:
                    self._loop.remove_reader(descriptor)
        self._loop = None

    def _resume_reading(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self.pty.fd, self._on_readable)

    def _watch_end(self) -> None:
        # A background job can hold the terminal open after the shell's end, so EOF is not enough.
        if self._loop is None:
            return
        if self.pty.end_fd >= 0:
            self._loop.add_reader(self.pty.end_fd, self._reap)
        else:
            self._loop.call_later(_POLL_SECONDS, self._poll_end, self._loop)

    def _poll_end(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop or self.ended:
            return
        if self.pty.has_ended():
            self._reap()
        else:
            loop.call_later(_POLL_SECONDS, self._poll_end, loop)

    def _on_readable(self) -> None:
        data, ended = self.pty.read()
        if data:
            self.output_at = time.monotonic()
            self._process_data(self._carry + data)
        if ended:
            self._reap()
        elif self.at_prompt and self._output.is_over_quota and self._loop is not None:
            # No reader waits: background jobs block on writing until the next command.
            self._loop.remove_reader(self.pty.fd)
        self._notify_waiters()

    def _reap(self) -> None:
        self._detach()
        if self._reap_task is None or self._reap_task.done():  # its event loop may have ended
            self._reap_task = asyncio.get_running_loop().create_task(self._finish(ended=True))

    async def _finish(self, *, ended: bool) -> None:
        if self.ended:
            return
        await self.pty.finish(ended=ended)
        # Read the last output; its writer is gone, so it fits a terminal's buffer.
        for _ in range(_DRAIN_READS):
            data, ended = self.pty.read()
            if data:
                self._process_data(self._carry + data)
            if ended or not data:
                break
        # A concurrent command may have resumed reading. A loop that still watches a closed descriptor misses events
        # of the next one with its number.
        self._detach()
        self.pty.close()
        self.ended = True
        self._marker_prefix = None
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._on_change()
        waiters = [waiter for waiter in self._waiters if not waiter[1].done()]
        self._waiters = []
        # Waking a task costs more than reading, so wake only those whose condition holds.
        for until, changed in waiters:
            if until():
                changed.set_result(None)
            else:
                self._waiters.append((until, changed))

    def _process_data(self, data: bytes) -> None:
        self._carry = b""
        if self._marker_prefix is None:
            self._output.feed(data)
            return
        # A single byte is found four times as fast.
        start = data.find(self._marker_prefix) if self._marker_prefix[:1] in data else -1
        end = data.find(b"\x07", start) if start >= 0 else -1
        cut = start if start >= 0 else command_module.find_partial(data, self._marker_prefix)
        self._output.feed(data[:cut])
        if end < 0:
            if len(data) - cut > command_module.MAX_MARKER_BYTES:  # too long for a marker: a program knows the nonce
                self._output.feed(data[cut:])
            else:
                self._carry = data[cut:]
            return
        self.marker = command_module.parse_marker(data[start + len(self._marker_prefix) : end])
        self._marker_prefix = None
        # Output after the marker comes from background jobs.
        self._output = Output()
        self._process_data(data[end + 1 :])
