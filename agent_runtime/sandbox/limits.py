"""Compare the use of all programs of one sandbox with its limits. Pure."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from agent_runtime.sandbox.protocol import SandboxLimits

_OF_MACHINE = 3 / 4
"""Share of the machine's memory beyond which a greater limit would never act: the machine would be out of it first."""
_OUT_OF_SIGHT = 2
"""The kernel refuses processes from the limit on, and counts those of bubblewrap itself: we see a few less then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """What one sandbox uses now, or used up so far.

    Attributes:
        memory_bytes: of all its processes, and of what it keeps in tmpfs.
        processes: processes and threads.
        cpu_seconds: processor time of everything that ever ran in it.
        seconds: since it started.
        disk_bytes: taken on the workspace's disk since it started.
        files: made or changed in the workspace since it started, and all in tmpfs; directories count.
        free_bytes: left on the workspace's disk; None for unknown.
    """

    memory_bytes: int = 0
    processes: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    disk_bytes: int = 0
    files: int = 0
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit that was gone over. As text it is the limit and its value: `memory 2 GiB`.

    Attributes:
        limit: which one.
        bound: its value, with its unit.
        advice: what to do differently.
    """

    limit: str
    bound: str
    advice: str

    @override
    def __str__(self) -> str:
        """The limit and its value."""
        return f"{self.limit} {self.bound}"

    def told(self) -> str:
        """What the model reads: what happened, what it meant, and what to do."""
        return (
            f"limit: {self}; all programs of all terminals were killed, and files outside the workspace are gone. "
            f"{self.advice}"
        )


def broken(usage: ResourceUsage, limits: SandboxLimits) -> Breach | None:
    """The first limit that is broken, or None."""
    free = limits.free_bytes if usage.free_bytes is None else usage.free_bytes
    over = {
        "processes": usage.processes >= limits.processes - _OUT_OF_SIGHT,
        "memory": usage.memory_bytes > limits.memory_bytes,
        "processor time": usage.cpu_seconds > limits.cpu_seconds,
        "time": usage.seconds > limits.seconds,
        "disk": usage.disk_bytes > limits.disk_bytes,
        "files": usage.files > limits.files,
        "free disk space of the machine": free < limits.free_bytes,
    }
    return next((breach(name, limits) for name, is_over in over.items() if is_over), None)


def breach(limit: str, limits: SandboxLimits) -> Breach:
    """What to say when this limit was broken."""
    bound, advice = {
        "processes": (f"{limits.processes:,}", f"{_TOGETHER}, and threads: start fewer at once."),
        "memory": (size(limits.memory_bytes), f"{_TOGETHER}, and files in /tmp: use fewer workers, or less data."),
        "processor time": (seconds(limits.cpu_seconds), f"{_TOGETHER}: run less at a time."),
        "time": (seconds(limits.seconds), "It counts from the first command in a terminal."),
        "disk": (size(limits.disk_bytes), _STILL_THERE),
        "files": (f"{limits.files:,}", _STILL_THERE),
        "free disk space of the machine": (size(limits.free_bytes), _STILL_THERE),
    }[limit]
    return Breach(limit=limit, bound=bound, advice=advice)


_TOGETHER = "It counts all programs together, those in the background too"
_STILL_THERE = "What was written to the workspace is still there: delete what is not needed."


def unwatchable(error: str) -> Breach:
    """What to say of a sandbox whose use cannot be measured any more."""
    return Breach(limit="measuring failed:", bound=error, advice="It was ended to be safe; try again.")


def fitted(limits: SandboxLimits, machine_bytes: int) -> SandboxLimits:
    """The limits on a machine with so much memory."""
    return replace(limits, memory_bytes=min(limits.memory_bytes, int(machine_bytes * _OF_MACHINE)))


def size(count: int) -> str:
    """A number of bytes to be read: `2 GiB`, `1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"


def seconds(count: float) -> str:
    """A time to be read: `90 s`, `2 h`."""
    for unit, factor in (("h", 3600), ("min", 60)):
        if count >= factor and count % factor == 0:
            return f"{count / factor:.0f} {unit}"
    return f"{count:g} s"


# ---- A control group for one sandbox, where the system delegates a part of its tree (cgroup v2).


_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NEEDED = ("cpu", "memory", "pids")
_PREFIX = "codepilot-"
_EMPTY_SECONDS = 2.0
_numbers = itertools.count(1)


def delegated(mount: Path = _MOUNT, own: Path = _OWN) -> Path | None:
    """The part of the tree below which we may make groups with limits, ready for that; None where there is none.

    Args:
        mount: where cgroup v2 is mounted.
        own: the file that says which groups this process is in.
    """
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::/"))
        part = (mount / line.removeprefix("0::/")).parent
        # Above a group at the top there is nothing of ours; and a part with processes in it can have no controllers.
        if line == "0::/" or not os.access(part, os.W_OK) or (part / "cgroup.procs").read_text().strip():
            return None
        offered = (part / "cgroup.controllers").read_text().split()
        if any(each not in offered for each in _NEEDED):
            return None
        (part / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in _NEEDED))
    except (OSError, StopIteration):  # no cgroup v2, or not ours to change: the watcher measures instead
        return None
    # Remove the groups of processes that were killed; those in use refuse.
    for left in part.glob(f"{_PREFIX}*"):
        _removed(left)
    return part


@functools.cache
def _part() -> Path | None:
    return delegated()


def group(limits: SandboxLimits) -> Cgroup | None:
    """A new group for one sandbox; None where there are none for us."""
    part = _part()
    if part is None:
        return None
    try:
        return Cgroup(part, limits)
    except OSError:  # taken back since, or a file that this kernel lacks: the watcher measures instead
        return None


class Cgroup:
    """A group with limits, which a process enters before it becomes the sandbox.

    Attributes:
        path: its directory.
        entrance: descriptor of the file to write `0` to in order to enter; closed by `close_entrance`.
    """

    def __init__(self, part: Path, limits: SandboxLimits) -> None:
        """Make one below `part`, which `delegated` gave.

        Raises:
            OSError: it cannot be made; the part was taken back, or the kernel lacks one of its files.
        """
        self.path = part / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        self.entrance = -1
        try:
            self._write("memory.max", limits.memory_bytes)
            if (self.path / "memory.swap.max").exists():  # not without swap
                self._write("memory.swap.max", 0)
            self._write("memory.oom.group", 1)  # all of it ends together, and so comes back together
            self._write("pids.max", limits.processes)
            self.entrance = os.open(self.path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:  # whatever it was, nobody else knows of the group
            self.remove()
            raise

    def close_entrance(self) -> None:
        """Nobody else will enter; idempotent."""
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1

    def cpu_seconds(self) -> float:
        """Processor time of everything that was ever in it.

        Raises:
            OSError: it is gone.
        """
        return self._value("cpu.stat", "usage_usec") / 1e6

    def out_of_memory(self) -> bool:
        """Whether the kernel ended something in it because its limit of memory was reached."""
        try:
            return self._value("memory.events", "oom_kill") > 0
        except OSError:  # it is gone, or was never made
            return False

    def kill(self) -> None:
        """End everything in it.

        Raises:
            OSError: it is gone, or this kernel is older than 5.14.
        """
        self._write("cgroup.kill", 1)

    def remove(self) -> None:
        """Remove it; one that does not become empty is left for the next `delegated`."""
        deadline = time.monotonic() + _EMPTY_SECONDS
        while not _removed(self.path) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _value(self, file: str, key: str) -> int:
        lines = (line.split() for line in (self.path / file).read_text().splitlines())
        return int(next((words[1] for words in lines if words[0] == key), "0"))

    def _write(self, file: str, value: int) -> None:
        (self.path / file).write_text(str(value))


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # not empty yet
        return False
    return True


# ---- Measure the resources that the processes of one sandbox use, from outside. Linux.


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
_READ = 1 << 14
_OWN_CENSUS, _CHILDREN, _THREADS, _STARTED, _RESIDENT = slice(11, 13), slice(13, 15), 17, 19, 21
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
                times[pid, fields[_STARTED]] = (sum(map(int, fields[_OWN_CENSUS])), sum(map(int, fields[_CHILDREN])))
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


# ---- Find the files written to a workspace since a sandbox started, by walking it. POSIX.


_SLICE = 64
_DEEPEST = 100
"""Directories below one another; each is held open while what is below it is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a walk found.

    Attributes:
        disk_bytes: that files made or changed since then take on the disk.
        files: how many these are; directories count.
        blind: whether there are directories that are too deep or that we may not read, whose contents are not counted.
    """

    disk_bytes: int = 0
    files: int = 0
    blind: bool = False


def walk(root: int, since: int) -> Generator[None, None, Growth]:
    """Walk the directory with the descriptor `root`; pauses after every few entries.

    Directories are entered one from the other and never by way of a link, so what is swapped meanwhile leads nowhere.

    Args:
        root: the workspace, which stays the caller's.
        since: nanoseconds since the epoch.
    """
    linked: set[int] = set()
    disk = files = 0
    blind = False
    path: list[_Directory] = []
    try:
        path.append(_Directory(".", root))
        for step in itertools.count(1):
            entry = path[-1].next()
            if entry is None:
                path.pop().close()
                if not path:
                    break
                continue
            if step % _SLICE == 0:
                yield
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISDIR(status.st_mode):
                blind |= not _entered(path, entry.name)
            if status.st_ctime_ns >= since and status.st_ino not in linked:
                disk += status.st_blocks * _BLOCK
                files += 1
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    linked.add(status.st_ino)
    finally:
        for directory in path:
            directory.close()
    return Growth(disk_bytes=disk, files=files, blind=blind)


def _entered(path: list[_Directory], name: str) -> bool:
    """Go down into a directory, if there is still one; whether there is nothing in it that will not be counted."""
    if len(path) >= _DEEPEST:
        return False
    try:
        path.append(_Directory(name, path[-1].descriptor))
    except PermissionError:
        return False
    except OSError:  # removed or replaced meanwhile
        return True
    return True


class _Directory:
    """An open directory on the way down."""

    def __init__(self, name: str, parent: int) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.descriptor = os.open(name, flags, dir_fd=parent)
        try:
            self._entries = os.scandir(self.descriptor)
        except BaseException:  # whatever it was, nobody else knows of the descriptor
            os.close(self.descriptor)
            raise

    def next(self) -> os.DirEntry[str] | None:
        """The next entry, or None at the end."""
        try:
            return next(self._entries, None)
        except OSError:  # the directory was removed meanwhile
            return None

    def close(self) -> None:
        """Give the descriptors back."""
        self._entries.close()
        os.close(self.descriptor)


# ---- Measure a sandbox's use of the workspace's disk, at a bounded cost. Linux.


_CALM_SECONDS, _URGENT_SECONDS = 0.005, 0.1
"""How long one look may go on with a walk."""
_REST_SECONDS = 2.0
"""Between two walks of which nothing says that they are urgent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Free:
    """What is left for everybody: bytes and files on the disk, and (less is more) files in memory."""

    disk_bytes: int
    files: int
    shared_bytes: int


class Consumption:
    """What one sandbox takes; used by one thread.

    Attributes:
        free_bytes: left on the disk for ordinary users, at the last `look`.
        urgent: whether a limit may be near, so that the next look should come soon.
    """

    def __init__(self, workspace: int, census: Census, limits: SandboxLimits) -> None:
        """Begin now: what was there before does not count.

        Args:
            workspace: descriptor of its directory, which stays the caller's.
            census: of the sandbox's processes.
            limits: what may be taken.
        """
        self._workspace = workspace
        self._device = os.fstat(workspace).st_dev
        self._census = census
        self._limits = limits
        self._since = time.time_ns()
        self._growth = Growth()
        self._unlinked = Unlinked()
        self.urgent = False
        self._walk: Generator[None, None, tuple[Growth, Unlinked]] | None = None
        self._rested = 0.0
        self._cpu_seconds = -1.0
        self.free_bytes = 0
        self._now = self._first = self._begun = self._walked = self._free()

    @property
    def disk_bytes(self) -> int:
        """Taken on the disk; where it cannot be seen, all that the disk lost."""
        seen = self._growth.disk_bytes + self._unlinked.disk_bytes
        blind = self._growth.blind or self._unlinked.blind
        return max(seen, self._first.disk_bytes - self._now.disk_bytes) if blind else seen

    @property
    def files(self) -> int:
        """Made or changed; where they cannot be seen, all that were made on the disk."""
        seen = self._growth.files
        return max(seen, self._first.files - self._now.files) if self._growth.blind else seen

    @property
    def memory_bytes(self) -> int:
        """In files without a name; where they cannot be seen, all by which shared memory grew."""
        seen = self._unlinked.memory_bytes
        return max(seen, self._now.shared_bytes - self._first.shared_bytes) if self._unlinked.blind else seen

    def look(self, *, cpu_seconds: float, memory_bytes: int) -> None:
        """Ask what is free, and go on with a walk if there is reason for one.

        Args:
            cpu_seconds: what the sandbox used up so far: as long as that stays the same, nothing was written.
            memory_bytes: what it uses besides files without a name.
        """
        self._now = self._free()
        # Whether half of what was left of a limit may be gone since the last walk.
        limits, then, now = self._limits, self._walked, self._now
        self.urgent = (
            2 * (then.disk_bytes - now.disk_bytes) >= limits.disk_bytes - self.disk_bytes
            or 2 * (then.files - now.files) >= limits.files - self.files
            or 2 * (now.shared_bytes - then.shared_bytes) >= limits.memory_bytes - memory_bytes
        )
        if self._walk is None:
            due = time.monotonic() >= self._rested and cpu_seconds != self._cpu_seconds
            if not self.urgent and not due:
                return
            self._walk, self._begun, self._cpu_seconds = self._survey(), self._now, cpu_seconds
        deadline = time.monotonic() + (_URGENT_SECONDS if self.urgent else _CALM_SECONDS)
        try:
            while time.monotonic() < deadline:
                next(self._walk)
        except StopIteration as end:
            self._growth, self._unlinked = end.value
            self._walk, self._walked = None, self._begun
            self._rested = time.monotonic() + _REST_SECONDS
        except OSError:
            self._walk = None  # the next one starts from the beginning
            raise

    def _survey(self) -> Generator[None, None, tuple[Growth, Unlinked]]:
        growth = yield from walk(self._workspace, self._since)
        return growth, (yield from self._census.unlinked(self._device, process_limit=self._limits.processes))

    def _free(self) -> _Free:
        status = os.statvfs(self._workspace)
        self.free_bytes = status.f_bavail * status.f_frsize
        return _Free(
            disk_bytes=status.f_bfree * status.f_frsize,
            files=status.f_ffree,
            shared_bytes=of_machine("Shmem")[0],
        )


# ---- Ends a sandbox whose programs together go over a limit, from a thread outside it. Linux.


_GLANCE_SECONDS = 0.05
"""Between two times that processes are counted: what doubles itself must not have the time to do it often."""
_GLANCES = 5
"""For one look at all the rest; each time when a limit may be near."""
_FAILURES = 4
"""Looks in a row that may fail before a sandbox that nobody can watch is ended."""


class Watcher:
    """Watches one sandbox until it ends, no matter who ends it."""

    def __init__(
        self,
        *,
        root: int,
        first: int,
        workspace: Path,
        tmpfs: Sequence[str],
        limits: SandboxLimits,
        cgroup: Cgroup | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            root: descriptor of the sandbox's root directory.
            first: descriptor of its first process, whose end is the end of all others (pidfd_open(2)).
            workspace: where it writes.
            tmpfs: absolute paths inside of the file systems that live in memory.
            limits: what it may use.
            cgroup: the group it is in, which is removed at its end; None where there are no groups for us.

        Raises:
            OSError: the sandbox ended already.
        """
        self._started = time.monotonic()
        self._limits = fitted(limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        self._cgroup = cgroup
        self._breach: Breach | None = None
        self._failed = 0
        self._census = Census(root, tmpfs)
        self._held = [os.dup(first)]
        try:
            self._held.append(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._taken = Consumption(self._held[1], self._census, self._limits)
        except BaseException:  # whatever it was, no thread watches that would give them back
            self._give_back()
            raise
        # Nothing that it holds refers to the object that waits for the end of the sandbox.
        threading.Thread(target=self._watch, name="sandbox watcher", daemon=True).start()

    def verdict(self) -> Breach | None:
        """The limit for which the sandbox was ended; None while it runs and when it ended otherwise."""
        if self._breach is None and self._cgroup is not None and self._cgroup.out_of_memory():
            return breach("memory", self._limits)
        return self._breach

    def _watch(self) -> None:
        ended = select.poll()
        ended.register(self._held[0], select.POLLIN)
        turn = 0
        try:
            while not ended.poll(_GLANCE_SECONDS * 1000 if turn else 0):
                if self._breach is None:
                    self._look(whole=turn % _GLANCES == 0 or self._taken.urgent)
                if self._breach is not None:
                    self._kill()
                turn += 1
        finally:
            self._kill()  # it has ended, or nobody watches it any more
            self._breach = self.verdict()
            self._give_back()

    def _look(self, *, whole: bool) -> None:
        try:
            self._breach = broken(ResourceUsage(processes=self._census.crowd(self._limits.processes)), self._limits)
            if self._breach is None and whole:
                limits, taken = self._limits, self._taken
                counted = self._census.count(memory_limit=limits.memory_bytes, process_limit=limits.processes)
                memory, cpu = counted.memory_bytes, counted.cpu_seconds
                if self._cgroup is not None:
                    # The kernel bounds its memory by itself; what is measured here would count shared memory too often.
                    memory, cpu = 0, self._cgroup.cpu_seconds()
                taken.look(cpu_seconds=cpu, memory_bytes=memory)
                self._breach = broken(
                    ResourceUsage(
                        memory_bytes=memory + (taken.memory_bytes if self._cgroup is None else 0),
                        processes=counted.processes,
                        cpu_seconds=cpu,
                        seconds=time.monotonic() - self._started,
                        disk_bytes=taken.disk_bytes,
                        files=taken.files + counted.tmpfs_files,
                        free_bytes=taken.free_bytes,
                    ),
                    self._limits,
                )
            self._failed = 0
        except OSError as error:  # it is ending, as a rule
            self._failed += 1
            if self._failed == _FAILURES:
                self._breach = unwatchable(str(error))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._held[0], signal.SIGKILL)
        with contextlib.suppress(OSError):  # it has ended, or is older than cgroup.kill; the signal does it too
            if self._cgroup is not None:
                self._cgroup.kill()
            self._census.kill(self._limits.processes)

    def _give_back(self) -> None:
        self._census.close()
        while self._held:
            os.close(self._held.pop())
        if self._cgroup is not None:
            self._cgroup.remove()
