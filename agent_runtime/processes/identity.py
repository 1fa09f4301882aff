"""Tell a process from every other one that has, had or will have its number."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_STATE, _START = 0, 19
_DEAD_STATES = frozenset("ZXx")


def machine() -> str:
    """Within which process ids can be compared: this boot of the system and this process namespace.

    Two words; empty where the system does not tell.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def started(pid: int) -> str:
    """When a process was started, in the kernel's ticks; empty when it is gone. See proc_pid_stat(5)."""
    with suppress(OSError):
        # The second field, in parentheses, is the program's name and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
        return "" if fields[_STATE] in _DEAD_STATES else fields[_START]
    return ""
