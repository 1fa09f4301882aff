"""A control group for one sandbox, where the system delegates a part of its tree (cgroup v2).

There the kernel itself keeps memory and processes within bounds, whatever their kind, and counts processor time
exactly. systemd hands a service its part with `Delegate=yes` and `DelegateSubgroup=bot`: the service then runs in a
group of its own below the part, which leaves the part free for groups with limits beside it
(https://docs.kernel.org/admin-guide/cgroup-v2.html, "Delegation" and "No Internal Process Constraint").
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from pathlib import Path

from agent_runtime.sandbox.protocol import SandboxLimits

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
