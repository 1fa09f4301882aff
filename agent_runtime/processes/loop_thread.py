"""An event loop in a thread of its own, for code that blocks."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

from agent_runtime.core.errors import UsageError

T = TypeVar("T")

_ENDING_SECONDS = 5.0
"""How long tasks may take to end when their loop is stopped."""


class LoopWork(Generic[T]):
    """A coroutine for the loop of another thread. An interrupt at any moment leaves something that can be cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._work = work
        self._tasks: list[asyncio.Task[Any]] = []

    def begin(self) -> Future[T]:
        """Start it."""
        return asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def cancel(self) -> Future[None]:
        """Cancel it; gives what is done once it has ended."""
        return asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _run(self) -> T:
        if (task := asyncio.current_task()) is not None:
            self._tasks.append(task)
        return await self._work()

    async def _end(self) -> None:
        if self._tasks:  # else it was never begun
            self._tasks[0].cancel()
            await asyncio.wait(self._tasks)


class LoopThread:
    """One event loop in one thread of its own, started by the first use.

    It is the same for every call: programs in a sandbox live no longer than the thread that started them. It ends when
    its owner is collected, and with the process.

    Attributes:
        stopped: whether it was told to end; nothing can be run on it any more.
    """

    def __init__(
        self,
        name: str,
        instead: str = "",
        *,
        owner: object = None,
        last: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Prepare; no thread is started yet.

        Args:
            name: what blocks by means of it, for error texts.
            instead: what to use inside an event loop; empty for what may block one.
            owner: what it works for; None for what stops it itself.
            last: what the loop runs before it ends, if it has run anything; may not refer to the owner.
        """
        self._name = name
        self._instead = instead
        self._last = last
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.stopped = False
        if owner is not None:
            weakref.finalize(owner, self._end).atexit = False  # `_run` registers a handler of its own

    def see(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop, and wait for it; Ctrl+C cancels it, and a second one does not wait for its end.

        Raises:
            UsageError: as for `prepare`.
        """
        prepared = self.prepare(work)
        try:
            return prepared.begin().result()
        except KeyboardInterrupt:
            wait([prepared.cancel()])
            raise

    def prepare(self, work: Callable[[], Coroutine[Any, Any, T]]) -> LoopWork[T]:
        """Prepare a coroutine to run on the loop.

        Raises:
            UsageError: the caller runs in an event loop, which would stand still meanwhile; or it was stopped, or is
                another process's.
        """
        if self._instead and _is_in_a_loop():
            raise UsageError(
                f"{self._name} would block the event loop in which it is called; use {self._instead} there."
            )
        if os.getpid() != self._pid:
            raise UsageError(
                f"This {self._name} was created before its process was forked; create one in each process."
            )
        with self._lock:
            if self.stopped:
                raise UsageError(f"This {self._name} is closed; create a new one.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name="codepilot", daemon=True)
                self._thread.start()
            return LoopWork(self._loop, work)

    def stop(self) -> None:
        """End the loop, and wait for the end of its thread; idempotent."""
        if self._pid != os.getpid():
            return  # we were forked off: loop and thread are our parent's
        with self._lock:  # a loop that is made in this moment would never be told
            self._end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _end(self) -> None:
        """End the loop, and wait for nothing.

        Garbage is collected in the middle of any call, and the thread that makes it may hold a lock that the loop needs
        to end.
        """
        if self.stopped or os.getpid() != self._pid:
            return
        self.stopped = True
        if (loop := self._loop) is None:
            return
        if self._last is None:
            loop.call_soon_threadsafe(loop.stop)
        else:
            ended = asyncio.run_coroutine_threadsafe(self._last(), loop)
            ended.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run a loop until it is stopped, and end its tasks then.

        A task that ends with `KeyboardInterrupt` or `SystemExit` ends the loop as well, and a caller awaiting another
        task would never end. The error is the task's own result, too, and reaches who waits for that.
        """
        # Handlers run in reverse order: this one before the finalizers, which kill programs whose ends it would handle.
        atexit.register(self.stop)
        while True:
            with suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()
                break
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:  # a task that is pending when its loop is gone is warned about
            loop.run_until_complete(asyncio.wait(left, timeout=_ENDING_SECONDS))
        loop.close()
        atexit.unregister(self.stop)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
