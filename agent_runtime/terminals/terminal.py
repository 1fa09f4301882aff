"""One live shell: commands go in one at a time, their output and how they ended come out.

`Terminal` is what tools use: it runs a command, follows it until it ends or waits for input, types to it and breaks it
off. `Shell` is the bash below it: it sends our lines and parts what comes back into output and the markers with which
bash reports that a command is done.
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
from agent_runtime.terminals.processes import UNCLEAR, Attention
from agent_runtime.terminals.pty import LONGEST_LINE, Pty

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
        return command.text if command is not None and command.running else None

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
            *pieces, last = command_module.pieces(text)
            for index, piece in enumerate(pieces):
                if not shell.ended:
                    await shell.ask(partial(command_module.remember, piece=piece, first=index == 0))
            said = "" if shell.ended else await shell.ask(partial(command_module.check, piece=last, first=not pieces))
            unfinished = command_module.unfinished(said)
            if unfinished is None and not shell.ended:
                shell.pty.reset_modes()
                await shell.send(lambda nonce: command_module.run(nonce, last_exit_code=exit_code), output)
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
        command.add(await self._backend.sweep())
        return command.report(output.take(), cwd=self.cwd, waits=waits)

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """What is new of the last command; after it ended and was shown, all of it. None when there was no command.

        Waits until the command ends or waits for input, or `timeout` seconds.
        """
        command, shell = self._command, self._shell
        if command is None or shell is None:
            return None
        shell.attach()
        was_running = command.running
        waits = was_running and await _followed(shell, command, timeout)
        command.add(await self._backend.sweep())
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
        if command is None or not command.running or shell is None:
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
        command.add(await self._backend.sweep())
        return command.report(command.output.take(), cwd=self.cwd, waits=waits)

    async def interrupt(self, reason: str) -> None:
        """Break off the running command: Ctrl+C, then signals, then the shell itself. Nothing to do when none runs."""
        command, shell = self._command, self._shell
        if command is None or not command.running or shell is None:
            return
        shell.attach()
        command.stop_reason = reason
        await shell.pty.write(b"\x03", timeout=_GRACE_SECONDS)
        for number in (signal.SIGINT, signal.SIGKILL):
            if await shell.wait(lambda: not command.running, _GRACE_SECONDS):
                return
            shell.pty.signal_foreground(number)
        if not await shell.wait(lambda: not command.running, _GRACE_SECONDS):
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
        if command is None or not command.running:
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
        until: Callable[[], bool] = partial(command.has_progressed, seen)
        if command.output.bytes != seen:
            seen, before, pause = command.output.bytes, UNCLEAR, _LOOK_SECONDS
            # While more comes all the time, only the end is waited for: to be woken for each piece costs more than
            # to read it.
            until, left = lambda: not command.running, min(left, max(shell.heard, begun) + pause - time.monotonic())
        if await shell.wait(until, min(pause, left)) or command.output.bytes != seen:
            if not command.running:
                return False
            continue
        now = await shell.pty.attention()
        # Nothing came at all: a busy machine has not passed the command on yet, and what waits is bash.
        if not seen or command.output.bytes != seen or not command.running:
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


def _late_note(late: str) -> str:
    return f"background jobs wrote since the last command:\n{late.strip()}" if late.strip() else ""


_ANSWER_SECONDS = 30.0
"""More than a busy machine takes: with the shell, its variables and directory are lost."""
_POLL_SECONDS = 0.1
_DRAIN_READS = 16


class Shell:
    """One bash from its start to its end. Output is read whenever the event loop runs.

    Attributes:
        pty: its terminal.
        marker: what bash said at its last prompt.
        ended: whether it is gone, and with it all that it started on its terminal.
        stuck: that it was killed because it did not answer, to be read by the model; empty otherwise.
        heard: when something last came from it, by the monotonic clock.
    """

    def __init__(self, pty: Pty, *, on_change: Callable[[], None], start: command_module.ShellStart) -> None:
        """Take over a started bash.

        Args:
            pty: its terminal.
            on_change: called after output was read and at the end.
            start: where it goes first, and what it is told.
        """
        self._start = start
        self.pty = pty
        self.marker: command_module.Marker | None = None
        self.ended = False
        self.stuck = ""
        self._on_change = on_change
        self._output = Output()
        self._mark: bytes | None = None
        self._carry = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.heard = time.monotonic()
        self._burial: asyncio.Task[None] | None = None

    @property
    def at_prompt(self) -> bool:
        """Whether what was sent last is done."""
        return self._mark is None

    async def start(self) -> None:
        """Make it ready for commands.

        Raises:
            SandboxError: it ended or said nothing; the text has its last words.
        """
        said = await self.ask(partial(command_module.setup, start=self._start))
        if not self.ended:
            self.pty.meet()
            self._watch_end()
        if self.marker is None:
            why = self.pty.ended_for or f"It said: {said.strip() or 'nothing'}"
            raise SandboxError(f"The shell did not start in its sandbox. {why}")

    async def ask(self, line: Callable[[str], bytes]) -> str:
        """Send a line of our own, made for a nonce, and give what bash says to it; a bash that is stuck is killed."""
        answer = Output()
        await self.send(line, answer)
        if not await self.wait(lambda: self.at_prompt, _ANSWER_SECONDS):
            self.stuck = f"the shell did not answer for {_ANSWER_SECONDS:g} s and was killed"
            await self.close()
        return answer.whole()

    async def send(self, line: Callable[[str], bytes], output: Output) -> None:
        """Send a line, made for a nonce; `output` gets everything up to the marker with that nonce."""
        nonce = secrets.token_hex(16)
        self._output = output
        self._mark = command_module.mark(nonce)
        self._read_on()
        await self.pty.write(line(nonce), timeout=_ANSWER_SECONDS)

    def late(self) -> str:
        """What background jobs have written at the prompt since it was last asked."""
        return self._output.take() if self.at_prompt else ""

    async def wait(self, until: Callable[[], bool], timeout: float) -> bool:  # noqa: ASYNC109 - the answer is a bool
        """Wait for a condition that only output or the end of the shell can bring about."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not until():
            changed = loop.create_future()
            self._waiting.append((until, changed))
            try:
                # Not wait_for: before Python 3.12 it can lose a cancellation that comes together with the result.
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                return until()
        return True

    def attach(self) -> None:
        """Read in the running loop; a library user may use a new loop for every run."""
        loop = asyncio.get_running_loop()
        if self._loop is loop or self.ended:
            return
        self._detach()
        self._loop = loop
        self._read_on()
        self._watch_end()

    async def lives(self) -> bool:
        """Whether it is at its prompt still; a background job may have killed it while no loop was running."""
        for _ in range(2):  # one turn of the loop finds the terminal readable, the next one reads
            await asyncio.sleep(0)
        if self._burial is not None:
            await self.close()
        return not self.ended and self.marker is not None and not self.pty.doomed

    async def close(self) -> None:
        """Kill it and everything it started; idempotent."""
        if self._burial is not None and not self._burial.done():
            await asyncio.wait([self._burial])  # who is cancelled here must not take it along
        self._detach()
        await self._finish(ended=False)

    def _detach(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            for descriptor in (self.pty.fd, self.pty.end_fd):
                if descriptor >= 0:
                    self._loop.remove_reader(descriptor)
        self._loop = None

    def _read_on(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self.pty.fd, self._readable)

    def _watch_end(self) -> None:
        # A job in the background can hold the terminal open after the shell is gone, so its end is no sure sign.
        if self._loop is None:
            return
        if self.pty.end_fd >= 0:
            self._loop.add_reader(self.pty.end_fd, self._bury)
        else:
            self._loop.call_later(_POLL_SECONDS, self._look, self._loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask again and again whether it is gone, where the system does not tell."""
        if self._loop is not loop or self.ended:
            return
        if self.pty.has_ended():
            self._bury()
        else:
            loop.call_later(_POLL_SECONDS, self._look, loop)

    def _readable(self) -> None:
        data, ended = self.pty.read()
        if data:
            self.heard = time.monotonic()
            self._take(self._carry + data)
        if ended:
            self._bury()
        elif self.at_prompt and self._output.over_quota and self._loop is not None:
            # Nobody waits for it: what jobs in the background go on to write blocks them until the next command.
            self._loop.remove_reader(self.pty.fd)
        self._changed()

    def _bury(self) -> None:
        self._detach()
        if self._burial is None or self._burial.done():  # the event loop that it was left to may have ended
            self._burial = asyncio.get_running_loop().create_task(self._finish(ended=True))

    async def _finish(self, *, ended: bool) -> None:
        if self.ended:
            return
        await self.pty.finish(ended=ended)
        # What was written last; its writer is gone, so it is no more than a terminal's buffer.
        for _ in range(_DRAIN_READS):
            data, ended = self.pty.read()
            if data:
                self._take(self._carry + data)
            if ended or not data:
                break
        # A command that came meanwhile reads again. A loop that goes on to watch a closed descriptor misses what the
        # next one of its number has to say.
        self._detach()
        self.pty.close()
        self.ended = True
        self._mark = None
        self._changed()

    def _changed(self) -> None:
        self._on_change()
        waiting = [each for each in self._waiting if not each[1].done()]
        self._waiting = []
        # A task that is woken costs more than to read what came, so none is woken in vain.
        for until, changed in waiting:
            if until():
                changed.set_result(None)
            else:
                self._waiting.append((until, changed))

    def _take(self, data: bytes) -> None:
        """Divide what came into output and the marker that ends it; keep back what may be the start of one."""
        self._carry = b""
        if self._mark is None:
            self._output.feed(data)
            return
        start = data.find(self._mark) if self._mark[:1] in data else -1  # a single byte is found four times as fast
        end = data.find(b"\x07", start) if start >= 0 else -1
        cut = start if start >= 0 else command_module.possible_start(data, self._mark)
        self._output.feed(data[:cut])
        if end < 0:
            if (
                len(data) - cut > command_module.LONGEST_MARK
            ):  # only what knows the nonce can begin a marker and not end it
                self._output.feed(data[cut:])
            else:
                self._carry = data[cut:]
            return
        self.marker = command_module.parse_mark(data[start + len(self._mark) : end])
        self._mark = None
        # What comes after the marker is not the command's: jobs in the background write it.
        self._output = Output()
        self._take(data[end + 1 :])
