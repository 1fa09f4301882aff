"""Deal at once with all that comes while the last of it is dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")

_MOST_AT_ONCE = 100


class Gathering(Generic[A, R]):
    """Gathers items while its thread is busy.

    Args:
        threads: with one thread, or items are dealt with out of their order.
        deal: called in a thread with up to 100 items and the futures that their callers wait for. It ends each of
            them; what it raises ends all.
    """

    def __init__(self, threads: Executor, deal: Callable[[list[tuple[A, Future[R]]]], None]) -> None:
        self._threads, self._deal = threads, deal
        self._waiting = SimpleQueue[tuple[A, Future[R]]]()

    async def put(self, item: A) -> R:
        """Have an item dealt with, and wait for that."""
        done = Future[R]()
        self._waiting.put((item, done))
        self._threads.submit(self._deal_with_waiting)
        return await asyncio.wrap_future(done)

    def _deal_with_waiting(self) -> None:
        batch: list[tuple[A, Future[R]]] = []
        with suppress(Empty):
            while len(batch) < _MOST_AT_ONCE:
                batch.append(self._waiting.get_nowait())
        begun = [(item, done) for item, done in batch if done.set_running_or_notify_cancel()]
        if not begun:  # an earlier call has taken them along
            return
        try:
            self._deal(begun)
        except BaseException as error:  # noqa: BLE001 - it is for who waits
            for _, done in begun:
                if not done.done():
                    done.set_exception(error)
