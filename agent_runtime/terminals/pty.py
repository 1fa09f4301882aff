"""Non-blocking master side of a terminal."""

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

from agent_runtime.terminals.command import ARGV
from agent_runtime.terminals.output import COLUMNS, ROWS
from agent_runtime.terminals.processes import UNCLEAR, ForegroundState, ProcessFamily, foreground_state

READ = 65_536
_SLICE_SECONDS = 0.005
_SLICE_BYTES = 1 << 16
MAX_LINE_BYTES = 4_095
"""Bytes of an input line, its end included, in canonical mode."""


class Pty(abc.ABC):
    """A program and the master side of its terminal.

    Attributes:
        exit_code: as a shell counts (128 + signal); None if unknown.
        leader: host process id, or 0.
        breach_message: for the model.
        end_fd: readable after the program's end; -1 if unsupported.
    """

    def __init__(self, fd: int) -> None:
        """Take over a terminal's descriptor."""
        self.fd = fd
        self.exit_code: int | None = None
        self.breach_message = ""
        self.leader = 0
        self.end_fd = -1
        os.set_blocking(fd, False)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        modes = termios.tcgetattr(fd)
        modes[1] &= ~termios.ONLCR  # output is passed on to the byte
        modes[3] &= ~termios.ECHO
        self._modes = modes
        self.reset_modes()

    def identify_leader(self) -> None:
        """Record the program's process id at its first prompt."""
        self.leader = os.tcgetpgrp(self.fd)
        # If it has ended, there is no leader or no such process; reading the terminal reports it.
        if self.leader and hasattr(os, "pidfd_open"):
            with contextlib.suppress(ProcessLookupError):
                self.end_fd = os.pidfd_open(self.leader)

    def reset_modes(self) -> None:
        """Restore the terminal modes."""
        with contextlib.suppress(termios.error):  # the terminal is gone, which reading reports
            termios.tcsetattr(self.fd, termios.TCSANOW, self._modes)

    def flush_input(self) -> None:
        """Discard unread input, which the shell would take for a command."""
        with contextlib.suppress(termios.error):  # the terminal is gone, which reading reports
            termios.tcsetattr(self.fd, termios.TCSAFLUSH, termios.tcgetattr(self.fd))

    def is_canonical(self) -> bool:
        """Whether the terminal passes whole lines, up to `MAX_LINE_BYTES`."""
        try:
            return bool(termios.tcgetattr(self.fd)[3] & termios.ICANON)
        except termios.error:  # the terminal is gone, which reading reports
            return False

    def read(self) -> tuple[bytes, bool]:
        """Return output available within milliseconds, and whether the terminal ended."""
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
        """Write `data`; return the bytes accepted within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        written = 0
        while written < len(data) and loop.time() < deadline:
            try:
                written += os.write(self.fd, data[written:])
            except BlockingIOError:
                await asyncio.sleep(0.002)
            except OSError:  # EIO: the program is gone, which reading reports
                break
        return written

    def signal_foreground(self, number: signal.Signals) -> None:
        """Signal the foreground process group and discard its input."""
        self.flush_input()
        with contextlib.suppress(OSError):  # it ended meanwhile
            group = os.tcgetpgrp(self.fd)
            if group > 1:  # 0 means none, but our own group for killpg
                os.killpg(group, number)

    async def foreground_state(self) -> ForegroundState:
        """Return the state of the foreground programs."""
        try:
            group, modes = os.tcgetpgrp(self.fd), termios.tcgetattr(self.fd)
        except (OSError, termios.error):  # it ended meanwhile
            return UNCLEAR
        has_timed_reads = not modes[3] & termios.ICANON and modes[6][termios.VMIN] == 0
        # Off the event loop, as the programs decide on the number of processes.
        return await asyncio.to_thread(foreground_state, self.leader, group, has_timed_reads=has_timed_reads)

    @property
    @abc.abstractmethod
    def family(self) -> ProcessFamily:
        """The program and its children."""

    def list_background(self) -> tuple[str, ...]:
        """List the command lines of children in the background; blocks."""
        try:
            without = {self.leader, os.tcgetpgrp(self.fd)}
        except OSError:  # it ended meanwhile
            return ()
        return self.family.programs(ARGV, without=without)

    def has_ended(self) -> bool:
        """Whether the program has ended, where there is no `end_fd`."""
        return self.exit_code is not None

    @property
    def is_over_limit(self) -> bool:
        """Whether a limit is about to end the program."""
        return False

    def describe_exit_code(self, exit_code: int) -> str:  # noqa: ARG002 - for those that know of limits
        """Describe the limit that an exit code indicates, else ""."""
        return ""

    @abc.abstractmethod
    async def finish(self, *, ended: bool) -> None:
        """Kill the program and its children, and record its exit code; output stays readable.

        Args:
            ended: the program ended by itself, so wait for its exit code.
        """

    def close(self) -> None:
        """Close the descriptors; idempotent."""
        for descriptor in (self.fd, self.end_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self.fd = self.end_fd = -1


_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def ignores_signals() -> bool:
    """Whether this process ignores a signal that subprocesses would inherit."""
    return any(signal.getsignal(number) is signal.SIG_IGN for number in _SIGNALS[2:])


def default_signals() -> None:
    """Reset signal handling between fork and exec."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
