"""A program on a terminal of its own, through pexpect; reads and writes never wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import time
import warnings

import pexpect
import ptyprocess  # type: ignore[import-untyped] # it ships no types

from agent_runtime.errors import SandboxError
from agent_runtime.sandbox.protocol import Launch
from agent_runtime.terminals.screen import COLUMNS, ROWS

_READ = 65_536
_SLICE_SECONDS = 0.005
_SLICE_BYTES = 1 << 16
_LAST_SECONDS, _KILLED_SECONDS = 1.0, 10.0
LONGEST_LINE = 4_095
"""Bytes of one line of input, its end included, that a terminal in its usual mode takes."""


class Pty:
    """A running program and the master side of its terminal.

    Attributes:
        pid: the process that was started, outside the sandbox.
        fd: the terminal's descriptor, non-blocking.
        exit_code: how the program ended, as a shell counts (128 + signal); None before its end.
    """

    def __init__(self, launch: Launch) -> None:
        """Start the program, from the calling thread.

        Raises:
            SandboxError: it could not be started at all.
        """
        program, *args = launch.argv
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of forks in processes with threads; between fork and exec, ptyprocess only closes
                # descriptors and sets the window size.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._child: pexpect.spawn[bytes] = pexpect.spawn(
                    program,
                    args,
                    env=launch.env,
                    echo=False,
                    maxread=_READ,
                    dimensions=(ROWS, COLUMNS),
                    preexec_fn=_default_signals,
                )
        except (pexpect.ExceptionPexpect, ptyprocess.PtyProcessError, OSError) as error:
            raise SandboxError(f"`{program}` could not be started on a terminal: {error}") from error
        # ptyprocess sleeps when it closes; we kill and reap ourselves.
        self._process = self._child.ptyproc  # type: ignore[attr-defined] # the stubs lack it
        self._process.delayafterclose = self._process.delayafterterminate = 0
        self.pid: int = self._process.pid
        self.fd: int = self._child.child_fd
        self.exit_code: int | None = None
        os.set_blocking(self.fd, False)
        modes = termios.tcgetattr(self.fd)
        modes[1] &= ~termios.ONLCR  # output is passed on to the byte
        self._modes = modes
        self.reset_modes()

    def reset_modes(self) -> None:
        """Undo what a program that was killed may have left the terminal in."""
        with contextlib.suppress(termios.error):  # the terminal is gone; reading will say so
            termios.tcsetattr(self.fd, termios.TCSANOW, self._modes)

    def takes_lines(self) -> bool:
        """Whether the terminal gives its program whole lines, of at most `LONGEST_LINE` bytes."""
        try:
            return bool(termios.tcgetattr(self.fd)[3] & termios.ICANON)
        except termios.error:  # the terminal is gone; reading will say so
            return False

    def read(self) -> tuple[bytes, bool]:
        """What there is to read, a slice of a few milliseconds at most, and whether the terminal is at its end."""
        pieces: list[bytes] = []
        size = 0
        deadline = time.monotonic() + _SLICE_SECONDS
        while size < _SLICE_BYTES and time.monotonic() < deadline:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            except OSError:  # EIO: every process that had the terminal open is gone
                return b"".join(pieces), True
            if not data:
                return b"".join(pieces), True
            pieces.append(data)
            size += len(data)
        return b"".join(pieces), False

    async def write(self, data: bytes, *, timeout: float) -> int:  # noqa: ASYNC109 - a count, not an exception, is the answer
        """Write `data`; how many bytes the program's side took within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        done = 0
        while done < len(data) and loop.time() < deadline:
            try:
                done += os.write(self.fd, data[done:])
            except BlockingIOError:
                await asyncio.sleep(0.002)
            except OSError:  # EIO: the program is gone; reading will say so
                break
        return done

    def signal_foreground(self, number: signal.Signals) -> None:
        """Send a signal to the process group that has the terminal now."""
        with contextlib.suppress(OSError):  # it ended meanwhile
            os.killpg(os.tcgetpgrp(self.fd), number)

    async def kill(self) -> None:
        """Kill the program, and with it a sandbox and all that runs in it; reap it; give the terminal back."""
        if self._child.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.exit_code is None:
                os.kill(self.pid, signal.SIGKILL)
        await self._reap(_KILLED_SECONDS)
        self._process.terminated = True
        self._child.close(force=False)
        self.fd = -1

    async def finish(self) -> None:
        """Let a program whose terminal is at its end come to its own, or kill it after a moment."""
        await self._reap(_LAST_SECONDS)
        await self.kill()

    async def _reap(self, seconds: float) -> None:
        """Wait for the program, which is ending, so that no zombie is left, and note its exit code."""
        deadline = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < deadline:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
            except ChildProcessError:  # somebody else's handler was faster
                self.exit_code = -1
                return
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit_code = code if code >= 0 else 128 - code
                return
            await asyncio.sleep(0.001)


def _default_signals() -> None:
    # Python ignores these two, and what a shell's parent ignores, its children cannot be interrupted by.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
