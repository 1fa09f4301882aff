"""Tell whether a program waits for what is typed on its terminal, by `/proc` (proc(5)). Linux."""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

_PROC = Path("/proc")
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
