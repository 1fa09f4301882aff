"""Look at the processes of a terminal, and end them.

`ProcessFamily` is all that was started on a terminal, found by its session and by a mark in the environment (`/proc`);
where there is no `/proc`, `beside` lists it by ps(1). `look` tells whether a program in the foreground waits for input
(Linux, proc(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

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


ListedProcess = tuple[int, str]
"""A process as ps(1) lists it: its number and when it started, which together are no other's."""


def beside(pid: int) -> frozenset[ListedProcess]:
    """The other processes on a process's terminal, where nothing better than ps(1) tells; none without it."""
    listed = _listed()
    terminal = next((terminal for each, terminal in listed if each[0] == pid), "")
    # A process that has ended, or has no terminal, shares that with the services of the machine.
    if not terminal.strip("?-"):
        return frozenset()
    return frozenset(each for each, other in listed if other == terminal and each[0] != pid)


def kill_those_left(of: frozenset[ListedProcess]) -> None:
    """Kill those of some processes that are still there."""
    for each in of & {each for each, _ in _listed()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each[0], signal.SIGKILL)


def _listed() -> list[tuple[ListedProcess, str]]:
    """List every process, and its terminal."""
    try:
        told = subprocess.run(["ps", "-axo", "pid=,tty=,lstart="], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return []
    parts = (line.split(maxsplit=2) for line in told.splitlines())
    return [((int(pid), started), terminal) for pid, terminal, started in parts]


_MOST_THREADS, _MOST_FILES, _MOST_BYTES = 256, 256, 65_536
_ANY_DESCRIPTOR = 1 << 31
_STOPPED = frozenset("TtZX")
_BUSY = frozenset("RD")
_OWN = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[signalfd]")
"""What a program waits for beside its terminal to wake itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What the programs in a terminal's foreground do.

    Attributes:
        kind: `waits`: one waits for input, and nothing else goes on; `listens`: it waits for input or for a time of its
            event loop, as prompts on Node.js do; `works`: none waits for input; `unclear`: one may.
        thread: the one that waits, with its system call, how often it has slept, and the processor time of all; two
            equal looks mean that it did not wake up in between, and none beside it worked.
    """

    kind: Literal["waits", "listens", "works", "unclear"]
    thread: tuple[str, ...] = ()


UNCLEAR = Attention(kind="unclear")
_WORKS = Attention(kind="works")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Poll:
    """A system call that waits for several files.

    Attributes:
        files: how its first two arguments name them.
        timeout: which argument is the time after which it gives up.
        pointer: whether a null pointer means never, and not a negative number.
    """

    files: Literal["array", "below", "epoll"]
    timeout: int
    pointer: bool


_POLL = _Poll(files="array", timeout=2, pointer=False)
_PPOLL = _Poll(files="array", timeout=2, pointer=True)
_SELECT = _Poll(files="below", timeout=4, pointer=True)
_EPOLL = _Poll(files="epoll", timeout=3, pointer=False)
_EPOLL2 = _Poll(files="epoll", timeout=3, pointer=True)
_CALLS: dict[str, dict[int, _Poll | None]] = {
    "x86_64": {
        **dict.fromkeys((0, 19)), 7: _POLL, 271: _PPOLL, 23: _SELECT, 270: _SELECT,
        232: _EPOLL, 281: _EPOLL, 441: _EPOLL2,
    },
    "aarch64": {**dict.fromkeys((63, 65)), 73: _PPOLL, 72: _SELECT, 22: _EPOLL, 441: _EPOLL2},
}  # fmt: skip
"""By number, the system calls that can wait for a terminal; None for read and readv."""


def look(leader: int, group: int, *, reads_give_up: bool) -> Attention:
    """What the processes of a terminal's foreground group do; `UNCLEAR` where the system does not say.

    Args:
        leader: the shell on the terminal, from which they descend.
        group: the foreground group, as tcgetpgrp(3) gives it.
        reads_give_up: whether the terminal lets no read wait for ever (`MIN` is 0 in termios(3)).
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return UNCLEAR
    calls = {number: poll for number, poll in calls.items() if poll is not None or not reads_give_up}
    try:
        processes = [each for each in _family(leader) if each.group == group and each.state not in _STOPPED]
        found = [process.attention(calls, processes) for process in processes]
    except (OSError, ValueError):  # ended meanwhile, another user's, or this system tells less
        return UNCLEAR
    # A thread that runs, and a call that may be for the terminal, outweigh one that waits.
    if not found or any(each.kind == "unclear" for each in found):
        return UNCLEAR
    waiting = next((each for each in found if each.kind != "works"), None)
    if waiting is None:
        return _WORKS
    if any(process.state in _BUSY for process in processes):
        return UNCLEAR
    return replace(waiting, thread=(*waiting.thread, *(process.seconds for process in processes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    state: str
    parent: int
    group: int
    terminal: int
    seconds: str
    threads: tuple[str, ...]

    def attention(self, calls: dict[int, _Poll | None], others: list[_Process]) -> Attention:
        """What one process does.

        Raises:
            OSError: it cannot be looked at.
        """
        threads = [_Thread(process=self, tid=tid) for tid in self.threads]
        found = [each for each in (thread.attention(calls) for thread in threads) if each is not None]
        if not found:
            return _WORKS
        # What passes its input on to its children or to a server reads all the time: a thread of its own does that.
        if any(each.thread[:1] != (str(self.pid),) for each in found) or any(
            each.parent == self.pid for each in others
        ):
            return UNCLEAR
        return found[0]

    def files(self) -> dict[int, str]:
        """What its descriptors are of.

        Raises:
            OSError: there are too many to look at, or the system does not tell.
        """
        links = list(islice((_PROC / str(self.pid) / "fd").iterdir(), _MOST_FILES + 1))
        if len(links) > _MOST_FILES:
            raise OSError("too many files to look at")
        return {int(link.name): str(link.readlink()) for link in links}

    def is_terminal(self, link: str) -> bool:
        """Whether a descriptor is of its controlling terminal."""
        return link in {"/dev/tty", f"/dev/pts/{os.minor(self.terminal)}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thread:
    process: _Process
    tid: str

    def attention(self, calls: dict[int, _Poll | None]) -> Attention | None:
        """None when what it does has nothing to do with its terminal; see `look`."""
        place = _PROC / str(self.process.pid) / "task" / self.tid
        words = _read(place / "syscall").split()
        if words[0] == "running":
            return UNCLEAR if len(self.process.threads) > 1 else None
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
        if number not in calls:
            return None
        poll, files = calls[number], self.process.files()
        if poll is None:
            return self._waits(words) if self.process.is_terminal(files.get(arguments[0], "")) else None
        if poll.files == "epoll":
            told = _read(_PROC / str(self.process.pid) / "fdinfo" / str(arguments[0]))
            among = {int(line.split()[1]) for line in told.splitlines() if line.startswith("tfd:")}
        else:
            count = arguments[0] if poll.files == "below" else arguments[1] and _ANY_DESCRIPTOR
            among = {each for each in files if each < count}
        # What it writes to is the terminal, too.
        links = [files[each] for each in among - {1, 2} if each in files]
        if not any(map(self.process.is_terminal, links)):
            return None
        # A pipe of which it has both ends is its own, too.
        often = Counter(files.values())
        own = {*_OWN, *(link for link in links if link.startswith("pipe:") and often[link] > 1)}
        foreign = any(link.startswith(("socket:", "pipe:", "anon_inode:")) and link not in own for link in links)
        timeout = arguments[poll.timeout]
        endless = timeout == 0 if poll.pointer else bool(timeout & 1 << 31)
        if foreign or not (endless or poll.files == "epoll"):
            return UNCLEAR
        return self._waits(words, "waits" if endless else "listens")

    def _waits(self, words: list[str], kind: Literal["waits", "listens"] = "waits") -> Attention:
        status = _read(_PROC / str(self.process.pid) / "task" / self.tid / "status").splitlines()
        slept = next((line for line in status if line.startswith("voluntary_ctxt_switches")), "")
        return Attention(kind=kind, thread=(self.tid, *words, slept))


def _family(leader: int) -> list[_Process]:
    """A process and its descendants.

    Raises:
        OSError: there are too many to look at, or the system does not tell.
    """
    found: list[_Process] = []
    waiting, threads = [leader], 0
    while waiting:
        pid = waiting.pop()
        place = _PROC / str(pid)
        tids = tuple(thread.name for thread in (place / "task").iterdir())
        threads += len(tids)
        if threads > _MOST_THREADS:
            raise OSError("too many processes to look at")
        # After the name in parentheses, which may hold anything: state, parent, group, session, terminal; last the time
        # of the processor, in hundredths of a second, for the program and for the system.
        state, parent, group, _, terminal, *more = _read(place / "stat").rpartition(")")[2].split()[:13]
        found.append(
            _Process(
                pid=pid,
                state=state,
                parent=int(parent),
                group=int(group),
                terminal=int(terminal),
                seconds=" ".join(more[-2:]),
                threads=tids,
            )
        )
        for tid in tids:
            waiting += map(int, _read(place / "task" / tid / "children").split())
    return found


def _read(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return file.read(_MOST_BYTES).decode(errors="replace")
