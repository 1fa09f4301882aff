"""Wait for a condition with a deadline; no test sleeps and hopes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")

_PAUSE, _LONGER, _LONGEST = 0.005, 1.3, 0.05


async def eventually(probe: Callable[[], Awaitable[T | None]] | Callable[[], T | None], *, within: float = 30.0) -> T:
    """Ask `probe` until it answers something true, and return that.

    Raises:
        AssertionError: it never did within `within` seconds.
    """
    deadline, pause = time.monotonic() + within, _PAUSE
    while True:
        answer: Any = probe()
        value: T | None = await answer if isawaitable(answer) else answer
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {within} s"
        await asyncio.sleep(pause)
        pause = min(pause * _LONGER, _LONGEST)  # many tests at once wait for the processor that asking takes


def until(probe: Callable[[], T | None], *, within: float = 30.0) -> T:
    """The same for code without an event loop, which would hold descriptors of its own.

    Raises:
        AssertionError: it never did within `within` seconds.
    """
    deadline, pause = time.monotonic() + within, _PAUSE
    while not (value := probe()):
        assert time.monotonic() < deadline, f"still {value!r} after {within} s"
        time.sleep(pause)
        pause = min(pause * _LONGER, _LONGEST)
    return value
