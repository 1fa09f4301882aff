"""A running bash on its terminal: our lines go in; output and markers are separated on the way out."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial

from agent_runtime.core.errors import SandboxError
from agent_runtime.terminals import bash
from agent_runtime.terminals.output import Output
from agent_runtime.terminals.pty import Pty

_ANSWER_SECONDS = 30.0
"""More than a busy machine takes: with the shell, its variables and directory are lost."""
_LOOK_SECONDS = 0.1
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

    def __init__(self, pty: Pty, *, on_change: Callable[[], None], start: bash.ShellStart) -> None:
        """Take over a started bash.

        Args:
            pty: its terminal.
            on_change: called after output was read and at the end.
            start: where it goes first, and what it is told.
        """
        self._start = start
        self.pty = pty
        self.marker: bash.Marker | None = None
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
        said = await self.ask(partial(bash.setup, start=self._start))
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
        self._mark = bash.mark(nonce)
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
            self._loop.call_later(_LOOK_SECONDS, self._look, self._loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask again and again whether it is gone, where the system does not tell."""
        if self._loop is not loop or self.ended:
            return
        if self.pty.has_ended():
            self._bury()
        else:
            loop.call_later(_LOOK_SECONDS, self._look, loop)

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
        cut = start if start >= 0 else bash.possible_start(data, self._mark)
        self._output.feed(data[:cut])
        if end < 0:
            if len(data) - cut > bash.LONGEST_MARK:  # only what knows the nonce can begin a marker and not end it
                self._output.feed(data[cut:])
            else:
                self._carry = data[cut:]
            return
        self.marker = bash.parse_mark(data[start + len(self._mark) : end])
        self._mark = None
        # What comes after the marker is not the command's: jobs in the background write it.
        self._output = Output()
        self._take(data[end + 1 :])
