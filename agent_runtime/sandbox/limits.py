"""Compare the use of all programs of one sandbox with its limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
