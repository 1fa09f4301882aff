"""Inspection and killing of a terminal's processes.

`ProcessFamily` uses `/proc`, `terminal_processes` ps(1); `foreground_state` detects waiting for input (Linux).
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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

MARK = "CODEPILOT_TERMINAL"
"""Environment variable inherited by all processes of a terminal, across sessions."""
_PROC = Path("/proc")
HAS_PROC = sys.platform == "linux"
"""Whether `/proc` lists processes."""
_DEAD_STATES = (b"Z", b"X")
_MAX_ENVIRONMENT_BYTES = 1 << 20
"""Bytes of an environment to read: a process can declare any memory to be its own (PR_SET_MM in prctl(2))."""
_MAX_COMMAND_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFamily:
    """Processes of one terminal: its session, and any with its mark in the environment.

    Attributes:
        session: host process id of the leader, or 0.
        namespace: inode of the PID namespace, or None for all.
    """

    mark: str
    session: int
    namespace: int | None

    def contains(self, pid: int, *, group: int | None = None) -> bool:
        """Whether a live process belongs to the family, or to `group` of its session."""
        process = _PROC / str(pid)
        try:
            if self.namespace is not None and pid_namespace(pid) != self.namespace:
                return False
            # After the name in parentheses, which may hold anything: state, parent, group, session (proc(5)).
            state, _, its_group, session = (process / "stat").read_bytes().rpartition(b")")[2].split(maxsplit=4)[:4]
            if state in _DEAD_STATES:
                return False
            of_session = self.session > 0 and int(session) == self.session
            if group is not None:
                return of_session and int(its_group) == group
            return of_session or f"\0{MARK}={self.mark}\0".encode() in _environment(process)
        except OSError:  # ended meanwhile, or another user's
            return False

    async def kill(self, *, within: float) -> bool:
        """Kill repeatedly until none is left; return False after `within` seconds."""
        deadline = time.monotonic() + within
        while True:
            try:
                # Off the event loop, as the programs decide on the number of processes and the size of environments.
                is_any_left = await asyncio.to_thread(self._signal, signal.SIGKILL)
            except RuntimeError:  # `asyncio.run` is ending: its loop starts no threads any more
                is_any_left = self._signal(signal.SIGKILL)
            if not is_any_left:
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.001)

    def signal_group(self, group: int, number: signal.Signals) -> None:
        """Send a signal to a process group of the session."""
        self._signal(number, group=group)

    def programs(self, shell: Sequence[str], *, without: Collection[int]) -> tuple[str, ...]:
        """Return the command line of each process group, except of some groups; `shell` is the shell's own."""
        groups: dict[int, str] = {}
        for pid in sorted(_list_pids()):
            try:
                group = os.getpgid(pid)
                if group in without or group in groups or not self.contains(pid):
                    continue
                with (_PROC / str(pid) / "cmdline").open("rb", buffering=0) as file:
                    words = file.read(_MAX_COMMAND_BYTES).decode(errors="replace").strip("\0").split("\0")
                # A job that is a part of the shell has its arguments.
                groups[group] = words[0] if tuple(words) == shell else " ".join(words)
            except OSError:  # ended meanwhile
                continue
        return tuple(filter(None, groups.values()))

    def _signal(self, number: signal.Signals, *, group: int | None = None) -> int:
        count = 0
        for pid in _list_pids():
            if not self.contains(pid, group=group):
                continue
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                # Check again, because the process id may have been reused before `pidfd_open`.
                if self.contains(pid, group=group):
                    signal.pidfd_send_signal(descriptor, number)
                    count += 1
            except (ProcessLookupError, PermissionError):
                pass  # ended meanwhile, or another user's, e.g. by sudo(8)
            finally:
                os.close(descriptor)
        return count


def _list_pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()] if HAS_PROC else []


def pid_namespace(pid: int) -> int:
    """Return the inode of a process's PID namespace.

    Raises:
        OSError: inaccessible.
    """
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def _environment(process: Path) -> bytes:
    with (process / "environ").open("rb", buffering=0) as environment:
        return b"\0%b\0" % environment.read(_MAX_ENVIRONMENT_BYTES)


ListedProcess = tuple[int, str]
"""Process id and start time from ps(1), unique together."""


def terminal_processes(pid: int) -> frozenset[ListedProcess]:
    """List the other processes on a process's terminal, by ps(1)."""
    processes = _list_processes()
    terminal = next((terminal for process, terminal in processes if process[0] == pid), "")
    # An ended process, or one without a terminal, would match the services of the machine.
    if not terminal.strip("?-"):
        return frozenset()
    return frozenset(process for process, tty in processes if tty == terminal and process[0] != pid)


def kill_remaining(processes: frozenset[ListedProcess]) -> None:
    """Kill the listed processes that still run."""
    for process in processes & {process for process, _ in _list_processes()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process[0], signal.SIGKILL)


def _list_processes() -> list[tuple[ListedProcess, str]]:
    try:
        output = subprocess.run(["ps", "-axo", "pid=,tty=,lstart="], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return []
    parts = (line.split(maxsplit=2) for line in output.splitlines())
    return [((int(pid), started), terminal) for pid, terminal, started in parts]


_MAX_THREADS, _MAX_FILES, _MAX_BYTES = 256, 256, 65_536
_ANY_DESCRIPTOR = 1 << 31
_STOPPED = frozenset("TtZX")
_BUSY_STATES = frozenset("RD")
_WAKEUP_FILES = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[signalfd]")
"""Files by which a program wakes itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundState:
    """State of a terminal's foreground programs.

    Attributes:
        kind: `waits` for input; `listens` for input or a timer, like Node.js prompts; `works`, not waiting; `unclear`.
        thread: system call, sleep count and processor times; equal values mean that nothing ran in between.
    """

    kind: Literal["waits", "listens", "works", "unclear"]
    thread: tuple[str, ...] = ()


UNCLEAR = ForegroundState(kind="unclear")
_WORKS = ForegroundState(kind="works")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Poll:
    """A system call that waits for several files.

    Attributes:
        files: encoding of the file arguments.
        timeout: argument index.
        pointer: null means no timeout, not a negative number.
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


def foreground_state(leader: int, group: int, *, has_timed_reads: bool) -> ForegroundState:
    """Return the state of a foreground group; `UNCLEAR` where unsupported.

    `has_timed_reads`: `MIN` is 0 in termios(3).
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return UNCLEAR
    calls = {number: poll for number, poll in calls.items() if poll is not None or not has_timed_reads}
    try:
        processes = [proc for proc in _descendants(leader) if proc.group == group and proc.state not in _STOPPED]
        states = [process.foreground_state(calls, processes) for process in processes]
    except (OSError, ValueError):  # ended meanwhile, another user's, or this system tells less
        return UNCLEAR
    # A running thread, and a call that may read the terminal, outweigh one that waits.
    if not states or any(state.kind == "unclear" for state in states):
        return UNCLEAR
    waiting = next((state for state in states if state.kind != "works"), None)
    if waiting is None:
        return _WORKS
    if any(process.state in _BUSY_STATES for process in processes):
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

    def foreground_state(self, calls: dict[int, _Poll | None], group: list[_Process]) -> ForegroundState:
        threads = [_Thread(process=self, tid=tid) for tid in self.threads]
        states = [state for state in (thread.foreground_state(calls) for thread in threads) if state is not None]
        if not states:
            return _WORKS
        # A program that forwards its input to children or a server reads all the time, in another thread.
        if any(state.thread[:1] != (str(self.pid),) for state in states) or any(
            process.parent == self.pid for process in group
        ):
            return UNCLEAR
        return states[0]

    def files(self) -> dict[int, str]:
        links = list(islice((_PROC / str(self.pid) / "fd").iterdir(), _MAX_FILES + 1))
        if len(links) > _MAX_FILES:
            raise OSError("too many files to look at")
        return {int(link.name): str(link.readlink()) for link in links}

    def is_terminal(self, link: str) -> bool:
        return link in {"/dev/tty", f"/dev/pts/{os.minor(self.terminal)}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thread:
    process: _Process
    tid: str

    def foreground_state(self, calls: dict[int, _Poll | None]) -> ForegroundState | None:
        """Return the thread's state; None if unrelated to the terminal."""
        task = _PROC / str(self.process.pid) / "task" / self.tid
        words = _read(task / "syscall").split()
        if words[0] == "running":
            return UNCLEAR if len(self.process.threads) > 1 else None
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
        if number not in calls:
            return None
        poll, files = calls[number], self.process.files()
        if poll is None:
            return self._waiting_state(words) if self.process.is_terminal(files.get(arguments[0], "")) else None
        if poll.files == "epoll":
            fdinfo = _read(_PROC / str(self.process.pid) / "fdinfo" / str(arguments[0]))
            polled = {int(line.split()[1]) for line in fdinfo.splitlines() if line.startswith("tfd:")}
        else:
            count = arguments[0] if poll.files == "below" else arguments[1] and _ANY_DESCRIPTOR
            polled = {descriptor for descriptor in files if descriptor < count}
        # Its standard output is the terminal, too.
        links = [files[descriptor] for descriptor in polled - {1, 2} if descriptor in files]
        if not any(map(self.process.is_terminal, links)):
            return None
        # A pipe with both ends in this process wakes it, too.
        link_counts = Counter(files.values())
        own = {*_WAKEUP_FILES, *(link for link in links if link.startswith("pipe:") and link_counts[link] > 1)}
        has_foreign = any(link.startswith(("socket:", "pipe:", "anon_inode:")) and link not in own for link in links)
        timeout = arguments[poll.timeout]
        is_endless = timeout == 0 if poll.pointer else bool(timeout & 1 << 31)
        if has_foreign or not (is_endless or poll.files == "epoll"):
            return UNCLEAR
        return self._waiting_state(words, "waits" if is_endless else "listens")

    def _waiting_state(self, words: list[str], kind: Literal["waits", "listens"] = "waits") -> ForegroundState:
        status = _read(_PROC / str(self.process.pid) / "task" / self.tid / "status").splitlines()
        slept = next((line for line in status if line.startswith("voluntary_ctxt_switches")), "")
        return ForegroundState(kind=kind, thread=(self.tid, *words, slept))


def _descendants(leader: int) -> list[_Process]:
    processes: list[_Process] = []
    pending, threads = [leader], 0
    while pending:
        pid = pending.pop()
        directory = _PROC / str(pid)
        tids = tuple(thread.name for thread in (directory / "task").iterdir())
        threads += len(tids)
        if threads > _MAX_THREADS:
            raise OSError("too many processes to look at")
        # After the name in parentheses, which may hold anything: state, parent, group, session, terminal; last the time
        # of the processor, in hundredths of a second, for the program and for the system.
        state, parent, group, _, terminal, *more = _read(directory / "stat").rpartition(")")[2].split()[:13]
        processes.append(
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
            pending += map(int, _read(directory / "task" / tid / "children").split())
    return processes


def _read(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return file.read(_MAX_BYTES).decode(errors="replace")
