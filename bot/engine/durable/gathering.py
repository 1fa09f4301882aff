"""Deal at once with all that comes while the last of it is dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")

_MOST_AT_ONCE = 100


class Gathering(Generic[A, R]):
    """Gathers items while its thread is busy.

    Waking a thread takes longer than most of what is done for an item. So the thread is called once for all that
    wait, and it calls each event loop once for all that it has dealt with.

    Args:
        threads: with one thread, or items are dealt with out of their order.
        deal: called in a thread with up to 100 items. It gives back what becomes of each: a result, or the error that
            its caller gets. What it raises, all of them get.
    """

    def __init__(self, threads: Executor, deal: Callable[[Sequence[A]], Sequence[R | Exception]]) -> None:
        self._threads, self._deal = threads, deal
        self._lock = Lock()
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []

    async def put(self, item: A) -> R:
        """Have an item dealt with, and wait for that."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._waiting:
                self._threads.submit(self._deal_with_waiting)
            self._waiting.append((item, done))
        return await done

    def _deal_with_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _MOST_AT_ONCE):
            # Nobody waits any more for what was cancelled.
            begun = [each for each in waiting[first : first + _MOST_AT_ONCE] if not each[1].cancelled()]
            if begun:
                self._deal_with(begun)

    def _deal_with(self, begun: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        ended: Sequence[R | BaseException]
        try:
            ended = self._deal([item for item, _ in begun])
        except BaseException as error:  # noqa: BLE001 - it is for who waits
            ended = [error] * len(begun)
        told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[R], R | BaseException]]] = {}
        for (_, done), result in zip(begun, ended, strict=True):
            told.setdefault(done.get_loop(), []).append((done, result))
        for loop, results in told.items():
            with suppress(RuntimeError):  # the loop was closed, and with it went who waits
                loop.call_soon_threadsafe(_tell, results)


def _tell(results: Sequence[tuple[asyncio.Future[R], R | BaseException]]) -> None:
    for done, result in results:
        if done.cancelled():
            continue
        if isinstance(result, StopIteration):  # no future takes it, and those after it would wait for ever
            done.set_exception(RuntimeError(f"it raised {result!r}"))
        elif isinstance(result, BaseException):
            done.set_exception(result)
        else:
            done.set_result(result)
