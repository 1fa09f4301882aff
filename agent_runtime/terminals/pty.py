"""A terminal's master side, and the program that runs on it; reads and writes never wait."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import time

from agent_runtime.terminals.output import COLUMNS, ROWS
from agent_runtime.terminals.processes import UNCLEAR, Attention, look

READ = 65_536
_SLICE_SECONDS = 0.005
_SLICE_BYTES = 1 << 16
LONGEST_LINE = 4_095
"""Bytes of one line of input, its end included, that a terminal in its usual mode takes."""


class Pty(abc.ABC):
    """A running program and the master side of its terminal.

    Attributes:
        fd: the terminal's descriptor, non-blocking.
        exit_code: how the program ended, as a shell counts (128 + signal); None before its end, or when nobody knows.
        leader: the program's process id in our eyes, once `meet` was called; 0 before.
        ended_for: the limit for which it was ended and what to do about it, to be read by the model; empty otherwise.
        end_fd: readable once the program ended; -1 before `meet`, and where the system has no such thing.
    """

    def __init__(self, fd: int) -> None:
        """Take over a terminal."""
        self.fd = fd
        self.exit_code: int | None = None
        self.ended_for = ""
        self.leader = 0
        self.end_fd = -1
        os.set_blocking(fd, False)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        modes = termios.tcgetattr(fd)
        modes[1] &= ~termios.ONLCR  # output is passed on to the byte
        modes[3] &= ~termios.ECHO
        self._modes = modes
        self.reset_modes()

    def meet(self) -> None:
        """Note who the program is; call this while it waits at its first prompt, before it runs anything."""
        self.leader = os.tcgetpgrp(self.fd)
        # Both where it has ended, as reading the terminal will say: there is no leader, or none of that number.
        if self.leader and hasattr(os, "pidfd_open"):
            with contextlib.suppress(ProcessLookupError):
                self.end_fd = os.pidfd_open(self.leader)

    def reset_modes(self) -> None:
        """Undo what a program that was killed may have left the terminal in."""
        with contextlib.suppress(termios.error):  # the terminal is gone; reading will say so
            termios.tcsetattr(self.fd, termios.TCSANOW, self._modes)

    def forget_input(self) -> None:
        """Drop what was typed and nobody has read: the shell would take it for the beginning of its next command."""
        with contextlib.suppress(termios.error):  # the terminal is gone; reading will say so
            termios.tcsetattr(self.fd, termios.TCSAFLUSH, termios.tcgetattr(self.fd))

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
                data = os.read(self.fd, READ)
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
        """Send a signal to the process group that has the terminal now; it reads no more of what was typed."""
        self.forget_input()
        with contextlib.suppress(OSError):  # it ended meanwhile
            group = os.tcgetpgrp(self.fd)
            if group > 1:  # 0 means that there is none, and killpg would take it for our own
                os.killpg(group, number)

    async def attention(self) -> Attention:
        """What the programs in its foreground do; `UNCLEAR` where the system does not say."""
        try:
            group, modes = os.tcgetpgrp(self.fd), termios.tcgetattr(self.fd)
        except (OSError, termios.error):  # it ended meanwhile
            return UNCLEAR
        reads_give_up = not modes[3] & termios.ICANON and modes[6][termios.VMIN] == 0
        # Off the event loop: how many processes there are to look at is up to them.
        return await asyncio.to_thread(look, self.leader, group, reads_give_up=reads_give_up)

    def has_ended(self) -> bool:
        """Whether the program is known to have ended; to be asked where there is no `end_fd`."""
        return self.exit_code is not None

    @property
    def doomed(self) -> bool:
        """Whether it is about to end with everything else, for going over a limit."""
        return False

    def meaning(self, exit_code: int) -> str:  # noqa: ARG002 - for those that know of limits
        """What an exit code says of a limit; empty for nothing."""
        return ""

    @abc.abstractmethod
    async def finish(self, *, ended: bool) -> None:
        """Kill the program and what it started on this terminal, and note its exit code; idempotent.

        What they wrote can be read afterwards.

        Args:
            ended: whether the program came to its end by itself, so that its exit code is worth a moment's wait.
        """

    def close(self) -> None:
        """Give the descriptors back; idempotent."""
        for descriptor in (self.fd, self.end_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self.fd = self.end_fd = -1


_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def ignores_signals() -> bool:
    """Whether this process ignores a signal that a program started by `subprocess` would ignore, too."""
    return any(signal.getsignal(number) is signal.SIG_IGN for number in _SIGNALS[2:])


def default_signals() -> None:
    """Between fork and exec: what a shell's ancestor ignores, nothing that it starts can be interrupted by."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
