"""Run a function on untrusted bytes in a worker process with limits on time and memory.

A backtracking regular expression holds the GIL and blocks the event loop; only a process can be killed.
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
from agent_runtime.processes.bounded_worker import MAX_JSON_BYTES, MAX_PLAIN_BYTES, WALL_FACTOR, is_worker
from agent_runtime.processes.spawn import run_in_daemon_thread

T = TypeVar("T")

Bound = Literal["seconds", "memory", "result"]


async def run_bounded(
    function: Callable[..., T],
    /,
    *args: object,
    seconds: float = 10.0,
    memory: int = 256 * 1024**2,
    task: str = "",
) -> T:
    """Call a function in a worker process; kill it on cancellation.

    Args:
        function: top-level function. Returns text or bytes (at most 32 MiB) or JSON data (4 MiB).
        seconds: limit of processor time; of wall time four times as much, without the wait for a worker.
        memory: bytes, with the arguments.
        task: for the error, e.g. "The search for the old text".

    Raises:
        BoundExceededError: limit exceeded.
    """
    call = _Call(function, args, seconds=seconds, memory=memory, task=task)
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
    task: str = "",
) -> T:
    """Call like `run_bounded`, but block the thread; in a worker, call directly."""
    if is_worker():
        return function(*args)
    return cast("T", _Call(function, args, seconds=seconds, memory=memory, task=task).run())


_MAX_ATTEMPTS = 3  # a worker may end, for lack of work, while a request is on its way to it

_TIMEOUT_CODES = (-signal.SIGPROF, -signal.SIGALRM) if sys.platform != "win32" else ()


class _Call:
    def __init__(
        self, function: Callable[..., object], args: tuple[object, ...], *, seconds: float, memory: int, task: str
    ) -> None:
        name = f"{function.__module__}:{function.__qualname__}"
        if function.__module__ == "__main__" or "<" in name or "." in function.__qualname__:
            raise TypeError(
                f"{name} cannot be run in a worker process: it must be a function at the top level of a module"
            )
        self._request = pickle.dumps((name, args, seconds, memory), protocol=5)
        self._seconds, self._memory, self._name = seconds, memory, task or name
        self._cancelled = False
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def run(self) -> object:
        if len(self._request) > self._memory:
            raise self._exceeded("memory", f"{self._memory:,} bytes of memory")
        pool = _current_pool()
        for _ in range(_MAX_ATTEMPTS):
            worker = pool.acquire(lambda: self._cancelled)
            try:
                with self._lock:
                    self._worker = worker
                    if self._cancelled:
                        worker.kill()
                answer = worker.send(self._request, self._seconds)
            finally:
                with self._lock:
                    self._worker = None
                pool.release(worker)
            if answer is not None:
                return self._decode(*answer)
            if self._cancelled:
                raise asyncio.CancelledError
            if worker.late or worker.exit_code in _TIMEOUT_CODES:
                raise self._exceeded("seconds", f"{self._seconds:g} seconds")
            if worker.exit_code:
                raise self._exceeded("memory", f"its process may: that ended with status {worker.exit_code}")
        raise RuntimeError(f"{self._name}: worker processes end before they answer; {sys.executable} -I cannot be run?")

    def cancel(self) -> None:
        """Kill the worker or stop waiting for one; thread-safe."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()
        _current_pool().notify_waiters()

    def _decode(self, kind: bytes, data: bytes) -> object:
        match kind:
            case b"b":
                return data
            case b"s":
                return data.decode("utf-8", "surrogatepass")
            case b"j":
                return json.loads(data)
            case b"e":
                name, message, detail = (str(item) for item in json.loads(data))
                if name == "ToolError" and detail in get_args(ToolErrorKind):
                    raise ToolError(message, kind=cast("ToolErrorKind", detail))
                if name == "ValueError":
                    raise ValueError(message)
                raise RuntimeError(f"{self._name} failed in its worker process: {detail or message}")
            case b"m":
                raise self._exceeded("memory", f"{self._memory:,} bytes of memory")
            case _:
                raise self._exceeded("result", "the bytes that its result may have")

    def _exceeded(self, bound: Bound, amount: str) -> BoundExceededError:
        return BoundExceededError(
            f"{self._name} took more than {amount}, and was stopped; give it less to do: a smaller file, or a simpler "
            "pattern",
            bound=bound,
        )


_WORKER = Path(__file__).with_name("bounded_worker.py")

_HEAD = 9  # bytes: the kind of an answer, and its length

_STARTING_SECONDS = 30.0  # beyond the call's own, which the worker's timer measures


class _Worker:
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
        return self._process.returncode

    def send(self, request: bytes, seconds: float) -> tuple[bytes, bytes] | None:
        """Return the kind and bytes of the answer; None if the process ended."""
        timer = threading.Timer(WALL_FACTOR * seconds + _STARTING_SECONDS, self._kill_late)
        timer.daemon = True
        timer.start()
        succeeded = False
        try:
            answer = self._exchange(request)
            succeeded = True
        except OSError:  # it ended and takes no request
            self.close()
            return None
        finally:
            timer.cancel()
            if not succeeded:  # interrupted, perhaps: the next call must not have this one's answer
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
        if (kind == b"j" and size > MAX_JSON_BYTES) or size > MAX_PLAIN_BYTES:
            kind, size = b"r", 0
            self.kill()
        data = self._answers.read(size)
        if len(head) == _HEAD and len(data) == size:
            return kind, data
        self.close()
        return None

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()

    def close(self) -> None:
        self.end()
        for pipe in (self._requests, self._answers):
            try:
                pipe.close()
            except OSError:  # the rest of a request that nobody reads
                continue

    def is_alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def _kill_late(self) -> None:
        self.late = True
        self.kill()


_MOST_WORKERS = max(2, min(4, os.cpu_count() or 1))


class _Pool:
    """Workers of this process, started on demand; each exits after an idle minute."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._available = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._in_use = 0
        atexit.register(self._close)

    def acquire(self, cancelled: Callable[[], bool]) -> _Worker:
        with self._available:
            self._available.wait_for(lambda: cancelled() or self._in_use < _MOST_WORKERS)
            if cancelled():
                raise asyncio.CancelledError
            self._in_use += 1
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    self._busy.add(worker)
                    return worker
                worker.close()
        try:
            worker = _Worker()
        except BaseException:  # raised on; others must not wait for this place
            with self._available:
                self._in_use -= 1
                self._available.notify()
            raise
        with self._available:
            self._busy.add(worker)
        return worker

    def release(self, worker: _Worker) -> None:
        alive = worker.is_alive()
        if not alive:
            worker.close()
        with self._available:
            self._busy.discard(worker)
            self._in_use -= 1
            if alive:
                self._idle.append(worker)
            self._available.notify()

    def notify_waiters(self) -> None:
        with self._available:
            self._available.notify_all()

    def _close(self) -> None:
        if os.getpid() != self.pid:  # forked off: they are another's
            return
        with self._available:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()
        for worker in tuple(self._busy):  # a thread waits for its answer, and closes its pipes
            worker.end()


_pools: list[_Pool] = []

_pools_lock = threading.Lock()


def _current_pool() -> _Pool:
    with _pools_lock:
        if not _pools or _pools[-1].pid != os.getpid():
            _pools.append(_Pool())
        return _pools[-1]
