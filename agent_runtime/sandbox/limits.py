"""End a sandbox whose programs together go over a limit. Linux.

A `Watcher` measures from a thread outside the sandbox. It is a thread because nobody runs the event loop between two
runs, while background programs run on. It keeps itself busy for a fiftieth of a processor at most, unless the disk
fills. It asks a `Census` of processes and memory and a `DiskUse` of the workspace, and compares them with the limits.
Where the system delegates a part of its tree of control groups, a `Cgroup` lets the kernel itself bound memory and
processes.
"""

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
from agent_runtime.sandbox.repositories import RepositoryGuard

_GLANCE_SECONDS = 0.05
"""Between two times that processes are counted: what doubles itself must not have the time to do it often."""

_GLANCES = 5
"""For one look at all the rest; each time when a limit may be near."""

_FAILURES = 4
"""Looks in a row that may fail before a sandbox that nobody can watch is ended."""


class Watcher:
    """A thread that watches one sandbox until it ends, no matter who ends it."""

    def __init__(
        self,
        *,
        root: int,
        first: int,
        workspace: Path,
        tmpfs: Sequence[str],
        limits: SandboxLimits,
        cgroup: Cgroup | None = None,
        guard: RepositoryGuard | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            root: descriptor of the sandbox's root directory.
            first: descriptor of its first process, whose end is the end of all others (pidfd_open(2)).
            workspace: where it writes.
            tmpfs: absolute paths inside of the file systems that live in memory.
            limits: what it may use.
            cgroup: the group it is in, which is removed at its end; None where there are no groups for us.
            guard: of the workspace's repositories, which patrols now and then.

        Raises:
            OSError: the sandbox ended already.
        """
        self._started = time.monotonic()
        self._limits = fit_to_machine(limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        self._cgroup = cgroup
        self._guard = guard
        self._breach: Breach | None = None
        self._failed = 0
        self._census = Census(root, tmpfs)
        self._held = [os.dup(first)]
        try:
            self._held.append(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._disk = DiskUse(self._held[1], self._census, self._limits)
        except BaseException:  # any error: no thread watches that would close them
            self._release()
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
                    self._look(whole=turn % _GLANCES == 0 or self._disk.urgent)
                if self._breach is not None:
                    self._kill()
                turn += 1
        finally:
            self._kill()  # it has ended, or nobody watches it any more
            self._breach = self.verdict()
            self._release()

    def _look(self, *, whole: bool) -> None:
        try:
            self._breach = exceeded(
                ResourceUsage(processes=self._census.count_processes(self._limits.processes)), self._limits
            )
            if self._guard is not None and whole:
                self._guard.patrol()
            if self._breach is None and whole:
                limits, disk = self._limits, self._disk
                counted = self._census.count(memory_limit=limits.memory_bytes, process_limit=limits.processes)
                memory, cpu = counted.memory_bytes, counted.cpu_seconds
                if self._cgroup is not None:
                    # The kernel bounds its memory by itself; what is measured here would count shared memory too often.
                    memory, cpu = 0, self._cgroup.cpu_seconds()
                disk.look(cpu_seconds=cpu, memory_bytes=memory)
                self._breach = exceeded(
                    ResourceUsage(
                        memory_bytes=memory + (disk.memory_bytes if self._cgroup is None else 0),
                        processes=counted.processes,
                        cpu_seconds=cpu,
                        seconds=time.monotonic() - self._started,
                        disk_bytes=disk.disk_bytes,
                        files=disk.files + counted.tmpfs_files,
                        free_bytes=disk.free_bytes,
                    ),
                    self._limits,
                )
            self._failed = 0
        except OSError as error:  # it is ending, as a rule
            self._failed += 1
            if self._failed == _FAILURES:
                self._breach = measuring_failure(str(error))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._held[0], signal.SIGKILL)
        with contextlib.suppress(OSError):  # it has ended, or is older than cgroup.kill; the signal does it too
            if self._cgroup is not None:
                self._cgroup.kill()
            self._census.kill(self._limits.processes)

    def _release(self) -> None:
        self._census.close()
        while self._held:
            os.close(self._held.pop())
        if self._cgroup is not None:
            self._cgroup.remove()


_MACHINE_SHARE = 3 / 4
"""Share of the machine's memory beyond which a greater limit would never act: the machine would be out of it first."""

_UNSEEN_PROCESSES = 2
"""The kernel refuses processes from the limit on, and counts those of bubblewrap itself: we see a few less then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """The resources that one sandbox uses now, or used up so far.

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


def exceeded(usage: ResourceUsage, limits: SandboxLimits) -> Breach | None:
    """Return the first limit that is exceeded, or None."""
    free = limits.free_bytes if usage.free_bytes is None else usage.free_bytes
    over = {
        "processes": usage.processes >= limits.processes - _UNSEEN_PROCESSES,
        "memory": usage.memory_bytes > limits.memory_bytes,
        "processor time": usage.cpu_seconds > limits.cpu_seconds,
        "time": usage.seconds > limits.seconds,
        "disk": usage.disk_bytes > limits.disk_bytes,
        "files": usage.files > limits.files,
        "free disk space of the machine": free < limits.free_bytes,
    }
    return next((breach(name, limits) for name, is_over in over.items() if is_over), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit that was gone over. As text it is the limit and its value: `memory 2 GiB`.

    Attributes:
        limit: its name.
        bound: its value, with its unit.
        advice: how to stay below it.
    """

    limit: str
    bound: str
    advice: str

    @override
    def __str__(self) -> str:
        """The limit and its value."""
        return f"{self.limit} {self.bound}"

    def message(self) -> str:
        """Return the text for the model: the limit, the consequence and the advice."""
        return (
            f"limit: {self}; all programs of all terminals were killed, and files outside the workspace are gone. "
            f"{self.advice}"
        )


def breach(limit: str, limits: SandboxLimits) -> Breach:
    """Return the breach of a limit."""
    bound, advice = {
        "processes": (f"{limits.processes:,}", f"{_TOGETHER}, and threads: start fewer at once."),
        "memory": (
            format_bytes(limits.memory_bytes),
            f"{_TOGETHER}, and files in /tmp: use fewer workers, or less data.",
        ),
        "processor time": (format_seconds(limits.cpu_seconds), f"{_TOGETHER}: run less at a time."),
        "time": (format_seconds(limits.seconds), "It counts from the first command in a terminal."),
        "disk": (format_bytes(limits.disk_bytes), _STILL_THERE),
        "files": (f"{limits.files:,}", _STILL_THERE),
        "free disk space of the machine": (format_bytes(limits.free_bytes), _STILL_THERE),
    }[limit]
    return Breach(limit=limit, bound=bound, advice=advice)


_TOGETHER = "It counts all programs together, those in the background too"

_STILL_THERE = "What was written to the workspace is still there: delete what is not needed."


def measuring_failure(error: str) -> Breach:
    """Return the breach of a sandbox whose use can no longer be measured."""
    return Breach(limit="measuring failed:", bound=error, advice="It was ended to be safe; try again.")


def fit_to_machine(limits: SandboxLimits, machine_bytes: int) -> SandboxLimits:
    """Return the limits on a machine with so much memory."""
    return replace(limits, memory_bytes=min(limits.memory_bytes, int(machine_bytes * _MACHINE_SHARE)))


def format_bytes(count: int) -> str:
    """Format a number of bytes: `2 GiB`, `1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"


def format_seconds(count: float) -> str:
    """Format a time: `90 s`, `2 h`."""
    for unit, factor in (("h", 3600), ("min", 60)):
        if count >= factor and count % factor == 0:
            return f"{count / factor:.0f} {unit}"
    return f"{count:g} s"


_PAGE = os.sysconf("SC_PAGE_SIZE")

_TICKS = os.sysconf("SC_CLK_TCK")

_BLOCK = 512

_READ = 1 << 14

_OWN_TIMES, _CHILDREN, _THREADS, _START, _RESIDENT = slice(11, 13), slice(13, 15), 17, 19, 21
"""Of `/proc/[pid]/stat`, counted behind the name: user and system time, the same of children waited for (proc(5))."""

_PRIVATE = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""Memory that is nobody's file: of `/proc/[pid]/smaps_rollup`, in KiB, with shared pages divided by their sharers."""

_REST = 10
"""Times as long as adding up took is rested before the next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """The resources of the processes of a sandbox at one moment.

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
class UnlinkedFiles:
    """Open files that no directory has any more.

    Attributes:
        disk_bytes: on the workspace's disk.
        memory_bytes: in memory (memfd_create(2)).
        blind: whether a process keeps its files from us (`PR_SET_DUMPABLE` in prctl(2)), which are not counted.
    """

    disk_bytes: int = 0
    memory_bytes: int = 0
    blind: bool = False


class Census:
    """A count of the processes of one sandbox from outside, over and over; used by one thread.

    A sandbox has a `/proc` of its own, which lists its processes and no others, so that a look costs what the sandbox
    has and not what the machine has. The process that started the sandbox may read all of it: it owns its user
    namespace.
    """

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
        except BaseException:  # any error: no other code knows of the descriptors
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

    def count_processes(self, limit: int) -> int:
        """Count the processes without their threads, up to `limit`. Costs next to nothing.

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

    def count(self, *, memory_limit: int, process_limit: int) -> ProcessUse:
        """Measure the use now; more than `process_limit` processes are not looked at one by one.

        Raises:
            OSError: the sandbox ended.
        """
        pids = self._pids(process_limit)
        processes = resident = 0
        times: dict[tuple[str, bytes], tuple[int, int]] = {}
        for pid in pids:
            # The name in parentheses may hold anything.
            if fields := self._read(f"{pid}/stat").rpartition(b")")[2].split():
                times[pid, fields[_START]] = (sum(map(int, fields[_OWN_TIMES])), sum(map(int, fields[_CHILDREN])))
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
        return ProcessUse(
            processes=processes,
            cpu_seconds=(self._lost + sum(map(sum, times.values()))) / _TICKS,
            memory_bytes=self._memory(pids, resident * _PAGE, filled, memory_limit),
            tmpfs_files=files,
        )

    def unlinked(self, device: int, *, process_limit: int) -> Generator[None, None, UnlinkedFiles]:
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
        return UnlinkedFiles(disk_bytes=disk, memory_bytes=memory, blind=blind)

    def _memory(self, pids: Sequence[str], resident: int, filled: int, limit: int) -> int:
        """No less than what is used: shared pages count for every process, and all that the machine swapped out for us.

        Only when that is too much it is looked at page by page, which is slow.
        """
        swap, unused = read_meminfo("SwapTotal", "SwapFree")
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
        """Return the open files of a process; None if it does not let us see them."""
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


def read_meminfo(*names: str) -> list[int]:
    """Bytes of the memory of the whole machine, by their names in `/proc/meminfo`; 0 for what it does not name.

    Raises:
        OSError: it cannot be read.
    """
    words = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    known = {name.rstrip(":"): int(count) * 1024 for name, count, *_ in words}
    return [known.get(name, 0) for name in names]


_CALM_SECONDS, _URGENT_SECONDS = 0.005, 0.1
"""How long one look may go on with a walk."""

_REST_SECONDS = 2.0
"""Between two walks of which nothing says that they are urgent."""


class DiskUse:
    """The use of the workspace's disk by one sandbox, measured at a bounded cost; used by one thread.

    Walking a workspace is slow, and asking its file system what is free is quick but counts everybody. So the quick
    question is asked at every look, and when its answer could mean that the limit is near, the walk is made at once;
    else now and then, and only when something ran in the sandbox since the last one.

    Attributes:
        free_bytes: left on the disk for ordinary users, at the last `look`.
        urgent: whether a limit may be near, so that the next look should come soon.
    """

    def __init__(self, workspace: int, census: Census, limits: SandboxLimits) -> None:
        """Begin now; older files do not count.

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
        self._growth = WorkspaceGrowth()
        self._unlinked = UnlinkedFiles()
        self.urgent = False
        self._walk: Generator[None, None, tuple[WorkspaceGrowth, UnlinkedFiles]] | None = None
        self._rested = 0.0
        self._cpu_seconds = -1.0
        self.free_bytes = 0
        self._now = self._first = self._begun = self._walked = self._free()

    @property
    def disk_bytes(self) -> int:
        """Bytes taken on the disk; all that the disk lost where they cannot be seen."""
        seen = self._growth.disk_bytes + self._unlinked.disk_bytes
        blind = self._growth.blind or self._unlinked.blind
        return max(seen, self._first.disk_bytes - self._now.disk_bytes) if blind else seen

    @property
    def files(self) -> int:
        """Files made or changed; all that were made on the disk where they cannot be seen."""
        seen = self._growth.files
        return max(seen, self._first.files - self._now.files) if self._growth.blind else seen

    @property
    def memory_bytes(self) -> int:
        """Bytes of files without a name; all by which shared memory grew where they cannot be seen."""
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

    def _survey(self) -> Generator[None, None, tuple[WorkspaceGrowth, UnlinkedFiles]]:
        growth = yield from find_growth(self._workspace, self._since)
        return growth, (yield from self._census.unlinked(self._device, process_limit=self._limits.processes))

    def _free(self) -> _Free:
        status = os.statvfs(self._workspace)
        self.free_bytes = status.f_bavail * status.f_frsize
        return _Free(
            disk_bytes=status.f_bfree * status.f_frsize,
            files=status.f_ffree,
            shared_bytes=read_meminfo("Shmem")[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Free:
    """The free bytes and files on the disk, and the used bytes of shared memory."""

    disk_bytes: int
    files: int
    shared_bytes: int


_SLICE = 64

_DEEPEST = 100
"""Directories below one another; each is held open while what is below it is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceGrowth:
    """The files that were made or changed since a sandbox started.

    Attributes:
        disk_bytes: that files made or changed since then take on the disk.
        files: how many these are; directories count.
        blind: whether there are directories that are too deep or that we may not read, whose contents are not counted.
    """

    disk_bytes: int = 0
    files: int = 0
    blind: bool = False


def find_growth(root: int, since: int) -> Generator[None, None, WorkspaceGrowth]:
    """Find the files that were made or changed since a time, by walking a directory; pauses after every few entries.

    A file counts when the kernel says so (`st_ctime` in inode(7), which nobody inside can set). So nothing has to be
    counted before the first command, and nothing is forgiven for having been quick.

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
                blind |= not _enter(path, entry.name)
            if status.st_ctime_ns >= since and status.st_ino not in linked:
                disk += status.st_blocks * _BLOCK
                files += 1
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    linked.add(status.st_ino)
    finally:
        for directory in path:
            directory.close()
    return WorkspaceGrowth(disk_bytes=disk, files=files, blind=blind)


def _enter(path: list[_Directory], name: str) -> bool:
    """Go down into a directory; return False if its contents cannot be counted."""
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
        except BaseException:  # any error: no other code knows of the descriptor
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


_MOUNT = Path("/sys/fs/cgroup")

_OWN = Path("/proc/self/cgroup")

_NEEDED = ("cpu", "memory", "pids")

_PREFIX = "codepilot-"

_EMPTY_SECONDS = 2.0

_numbers = itertools.count(1)


def group(limits: SandboxLimits) -> Cgroup | None:
    """Make a group for one sandbox; None if this process may make none."""
    part = _delegated_tree()
    if part is None:
        return None
    try:
        return Cgroup(part, limits)
    except OSError:  # taken back since, or a file that this kernel lacks: the watcher measures instead
        return None


@functools.cache
def _delegated_tree() -> Path | None:
    return delegated_tree()


def delegated_tree(mount: Path = _MOUNT, own: Path = _OWN) -> Path | None:
    """Return the part of the tree below which this process may make groups with limits; None if there is none.

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
        _remove_group(left)
    return part


class Cgroup:
    """A control group with limits (cgroup v2), which a process enters before it becomes the sandbox.

    There the kernel itself keeps memory and processes within bounds, whatever their kind, and counts processor time
    exactly. systemd hands a service its part with `Delegate=yes` and `DelegateSubgroup=bot`: the service then runs in a
    group of its own below the part, which leaves the part free for groups with limits beside it
    (https://docs.kernel.org/admin-guide/cgroup-v2.html, "Delegation" and "No Internal Process Constraint").

    Attributes:
        path: its directory.
        entrance: descriptor of the file to write `0` to in order to enter; closed by `close_entrance`.
    """

    def __init__(self, part: Path, limits: SandboxLimits) -> None:
        """Make one below `part`, which `delegated_tree` gave.

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
        except BaseException:  # any error: no other code knows of the group
            self.remove()
            raise

    def close_entrance(self) -> None:
        """Close the entrance: no other process will enter; idempotent."""
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
        """Remove it; one that does not become empty is left for the next `delegated_tree`."""
        deadline = time.monotonic() + _EMPTY_SECONDS
        while not _remove_group(self.path) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _value(self, file: str, key: str) -> int:
        lines = (line.split() for line in (self.path / file).read_text().splitlines())
        return int(next((words[1] for words in lines if words[0] == key), "0"))

    def _write(self, file: str, value: int) -> None:
        (self.path / file).write_text(str(value))


def _remove_group(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # not empty yet
        return False
    return True
