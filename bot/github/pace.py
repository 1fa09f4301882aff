"""Writes of one installation go one by one, with a pause between, whichever of its jobs they are for.

https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#pause-between-mutative-requests
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Pace:
    """Whose turn it is to write; shared by all clients of one installation. Who waits takes up no thread.

    Args:
        seconds: between the end of one write and the beginning of the next.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other writes and the pause is over, then hold the turn."""
        async with self._lock:
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
            try:
                yield
            finally:
                self._free_at = time.monotonic() + self._seconds


class Paces:
    """The pace of every installation that a process works for.

    Args:
        seconds: see `Pace`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._by_installation: dict[int, Pace] = {}

    def of(self, installation: int) -> Pace:
        """The same one for the same installation."""
        return self._by_installation.setdefault(installation, Pace(self._seconds))
