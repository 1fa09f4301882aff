"""Find and end the processes of a terminal: on Linux by `/proc`, elsewhere by ps(1)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "CODEPILOT_TERMINAL"
"""The variable that everything started on a terminal inherits, whatever session it makes for itself."""

_PROC = Path("/proc")
KNOWN = sys.platform == "linux"
"""Whether this system tells which processes there are."""
_GONE = (b"Z", b"X")
_ENVIRONMENT = 1 << 20
"""Bytes of an environment to look at: a process can declare any part of its memory to be it (PR_SET_MM in prctl(2))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFamily:
    """What is started on one terminal: its session, and what left the session but kept its environment.

    Attributes:
        mark: the random value of `MARK` in the environment.
        session: process id of the session's leader in our eyes, or 0.
        namespace: inode of the process namespace in which alone to look, or None for everywhere.
    """

    mark: str
    session: int
    namespace: int | None

    def has(self, pid: int, *, group: int | None = None) -> bool:
        """Whether a live process belongs to it, and to a process group of its session if one is named."""
        process = _PROC / str(pid)
        try:
            if self.namespace is not None and namespace_of(pid) != self.namespace:
                return False
            # After the name in parentheses, which may hold anything: state, parent, group, session (proc(5)).
            state, _, its_group, session = (process / "stat").read_bytes().rpartition(b")")[2].split(maxsplit=4)[:4]
            if state in _GONE:
                return False
            of_session = self.session > 0 and int(session) == self.session
            if group is not None:
                return of_session and int(its_group) == group
            return of_session or f"\0{MARK}={self.mark}\0".encode() in _environment(process)
        except OSError:  # ended meanwhile, or another user's
            return False

    async def kill(self, *, within: float) -> bool:
        """Kill all of it, over and over until none is left; False when some are left after `within` seconds."""
        deadline = time.monotonic() + within
        # Off the event loop: how many processes there are, and how much each declares, is up to them.
        while await asyncio.to_thread(self._signal, signal.SIGKILL):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.001)
        return True

    def signal_group(self, group: int, number: signal.Signals) -> None:
        """Send a signal to a process group of its session."""
        self._signal(number, group=group)

    def _signal(self, number: signal.Signals, *, group: int | None = None) -> int:
        sent = 0
        for pid in [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()] if KNOWN else []:
            if not self.has(pid, group=group):
                continue
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                # Asked again, because the number may have become another process's before it was held.
                if self.has(pid, group=group):
                    signal.pidfd_send_signal(descriptor, number)
                    sent += 1
            except (ProcessLookupError, PermissionError):
                pass  # ended meanwhile, or another user's: a command may have become that by sudo(8)
            finally:
                os.close(descriptor)
        return sent


def namespace_of(pid: int) -> int:
    """The inode of a process's PID namespace.

    Raises:
        OSError: it is gone, or another user's.
    """
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def _environment(process: Path) -> bytes:
    """The variables of a process, each between null bytes; not as a list, of which a stranger's may have a million."""
    with (process / "environ").open("rb", buffering=0) as environment:
        return b"\0%b\0" % environment.read(_ENVIRONMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A process as ps(1) lists it; its number and its start together are nobody else's.

    Attributes:
        pid: its number.
        started: when, to the second.
    """

    pid: int
    started: str


def beside(pid: int) -> frozenset[Listed]:
    """The other processes on a process's terminal, where nothing better than ps(1) tells; none without it."""
    listed = _listed()
    terminal = next((terminal for each, terminal in listed if each.pid == pid), "")
    # A process that has ended, or has no terminal, shares that with the services of the machine.
    if not terminal.strip("?-"):
        return frozenset()
    return frozenset(each for each, other in listed if other == terminal and each.pid != pid)


def kill_those_left(of: frozenset[Listed]) -> None:
    """Kill those of some processes that are still there."""
    for each in of & {each for each, _ in _listed()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each.pid, signal.SIGKILL)


def _listed() -> list[tuple[Listed, str]]:
    """Every process, and its terminal."""
    try:
        told = subprocess.run(["ps", "-axo", "pid=,tty=,lstart="], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return []
    parts = (line.split(maxsplit=2) for line in told.splitlines())
    return [(Listed(pid=int(pid), started=started), terminal) for pid, terminal, started in parts]
