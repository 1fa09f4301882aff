"""Kill a sandbox whose programs exceed a limit together. Linux.

A `Watcher` thread compares a `ProcessMonitor` and a `DiskUse` with the limits, with at most 2 % of a processor unless
the disk fills. A `Cgroup` bounds memory and processes where the system delegates one.
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

_COUNT_SECONDS = 0.05
"""Between process counts; short, to stop a fork bomb early."""

_COUNTS_PER_MEASUREMENT = 5
"""Process counts for each full measurement."""

_MAX_FAILURES = 4
"""Failed measurements in a row before the sandbox is killed."""


class Watcher:
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
        """Start to watch a sandbox, given descriptors of its root and first process (pidfd_open(2))."""
        self._started = time.monotonic()
        self._limits = fit_to_machine(limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        self._cgroup = cgroup
        self._guard = guard
        self._breach: Breach | None = None
        self._failures = 0
        self._monitor = ProcessMonitor(root, tmpfs)
        self._descriptors = [os.dup(first)]
        try:
            self._descriptors.append(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._disk = DiskUse(self._descriptors[1], self._monitor, self._limits)
        except BaseException:  # any error: no thread watches that would close them
            self._release()
            raise
        # Nothing that it holds refers to the object that waits for the end of the sandbox.
        threading.Thread(target=self._watch, name="sandbox watcher", daemon=True).start()

    def verdict(self) -> Breach | None:
        """Return the limit for which the sandbox was killed, or None."""
        if self._breach is None and self._cgroup is not None and self._cgroup.has_oom_kill():
            return describe_breach("memory", self._limits)
        return self._breach

    def _watch(self) -> None:
        ended = select.poll()
        ended.register(self._descriptors[0], select.POLLIN)
        turn = 0
        try:
            while not ended.poll(_COUNT_SECONDS * 1000 if turn else 0):
                if self._breach is None:
                    self._measure(whole=turn % _COUNTS_PER_MEASUREMENT == 0 or self._disk.is_urgent)
                if self._breach is not None:
                    self._kill()
                turn += 1
        finally:
            self._kill()  # it has ended, or nobody watches it any more
            self._breach = self.verdict()
            self._release()

    def _measure(self, *, whole: bool) -> None:
        try:
            self._breach = find_breach(
                ResourceUsage(processes=self._monitor.count_processes(self._limits.processes)), self._limits
            )
            if self._guard is not None and whole:
                self._guard.patrol()
            if self._breach is None and whole:
                limits, disk = self._limits, self._disk
                use = self._monitor.measure(memory_limit=limits.memory_bytes, process_limit=limits.processes)
                memory, cpu = use.memory_bytes, use.cpu_seconds
                if self._cgroup is not None:
                    # The kernel bounds its memory by itself; what is measured here would count shared memory too often.
                    memory, cpu = 0, self._cgroup.cpu_seconds()
                disk.measure(cpu_seconds=cpu, memory_bytes=memory)
                self._breach = find_breach(
                    ResourceUsage(
                        memory_bytes=memory + (disk.memory_bytes if self._cgroup is None else 0),
                        processes=use.processes,
                        cpu_seconds=cpu,
                        seconds=time.monotonic() - self._started,
                        disk_bytes=disk.disk_bytes,
                        files=disk.files + use.tmpfs_files,
                        free_bytes=disk.free_bytes,
                    ),
                    self._limits,
                )
            self._failures = 0
        except OSError as error:  # it is ending, as a rule
            self._failures += 1
            if self._failures == _MAX_FAILURES:
                self._breach = measurement_breach(str(error))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptors[0], signal.SIGKILL)
        with contextlib.suppress(OSError):  # it has ended, or is older than cgroup.kill; the signal does it too
            if self._cgroup is not None:
                self._cgroup.kill()
            self._monitor.kill(self._limits.processes)

    def _release(self) -> None:
        self._monitor.close()
        while self._descriptors:
            os.close(self._descriptors.pop())
        if self._cgroup is not None:
            self._cgroup.remove()


_MACHINE_SHARE = 3 / 4
"""Maximum share of the machine's memory; a higher limit would never trigger."""

_UNSEEN_PROCESSES = 2
"""Processes of bubblewrap itself, which only the kernel's limit counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """Current and accumulated resources of one sandbox.

    Attributes:
        processes: with threads.
        cpu_seconds: of ended processes, too.
        disk_bytes: written to the workspace.
        files: changed in the workspace, or in tmpfs.
    """

    memory_bytes: int = 0
    processes: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    disk_bytes: int = 0
    files: int = 0
    free_bytes: int | None = None


def find_breach(usage: ResourceUsage, limits: SandboxLimits) -> Breach | None:
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
    return next((describe_breach(name, limits) for name, is_over in over.items() if is_over), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """An exceeded limit. `str` gives name and value: `memory 2 GiB`."""

    limit: str
    bound: str
    advice: str

    @override
    def __str__(self) -> str:
        return f"{self.limit} {self.bound}"

    def message(self) -> str:
        return (
            f"limit: {self}; all programs of all terminals were killed, and files outside the workspace are gone. "
            f"{self.advice}"
        )


def describe_breach(limit: str, limits: SandboxLimits) -> Breach:
    bound, advice = {
        "processes": (f"{limits.processes:,}", f"{_TOTAL_ADVICE}, and threads: start fewer at once."),
        "memory": (
            format_bytes(limits.memory_bytes),
            f"{_TOTAL_ADVICE}, and files in /tmp: use fewer workers, or less data.",
        ),
        "processor time": (format_seconds(limits.cpu_seconds), f"{_TOTAL_ADVICE}: run less at a time."),
        "time": (format_seconds(limits.seconds), "It counts from the first command in a terminal."),
        "disk": (format_bytes(limits.disk_bytes), _CLEANUP_ADVICE),
        "files": (f"{limits.files:,}", _CLEANUP_ADVICE),
        "free disk space of the machine": (format_bytes(limits.free_bytes), _CLEANUP_ADVICE),
    }[limit]
    return Breach(limit=limit, bound=bound, advice=advice)


_TOTAL_ADVICE = "It counts all programs together, those in the background too"

_CLEANUP_ADVICE = "What was written to the workspace is still there: delete what is not needed."


def measurement_breach(error: str) -> Breach:
    return Breach(limit="measuring failed:", bound=error, advice="It was ended to be safe; try again.")


def fit_to_machine(limits: SandboxLimits, machine_bytes: int) -> SandboxLimits:
    """Cap the memory limit to a share of the machine's memory."""
    return replace(limits, memory_bytes=min(limits.memory_bytes, int(machine_bytes * _MACHINE_SHARE)))


def format_bytes(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"


def format_seconds(count: float) -> str:
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
"""Memory without a file in `/proc/[pid]/smaps_rollup`, in KiB; shared pages are divided by their users."""

_PAUSE_FACTOR = 10
"""Pause after an exact measurement, as a multiple of its duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Resources of a sandbox's processes; `memory_bytes` is an upper bound, exact to a few pages above the limit."""

    processes: int
    cpu_seconds: float
    memory_bytes: int
    tmpfs_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlinkedFiles:
    """Open files without a directory entry; partial if processes hide theirs (`PR_SET_DUMPABLE` in prctl(2))."""

    disk_bytes: int = 0
    memory_bytes: int = 0
    is_partial: bool = False


class ProcessMonitor:
    """Measures a sandbox's processes from outside, in one thread.

    Uses the sandbox's own `/proc`; readable since this process owns the user namespace.
    """

    def __init__(self, root: int, tmpfs: Sequence[str]) -> None:
        """Open the sandbox's directories, given a descriptor of its root."""
        self._descriptors: list[int] = []
        try:
            self._proc = self._open("proc", os.O_RDONLY, root)
            self._tmpfs = [self._open(place.lstrip("/"), os.O_PATH, root) for place in tmpfs]
            self._devices = frozenset(os.fstat(descriptor).st_dev for descriptor in self._tmpfs)
        except BaseException:  # any error: no other code knows of the descriptors
            self.close()
            raise
        self._times: dict[tuple[str, bytes], tuple[int, int]] = {}
        self._lost_ticks = 0
        self._exact_bytes = 0
        self._next_exact = 0.0

    def close(self) -> None:
        """Close the descriptors, which keep tmpfs in memory; idempotent."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def count_processes(self, limit: int) -> int:
        """Count processes without threads up to `limit`, at low cost."""
        return len(self._list_pids(limit))

    def kill(self, limit: int) -> None:
        """Kill up to `limit` processes directly; their end through the first process may be slow."""
        for pid in self._list_pids(limit):
            with contextlib.suppress(OSError):  # it ended meanwhile
                process = os.open(pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
                try:
                    signal.pidfd_send_signal(process, signal.SIGKILL)  # takes such a descriptor as well
                finally:
                    os.close(process)

    def measure(self, *, memory_limit: int, process_limit: int) -> ProcessUse:
        """Measure up to `process_limit` processes."""
        pids = self._list_pids(process_limit)
        processes = resident = 0
        times: dict[tuple[str, bytes], tuple[int, int]] = {}
        for pid in pids:
            # The name in parentheses may hold anything.
            if fields := self._read(f"{pid}/stat").rpartition(b")")[2].split():
                times[pid, fields[_START]] = (sum(map(int, fields[_OWN_TIMES])), sum(map(int, fields[_CHILDREN])))
                processes += max(1, int(fields[_THREADS]))
                resident += int(fields[_RESIDENT])
        tmpfs_bytes = files = 0
        for place in self._tmpfs:
            status = os.statvfs(place)
            tmpfs_bytes += (status.f_blocks - status.f_bfree) * status.f_frsize
            files += status.f_files - status.f_ffree
        # A process that ends leaves its ticks to the process that waits for it. Where nobody waits they are lost to the
        # kernel's figures: then what was seen of them last is kept.
        ended = sum(sum(self._times[process]) for process in self._times.keys() - times.keys())
        inherited = sum(children - self._times.get(process, (0, 0))[1] for process, (_, children) in times.items())
        self._lost_ticks += max(0, ended - inherited)
        self._times = times
        return ProcessUse(
            processes=processes,
            cpu_seconds=(self._lost_ticks + sum(map(sum, times.values()))) / _TICKS,
            memory_bytes=self._measure_memory(pids, resident * _PAGE, tmpfs_bytes, memory_limit),
            tmpfs_files=files,
        )

    def find_unlinked(self, device: int, *, process_limit: int) -> Generator[None, None, UnlinkedFiles]:
        """Find unlinked open files, yielding after every process; `device` is the workspace's."""
        counted: set[tuple[int, int]] = set()
        disk = memory = 0
        is_partial = False
        for pid in self._list_pids(process_limit):
            statuses = self._open_files(pid)
            is_partial |= statuses is None
            for status in statuses or ():
                nameless = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
                if not nameless or status.st_dev in self._devices or (status.st_dev, status.st_ino) in counted:
                    continue
                counted.add((status.st_dev, status.st_ino))
                if status.st_dev == device:
                    disk += status.st_blocks * _BLOCK
                else:
                    memory += status.st_blocks * _BLOCK
            yield
        return UnlinkedFiles(disk_bytes=disk, memory_bytes=memory, is_partial=is_partial)

    def _measure_memory(self, pids: Sequence[str], resident: int, tmpfs_bytes: int, limit: int) -> int:
        """Return an upper bound of memory, or above the limit the slow, exact sum.

        The bound counts shared pages for each process, and all swap in use.
        """
        swap, unused = read_meminfo("SwapTotal", "SwapFree")
        bound = resident + tmpfs_bytes + swap - unused
        if bound <= limit:
            return bound
        start = time.monotonic()
        if start >= self._next_exact:
            self._exact_bytes = sum(map(self._private_bytes, pids)) + tmpfs_bytes
            now = time.monotonic()
            self._next_exact = now + (now - start) * _PAUSE_FACTOR
        return self._exact_bytes

    def _list_pids(self, limit: int) -> list[str]:
        # A whole list would be as long as what multiplies meanwhile makes it, and never come to its end.
        with os.scandir(self._proc) as entries:
            return list(itertools.islice((entry.name for entry in entries if entry.name.isdecimal()), limit))

    def _private_bytes(self, pid: str) -> int:
        lines = self._read(f"{pid}/smaps_rollup").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(_PRIVATE)) * 1024

    def _open_files(self, pid: str) -> list[os.stat_result] | None:
        """Return the open files of a process; None without permission."""
        statuses = []
        try:
            directory = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except PermissionError:
            return None
        except OSError:  # it ended meanwhile
            return []
        try:
            for name in os.listdir(directory):  # noqa: PTH208 - a descriptor has no Path
                try:
                    statuses.append(os.stat(name, dir_fd=directory))
                except OSError:  # closed meanwhile
                    continue
        except OSError:  # it ended meanwhile
            return statuses
        finally:
            os.close(directory)
        return statuses

    def _read(self, name: str) -> bytes:
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

    def _open(self, path: str, mode: int, root: int) -> int:
        descriptor = os.open(path, mode | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=root)
        self._descriptors.append(descriptor)
        return descriptor


def read_meminfo(*names: str) -> list[int]:
    """Return values of `/proc/meminfo` in bytes; 0 for unknown names."""
    words = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    values = {name.rstrip(":"): int(count) * 1024 for name, count, *_ in words}
    return [values.get(name, 0) for name in names]


_CALM_SECONDS, _URGENT_SECONDS = 0.005, 0.1
"""How long one look may go on with a walk."""

_WALK_PAUSE_SECONDS = 2.0
"""Pause between walks without urgency."""


class DiskUse:
    """A sandbox's disk use, measured at a bounded cost in one thread.

    Walks the workspace when the file system's free space, a cheap but shared figure, suggests that a limit is near;
    else now and then if programs ran.
    """

    def __init__(self, workspace: int, monitor: ProcessMonitor, limits: SandboxLimits) -> None:
        """Start now; older files do not count."""
        self._workspace = workspace
        self._device = os.fstat(workspace).st_dev
        self._monitor = monitor
        self._limits = limits
        self._since = time.time_ns()
        self._growth = WorkspaceGrowth()
        self._unlinked = UnlinkedFiles()
        self.is_urgent = False
        self._walk: Generator[None, None, tuple[WorkspaceGrowth, UnlinkedFiles]] | None = None
        self._next_walk = 0.0
        self._cpu_seconds = -1.0
        self.free_bytes = 0
        self._now = self._first = self._walk_start = self._last_walk = self._measure_free()

    @property
    def disk_bytes(self) -> int:
        """Bytes written; if some are hidden, at least the disk's loss."""
        visible = self._growth.disk_bytes + self._unlinked.disk_bytes
        is_partial = self._growth.is_partial or self._unlinked.is_partial
        return max(visible, self._first.disk_bytes - self._now.disk_bytes) if is_partial else visible

    @property
    def files(self) -> int:
        visible = self._growth.files
        return max(visible, self._first.files - self._now.files) if self._growth.is_partial else visible

    @property
    def memory_bytes(self) -> int:
        """Bytes of unlinked files; if some are hidden, at least the growth of shared memory."""
        visible = self._unlinked.memory_bytes
        return max(visible, self._now.shared_bytes - self._first.shared_bytes) if self._unlinked.is_partial else visible

    def measure(self, *, cpu_seconds: float, memory_bytes: int) -> None:
        """Measure free space, and continue or start a walk if needed. Unchanged `cpu_seconds` mean no writes."""
        self._now = self._measure_free()
        # Whether half of what was left of a limit may be gone since the last walk.
        limits, last, now = self._limits, self._last_walk, self._now
        self.is_urgent = (
            2 * (last.disk_bytes - now.disk_bytes) >= limits.disk_bytes - self.disk_bytes
            or 2 * (last.files - now.files) >= limits.files - self.files
            or 2 * (now.shared_bytes - last.shared_bytes) >= limits.memory_bytes - memory_bytes
        )
        if self._walk is None:
            due = time.monotonic() >= self._next_walk and cpu_seconds != self._cpu_seconds
            if not self.is_urgent and not due:
                return
            self._walk, self._walk_start, self._cpu_seconds = self._walk_workspace(), self._now, cpu_seconds
        deadline = time.monotonic() + (_URGENT_SECONDS if self.is_urgent else _CALM_SECONDS)
        try:
            while time.monotonic() < deadline:
                next(self._walk)
        except StopIteration as end:
            self._growth, self._unlinked = end.value
            self._walk, self._last_walk = None, self._walk_start
            self._next_walk = time.monotonic() + _WALK_PAUSE_SECONDS
        except OSError:
            self._walk = None  # the next one starts from the beginning
            raise

    def _walk_workspace(self) -> Generator[None, None, tuple[WorkspaceGrowth, UnlinkedFiles]]:
        growth = yield from find_growth(self._workspace, self._since)
        return growth, (yield from self._monitor.find_unlinked(self._device, process_limit=self._limits.processes))

    def _measure_free(self) -> _FreeSpace:
        status = os.statvfs(self._workspace)
        self.free_bytes = status.f_bavail * status.f_frsize
        return _FreeSpace(
            disk_bytes=status.f_bfree * status.f_frsize,
            files=status.f_ffree,
            shared_bytes=read_meminfo("Shmem")[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FreeSpace:
    disk_bytes: int
    files: int
    shared_bytes: int


_SLICE = 64

_MAX_DEPTH = 100
"""Nested directories, each open during the walk below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceGrowth:
    """Files changed since a sandbox started; partial if directories are too deep or unreadable."""

    disk_bytes: int = 0
    files: int = 0
    is_partial: bool = False


def find_growth(root: int, since: int) -> Generator[None, None, WorkspaceGrowth]:
    """Find files changed since a time, yielding every few entries.

    Uses `st_ctime` (inode(7)), which programs cannot set. Opens directories relative to each other without links, so
    replacing one leads nowhere.
    """
    linked: set[int] = set()
    disk = files = 0
    is_partial = False
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
                is_partial |= not _enter(path, entry.name)
            if status.st_ctime_ns >= since and status.st_ino not in linked:
                disk += status.st_blocks * _BLOCK
                files += 1
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    linked.add(status.st_ino)
    finally:
        for directory in path:
            directory.close()
    return WorkspaceGrowth(disk_bytes=disk, files=files, is_partial=is_partial)


def _enter(path: list[_Directory], name: str) -> bool:
    """Enter a directory; return False if its contents cannot be counted."""
    if len(path) >= _MAX_DEPTH:
        return False
    try:
        path.append(_Directory(name, path[-1].descriptor))
    except PermissionError:
        return False
    except OSError:  # removed or replaced meanwhile
        return True
    return True


class _Directory:
    def __init__(self, name: str, parent: int) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.descriptor = os.open(name, flags, dir_fd=parent)
        try:
            self._entries = os.scandir(self.descriptor)
        except BaseException:  # any error: no other code knows of the descriptor
            os.close(self.descriptor)
            raise

    def next(self) -> os.DirEntry[str] | None:
        try:
            return next(self._entries, None)
        except OSError:  # the directory was removed meanwhile
            return None

    def close(self) -> None:
        self._entries.close()
        os.close(self.descriptor)


_MOUNT = Path("/sys/fs/cgroup")

_OWN_CGROUP = Path("/proc/self/cgroup")

_CONTROLLERS = ("cpu", "memory", "pids")

_PREFIX = "codepilot-"

_EMPTY_SECONDS = 2.0

_numbers = itertools.count(1)


def create_cgroup(limits: SandboxLimits) -> Cgroup | None:
    part = _delegated_tree()
    if part is None:
        return None
    try:
        return Cgroup(part, limits)
    except OSError:  # taken back since, or a file that this kernel lacks: the watcher measures instead
        return None


@functools.cache
def _delegated_tree() -> Path | None:
    return find_delegated_tree()


def find_delegated_tree(mount: Path = _MOUNT, own: Path = _OWN_CGROUP) -> Path | None:
    """Return the cgroup below which this process may create groups, or None."""
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::/"))
        part = (mount / line.removeprefix("0::/")).parent
        # Above a group at the top there is nothing of ours; and a part with processes in it can have no controllers.
        if line == "0::/" or not os.access(part, os.W_OK) or (part / "cgroup.procs").read_text().strip():
            return None
        controllers = (part / "cgroup.controllers").read_text().split()
        if any(controller not in controllers for controller in _CONTROLLERS):
            return None
        (part / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in _CONTROLLERS))
    except (OSError, StopIteration):  # no cgroup v2, or not ours to change: the watcher measures instead
        return None
    # Remove the groups of processes that were killed; those in use refuse.
    for leftover in part.glob(f"{_PREFIX}*"):
        _remove_group(leftover)
    return part


class Cgroup:
    """A cgroup v2 with limits, entered by writing `0` to `entrance` before the sandbox starts.

    systemd delegates with `Delegate=yes` and `DelegateSubgroup=bot`: a group with processes cannot have controllers
    (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    """

    def __init__(self, part: Path, limits: SandboxLimits) -> None:
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
        """Close the entrance; idempotent."""
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far."""
        return self._value("cpu.stat", "usage_usec") / 1e6

    def has_oom_kill(self) -> bool:
        try:
            return self._value("memory.events", "oom_kill") > 0
        except OSError:  # it is gone, or was never made
            return False

    def kill(self) -> None:
        """Kill all its processes; raise OSError before Linux 5.14."""
        self._write("cgroup.kill", 1)

    def remove(self) -> None:
        """Remove the group; if processes remain, `find_delegated_tree` does later."""
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
