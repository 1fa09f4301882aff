"""Ends a sandbox whose programs together go over a limit, from a thread outside it. Linux.

It is a thread because nobody runs the event loop between two runs, while what they started in the background runs on.
It keeps itself busy for a fiftieth of a processor at most, unless the disk fills.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from agent_runtime.sandbox.census import Census
from agent_runtime.sandbox.cgroup import Cgroup
from agent_runtime.sandbox.consumption import Consumption
from agent_runtime.sandbox.limits import Breach, ResourceUsage, breach, broken, fitted, unwatchable
from agent_runtime.sandbox.protocol import SandboxLimits

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
