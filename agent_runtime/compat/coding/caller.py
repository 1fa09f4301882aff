"""Calls from a running coroutine back into the thread that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from agent_runtime.processes.loop_thread import LoopThread

T = TypeVar("T")


class CallerThread:
    """The thread in which an embedder waits: its callbacks run there, where its own objects belong.

    A database connection, for one, may be used by one thread only; and who types on the terminal must be heard there.
    """

    def __init__(self, loop: LoopThread) -> None:
        """Run coroutines on `loop`."""
        self._loop = loop
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._interrupted = False

    def see(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end, and make its calls; what one of them raises stops it, and goes on from here.

        Raises:
            UsageError: as for `LoopThread.prepare`.
        """
        self._interrupted = False
        self._calls = calls = SimpleQueue[Callable[[], None] | None]()
        prepared = self._loop.prepare(work)
        try:
            future = prepared.begin()
            future.add_done_callback(lambda _: calls.put(None))
            while (call := calls.get()) is not None:
                call()
        except BaseException:  # Ctrl+C, too
            self._interrupted = True
            ended = prepared.cancel()
            ended.add_done_callback(lambda _: calls.put(None))
            while not ended.done():
                if (call := calls.get()) is not None:
                    call()
            raise
        return future.result()

    def tell(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` soon, in its turn."""

        def call() -> None:
            if not self._interrupted:
                callback(*args)

        self._calls.put(call)

    async def ask(self, callback: Callable[..., T], *args: object) -> T:
        """Call `callback`, and wait for its answer; cancelled where the caller has been interrupted."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            if self._interrupted:
                loop.call_soon_threadsafe(answer.cancel)
                return
            said = callback(*args)
            loop.call_soon_threadsafe(partial(_give, answer, said))

        self._calls.put(call)
        return await answer


def _give(answer: asyncio.Future[T], said: T) -> None:
    if not answer.done():
        answer.set_result(said)
