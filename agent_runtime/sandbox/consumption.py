"""Measure a sandbox's use of the workspace's disk, at a bounded cost. Linux.

Walking a workspace is slow, and asking its file system what is free is quick but counts everybody. So the quick
question is asked at every look, and when its answer could mean that the limit is near, the walk is made at once; else
now and then, and only when something ran in the sandbox since the last one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from dataclasses import dataclass

from agent_runtime.sandbox.census import Census, Unlinked, of_machine
from agent_runtime.sandbox.growth import Growth, walk
from agent_runtime.sandbox.protocol import SandboxLimits

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
