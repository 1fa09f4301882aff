"""Measure the resources that the processes of one sandbox use, from outside. Linux.

A sandbox has a `/proc` of its own, which lists its processes and no others, so that a look costs what the sandbox has
and not what the machine has. The process that started the sandbox may read all of it: it owns its user namespace.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import stat
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
_READ = 1 << 14
_OWN, _CHILDREN, _THREADS, _STARTED, _RESIDENT = slice(11, 13), slice(13, 15), 17, 19, 21
"""Of `/proc/[pid]/stat`, counted behind the name: user and system time, the same of children waited for (proc(5))."""
_PRIVATE = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""Memory that is nobody's file: of `/proc/[pid]/smaps_rollup`, in KiB, with shared pages divided by their sharers."""
_REST = 10
"""Times as long as adding up took is rested before the next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a look found.

    Attributes:
        processes: processes and threads.
        cpu_seconds: processor time of everything that ever ran, as far as it was seen or waited for.
        memory_bytes: of the processes and tmpfs: no less than that, and exact to a few pages when it is over the limit.
        tmpfs_files: files in tmpfs.
    """

    processes: int
    cpu_seconds: float
    memory_bytes: int
    tmpfs_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlinked:
    """Open files that no directory has any more.

    Attributes:
        disk_bytes: on the workspace's disk.
        memory_bytes: in memory (memfd_create(2)).
        blind: whether a process keeps its files from us (`PR_SET_DUMPABLE` in prctl(2)), which are not counted.
    """

    disk_bytes: int = 0
    memory_bytes: int = 0
    blind: bool = False


def of_machine(*names: str) -> list[int]:
    """Bytes of the memory of the whole machine, by their names in `/proc/meminfo`; 0 for what it does not name.

    Raises:
        OSError: it cannot be read.
    """
    words = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    known = {name.rstrip(":"): int(count) * 1024 for name, count, *_ in words}
    return [known.get(name, 0) for name in names]


class Census:
    """Counts the processes of one sandbox, over and over; used by one thread."""

    def __init__(self, root: int, tmpfs: Sequence[str]) -> None:
        """Get to know a sandbox.

        Args:
            root: descriptor of its root directory, which stays the caller's.
            tmpfs: absolute paths inside of the file systems that live in memory.

        Raises:
            OSError: it ended.
        """
        self._held: list[int] = []
        try:
            self._proc = self._open("proc", os.O_RDONLY, root)
            self._tmpfs = [self._open(place.lstrip("/"), os.O_PATH, root) for place in tmpfs]
            self._devices = frozenset(os.fstat(each).st_dev for each in self._tmpfs)
        except BaseException:  # whatever it was, nobody else knows of the descriptors
            self.close()
            raise
        self._times: dict[tuple[str, bytes], tuple[int, int]] = {}
        self._lost = 0
        self._exact = 0
        self._next_exact = 0.0

    def close(self) -> None:
        """Give the descriptors back; they keep the sandbox's tmpfs in memory. Idempotent."""
        while self._held:
            os.close(self._held.pop())

    def crowd(self, limit: int) -> int:
        """How many processes there are, but no more than `limit`; threads do not count. Costs next to nothing.

        Raises:
            OSError: the sandbox ended.
        """
        return len(self._pids(limit))

    def kill(self, limit: int) -> None:
        """Kill so many of them, one by one: the end of the first ends all, but may be slow to come when they are many.

        Raises:
            OSError: the sandbox ended.
        """
        for pid in self._pids(limit):
            with contextlib.suppress(OSError):  # it ended meanwhile
                process = os.open(pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
                try:
                    signal.pidfd_send_signal(process, signal.SIGKILL)  # takes such a descriptor as well
                finally:
                    os.close(process)

    def count(self, *, memory_limit: int, process_limit: int) -> Counted:
        """What is used now; more than `process_limit` processes are not looked at one by one.

        Raises:
            OSError: the sandbox ended.
        """
        pids = self._pids(process_limit)
        processes = resident = 0
        times: dict[tuple[str, bytes], tuple[int, int]] = {}
        for pid in pids:
            # The name in parentheses may hold anything.
            if fields := self._read(f"{pid}/stat").rpartition(b")")[2].split():
                times[pid, fields[_STARTED]] = (sum(map(int, fields[_OWN])), sum(map(int, fields[_CHILDREN])))
                processes += max(1, int(fields[_THREADS]))
                resident += int(fields[_RESIDENT])
        filled = files = 0
        for place in self._tmpfs:
            status = os.statvfs(place)
            filled += (status.f_blocks - status.f_bfree) * status.f_frsize
            files += status.f_files - status.f_ffree
        # A process that ends leaves its ticks to the process that waits for it. Where nobody waits they are lost to the
        # kernel's figures: then what was seen of them last is kept.
        gone = sum(sum(self._times[each]) for each in self._times.keys() - times.keys())
        handed_on = sum(children - self._times.get(each, (0, 0))[1] for each, (_, children) in times.items())
        self._lost += max(0, gone - handed_on)
        self._times = times
        return Counted(
            processes=processes,
            cpu_seconds=(self._lost + sum(map(sum, times.values()))) / _TICKS,
            memory_bytes=self._memory(pids, resident * _PAGE, filled, memory_limit),
            tmpfs_files=files,
        )

    def unlinked(self, device: int, *, process_limit: int) -> Generator[None, None, Unlinked]:
        """Find open files without a name; pauses after every process. `device` is the one the workspace is on.

        Raises:
            OSError: the sandbox ended.
        """
        seen: set[tuple[int, int]] = set()
        disk = memory = 0
        blind = False
        for pid in self._pids(process_limit):
            opened = self._opened(pid)
            blind |= opened is None
            for status in opened or ():
                nameless = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
                if not nameless or status.st_dev in self._devices or (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                if status.st_dev == device:
                    disk += status.st_blocks * _BLOCK
                else:
                    memory += status.st_blocks * _BLOCK
            yield
        return Unlinked(disk_bytes=disk, memory_bytes=memory, blind=blind)

    def _memory(self, pids: Sequence[str], resident: int, filled: int, limit: int) -> int:
        """No less than what is used: shared pages count for every process, and all that the machine swapped out for us.

        Only when that is too much it is looked at page by page, which is slow.
        """
        swap, unused = of_machine("SwapTotal", "SwapFree")
        most = resident + filled + swap - unused
        if most <= limit:
            return most
        began = time.monotonic()
        if began >= self._next_exact:
            self._exact = sum(map(self._private, pids)) + filled
            now = time.monotonic()
            self._next_exact = now + (now - began) * _REST
        return self._exact

    def _pids(self, limit: int) -> list[str]:
        # A whole list would be as long as what multiplies meanwhile makes it, and never come to its end.
        with os.scandir(self._proc) as entries:
            return list(itertools.islice((entry.name for entry in entries if entry.name.isdecimal()), limit))

    def _private(self, pid: str) -> int:
        lines = self._read(f"{pid}/smaps_rollup").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(_PRIVATE)) * 1024

    def _opened(self, pid: str) -> list[os.stat_result] | None:
        """What a process holds open; None when it does not let us see that."""
        found = []
        try:
            directory = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except PermissionError:
            return None
        except OSError:  # it ended meanwhile
            return []
        try:
            for name in os.listdir(directory):  # noqa: PTH208 - a descriptor has no Path
                try:
                    found.append(os.stat(name, dir_fd=directory))
                except OSError:  # closed meanwhile
                    continue
        except OSError:  # it ended meanwhile
            return found
        finally:
            os.close(directory)
        return found

    def _read(self, name: str) -> bytes:
        """A small file; nothing for one of a process that ended meanwhile."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            return os.read(descriptor, _READ)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def _open(self, place: str, how: int, root: int) -> int:
        descriptor = os.open(place, how | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=root)
        self._held.append(descriptor)
        return descriptor
