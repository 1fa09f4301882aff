"""Run a function on untrusted bytes in a worker process, within a bound of time and one of memory.

A regular expression that backtracks, or a comparison of two large texts, holds the interpreter: in a thread it stops
the event loop, and nothing can end it. A process can be killed.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar, cast, get_args

from agent_runtime.core.errors import BoundExceededError, ToolError, ToolErrorKind
from agent_runtime.processes.bounded_worker import MOST_PLAIN, MOST_STRUCTURED, is_worker
from agent_runtime.processes.spawn import run_in_daemon_thread

T = TypeVar("T")

Bound = Literal["seconds", "memory", "result"]


async def run_bounded(
    function: Callable[..., T],
    /,
    *args: object,
    seconds: float = 10.0,
    memory: int = 256 * 1024**2,
    what: str = "",
) -> T:
    """Call a function in a worker process; cancelled, it is killed.

    Calls wait for each other when all workers are busy; waiting does not count.

    Args:
        function: one that a module defines. Its result is a text or bytes (at most 32 MiB), or what JSON holds (4):
            tuples come back as lists. A `ToolError` or `ValueError` that it raises is raised here.
        args: its arguments, plain data.
        seconds: how long it may take.
        memory: bytes that it may take, its arguments included.
        what: what it does, for the error's text: "The search for the old text".

    Raises:
        BoundExceededError: it took more than that.
    """
    call = _Call(function, args, seconds=seconds, memory=memory, what=what)
    try:
        return cast("T", await run_in_daemon_thread(call.run))
    except asyncio.CancelledError:
        call.cancel()
        raise


def call_bounded(
    function: Callable[..., T],
    /,
    *args: object,
    seconds: float = 10.0,
    memory: int = 256 * 1024**2,
    what: str = "",
) -> T:
    """`run_bounded` for code that has a thread of its own and may block it. In a worker it is an ordinary call."""
    if is_worker():
        return function(*args)
    return cast("T", _Call(function, args, seconds=seconds, memory=memory, what=what).run())


_STARTS = 3  # a worker may end, for lack of work, while a request is on its way to it

_LATE = (-signal.SIGALRM,) if sys.platform != "win32" else ()


class _Call:
    """One call: waits for a worker, has its answer, gives it back."""

    def __init__(
        self, function: Callable[..., object], args: tuple[object, ...], *, seconds: float, memory: int, what: str
    ) -> None:
        name = f"{function.__module__}:{function.__qualname__}"
        if function.__module__ == "__main__" or "<" in name or "." in function.__qualname__:
            raise TypeError(
                f"{name} cannot be run in a worker process: it must be a function at the top level of a module"
            )
        self._request = pickle.dumps((name, args, seconds, memory), protocol=5)
        self._seconds, self._memory, self._what = seconds, memory, what or name
        self._cancelled = False
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def run(self) -> object:
        if len(self._request) > self._memory:
            raise self._exceeded("memory", f"{self._memory:,} bytes of memory")
        pool = _pool()
        for _ in range(_STARTS):
            worker = pool.take(lambda: self._cancelled)
            try:
                with self._lock:
                    self._worker = worker
                    if self._cancelled:
                        worker.kill()
                answer = worker.ask(self._request, self._seconds)
            finally:
                with self._lock:
                    self._worker = None
                pool.give_back(worker)
            if answer is not None:
                return self._result(*answer)
            if self._cancelled:
                raise asyncio.CancelledError
            if worker.late or worker.exit_code in _LATE:
                raise self._exceeded("seconds", f"{self._seconds:g} seconds")
            if worker.exit_code:
                raise self._exceeded("memory", f"its process may: that ended with status {worker.exit_code}")
        raise RuntimeError(f"{self._what}: worker processes end before they answer; {sys.executable} -I cannot be run?")

    def cancel(self) -> None:
        """Kill the worker, or give up waiting for one. From any thread."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()
        _pool().wake()

    def _result(self, kind: bytes, data: bytes) -> object:
        match kind:
            case b"b":
                return data
            case b"s":
                return data.decode("utf-8", "surrogatepass")
            case b"j":
                return json.loads(data)
            case b"e":
                name, message, detail = (str(each) for each in json.loads(data))
                if name == "ToolError" and detail in get_args(ToolErrorKind):
                    raise ToolError(message, kind=cast("ToolErrorKind", detail))
                if name == "ValueError":
                    raise ValueError(message)
                raise RuntimeError(f"{self._what} failed in its worker process: {detail or message}")
            case b"m":
                raise self._exceeded("memory", f"{self._memory:,} bytes of memory")
            case _:
                raise self._exceeded("result", "the bytes that its result may have")

    def _exceeded(self, bound: Bound, amount: str) -> BoundExceededError:
        return BoundExceededError(
            f"{self._what} took more than {amount}, and was stopped; give it less to do: a smaller file, or a simpler "
            "pattern",
            bound=bound,
        )


_WORKER = Path(__file__).with_name("bounded_worker.py")

_HEAD = 9  # bytes: the kind of an answer, and its length

_STARTING_SECONDS = 30.0  # beyond the call's own, which the worker's timer measures


class _Worker:
    """A worker process.

    Attributes:
        late: whether it was killed because its time was over.
    """

    def __init__(self) -> None:
        # -I and -S: nothing of the environment or of the current directory; it is told where modules lie.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
        self._requests, self._answers = cast("tuple[BinaryIO, BinaryIO]", (self._process.stdin, self._process.stdout))
        self._hello = pickle.dumps([os.path.abspath(place) for place in sys.path])  # noqa: PTH100 - "" is the directory
        self._killed = False
        self.late = False

    @property
    def exit_code(self) -> int | None:
        """What it ended with, if it ended."""
        return self._process.returncode

    def ask(self, request: bytes, seconds: float) -> tuple[bytes, bytes] | None:
        """Have a request answered: the kind of the answer, and the answer. None when the process ended instead."""
        timer = threading.Timer(seconds + _STARTING_SECONDS, self._end_late)
        timer.daemon = True
        timer.start()
        answered = False
        try:
            answer = self._exchange(request)
            answered = True
        except OSError:  # it ended and takes no request
            self.close()
            return None
        finally:
            timer.cancel()
            if not answered:  # interrupted, perhaps: the next call must not have this one's answer
                self.kill()
        return answer

    def _exchange(self, request: bytes) -> tuple[bytes, bytes] | None:
        for message in (self._hello, request):
            if message:
                self._requests.write(len(message).to_bytes(8, "big"))
                self._requests.write(message)
        self._hello = b""
        self._requests.flush()
        head = self._answers.read(_HEAD)
        kind, size = head[:1], int.from_bytes(head[1:], "big")
        if (kind == b"j" and size > MOST_STRUCTURED) or size > MOST_PLAIN:
            kind, size = b"r", 0
            self.kill()
        data = self._answers.read(size)
        if len(head) == _HEAD and len(data) == size:
            return kind, data
        self.close()
        return None

    def kill(self) -> None:
        """End it now. From any thread."""
        self._killed = True
        self._process.kill()

    def end(self) -> None:
        """End it, no matter who waits for its answer, and wait until it has ended."""
        self.kill()
        self._process.wait()

    def close(self) -> None:
        """Have it ended, and nothing left of it."""
        self.end()
        for pipe in (self._requests, self._answers):
            try:
                pipe.close()
            except OSError:  # the rest of a request that nobody reads
                continue

    def is_alive(self) -> bool:
        """Whether it may be asked."""
        return not self._killed and self._process.poll() is None

    def _end_late(self) -> None:
        self.late = True
        self.kill()


_MOST_WORKERS = max(2, min(4, os.cpu_count() or 1))


class _Pool:
    """The workers of this process: started when there is work, ended by themselves when there is none for a minute."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._turn = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._taken = 0
        atexit.register(self._close)

    def take(self, cancelled: Callable[[], bool]) -> _Worker:
        """A worker of one's own, as soon as one is free.

        Raises:
            CancelledError: nobody waits for it any more.
        """
        with self._turn:
            self._turn.wait_for(lambda: cancelled() or self._taken < _MOST_WORKERS)
            if cancelled():
                raise asyncio.CancelledError
            self._taken += 1
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    self._busy.add(worker)
                    return worker
                worker.close()
        try:
            worker = _Worker()
        except BaseException:  # raised on; others must not wait for this place
            with self._turn:
                self._taken -= 1
                self._turn.notify()
            raise
        with self._turn:
            self._busy.add(worker)
        return worker

    def give_back(self, worker: _Worker) -> None:
        """Let others have it, if it still lives."""
        alive = worker.is_alive()
        if not alive:
            worker.close()
        with self._turn:
            self._busy.discard(worker)
            self._taken -= 1
            if alive:
                self._idle.append(worker)
            self._turn.notify()

    def wake(self) -> None:
        """Have those that wait look whether they still want to."""
        with self._turn:
            self._turn.notify_all()

    def _close(self) -> None:
        if os.getpid() != self.pid:  # forked off: they are another's
            return
        with self._turn:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()
        for worker in tuple(self._busy):  # a thread waits for its answer, and closes its pipes
            worker.end()


_pools: list[_Pool] = []

_making = threading.Lock()


def _pool() -> _Pool:
    """The pool of this process; one that was inherited by a fork is another's."""
    with _making:
        if not _pools or _pools[-1].pid != os.getpid():
            _pools.append(_Pool())
        return _pools[-1]
