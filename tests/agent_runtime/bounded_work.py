"""Functions that the tests run in worker processes."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from agent_runtime.core.errors import ToolError


def add(one: int, other: int) -> int:
    return one + other


def same(value: object) -> object:
    return value


def backtrack(text: str) -> bool:
    """Hold the interpreter's lock for longer than the universe lasts."""
    return re.fullmatch("(a+)+b", text) is not None


def hoard(size: int) -> int:
    """Take memory; a negative size is taken in pieces of a megabyte."""
    return len(bytearray(size)) if size >= 0 else len([bytearray(1024**2) for _ in range(-size // 1024**2)])


def die(signal: int) -> None:
    os.kill(os.getpid(), signal)


def refuse() -> None:
    raise ToolError("no such thing", kind="ValueError")


def fail() -> None:
    raise LookupError("a fault of its own")


def identity() -> int:
    return os.getpid()


def clock_and_random() -> tuple[int, dict[str, str], list[str], int]:
    """Its process id, its environment, what its descriptors are, and whether others of its user may look into it."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that reads the directory
            links.append(str(descriptor.readlink()))
    dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    return os.getpid(), dict(os.environ), links, dumpable


def write(path: str) -> int:
    return Path(path).write_bytes(b"x")
