"""Programs and threads with safe cancellation, and facts about this process and its user."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer
from typing_extensions import override

from agent_runtime.core.errors import AgentError, SandboxError, SettingsError, UsageError

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)


async def start_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    stderr: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start a program without standard input in a session of its own; stop it with `end`.

    Finishes the start if cancelled, which hangs `asyncio.create_subprocess_exec` (Python 3.11), and kills the program.
    """
    return await finish_start(
        asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        ),
        end=_kill_and_wait,
    )


async def finish_start(start: Awaitable[T], *, end: Callable[[T], Awaitable[object]]) -> T:
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            with suppress(asyncio.CancelledError):  # it takes milliseconds, and then the first one goes on
                await asyncio.wait([starting])
        if starting.exception() is None:
            await end(starting.result())
        raise


async def run_in_thread(call: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but wait for the thread when cancelled."""
    # No task of its own, as `to_thread` would take.
    future = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    return await finish_start(future, end=_ignore)


async def _ignore(_answer: object) -> None: ...


async def _kill_and_wait(process: asyncio.subprocess.Process) -> None:
    end(process)
    await process.communicate()  # `wait` never returns as long as reading stands still


def end(process: asyncio.subprocess.Process | subprocess.Popen[bytes]) -> None:
    """Kill a program that leads its own session, with its process group.

    Bubblewrap's child only sets its parent-death signal after its parent; killing the parent alone may leave it.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def run_in_daemon_thread(call: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but without delaying the interpreter's exit, e.g. by an unanswered prompt."""
    loop, context = asyncio.get_running_loop(), copy_context()
    future: asyncio.Future[tuple[list[T], BaseException | None]] = loop.create_future()

    def settle(values: list[T], error: BaseException | None) -> None:
        if not future.done():
            future.set_result((values, error))

    def work() -> None:
        values, error = list[T](), None
        try:
            values.append(context.run(call))
        except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, values, error)

    threading.Thread(target=work, name="codepilot asks", daemon=True).start()
    values, error = await future
    if error is not None:
        raise error
    return values[0]


class LoopThread:
    """An event loop in a thread of its own, started on first use.

    All calls share it, as sandboxed programs die with the thread that started them.
    """

    def __init__(
        self,
        name: str,
        instead: str = "",
        *,
        owner: object = None,
        finalizer: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Store the settings; start no thread.

        `owner`'s collection ends the loop; `finalizer` is its last coroutine and must not refer to the owner.
        """
        self._name = name
        self._instead = instead
        self._finalizer = finalizer
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.stopped = False
        if owner is not None:
            weakref.finalize(owner, self._end).atexit = False  # `_run` registers a handler of its own

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and return its result; Ctrl+C cancels it."""
        prepared = self.prepare(work)
        try:
            return prepared.begin().result()
        except KeyboardInterrupt:
            wait([prepared.cancel()])
            raise

    def prepare(self, work: Callable[[], Coroutine[Any, Any, T]]) -> LoopWork[T]:
        """Prepare a coroutine for the loop; raise UsageError in an event loop, after `stop`, or in a forked process."""
        if self._instead and is_in_a_loop():
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
                self._loop.set_default_executor(_LoopExecutor())
                self._thread = threading.Thread(target=self._run_loop, args=[self._loop], name="codepilot", daemon=True)
                self._thread.start()
            return LoopWork(self._loop, work)

    def stop(self) -> None:
        """End the loop and join its thread; idempotent."""
        if self._pid != os.getpid():
            return  # we were forked off: loop and thread are our parent's
        with self._lock:  # a loop that is made in this moment would never be told
            self._end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _end(self) -> None:
        """End the loop without waiting: a finalizer may run in a thread whose lock the loop needs."""
        if self.stopped or os.getpid() != self._pid:
            return
        self.stopped = True
        if (loop := self._loop) is None:
            return
        loop.call_soon_threadsafe(loop.stop)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it is stopped, then end its tasks and finalize; restart it after `KeyboardInterrupt`."""
        # Handlers run in reverse order: this one before the finalizers, which kill programs whose ends it would handle.
        atexit.register(self.stop)
        while True:
            with suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()
                break
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:  # a task that is pending when its loop is gone is warned about
            loop.run_until_complete(asyncio.wait(pending, timeout=_ENDING_SECONDS))
        try:
            if self._finalizer is not None:
                loop.run_until_complete(self._finalizer())
        except (OSError, AgentError) as error:
            log.warning("%s was not closed completely: %s", self._name, error)
        loop.close()
        atexit.unregister(self.stop)


class _LoopExecutor(ThreadPoolExecutor):
    """The threads of a loop; at the interpreter's exit, when none takes work any more, the loop's own thread."""

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if not str(error).startswith("cannot schedule"):  # else it may be in the queue
                raise
        future = Future[T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(error)
        return future


_ENDING_SECONDS = 5.0
"""Timeout for tasks when their loop stops."""


class LoopWork(Generic[T]):
    """A coroutine for another thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._work = work
        self._tasks: list[asyncio.Task[Any]] = []

    def begin(self) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def cancel(self) -> Future[None]:
        """Cancel the coroutine; the future resolves after its end."""
        return asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _run(self) -> T:
        if (task := asyncio.current_task()) is not None:
            self._tasks.append(task)
        return await self._work()

    async def _end(self) -> None:
        if self._tasks:  # else it was never begun
            self._tasks[0].cancel()
            await asyncio.wait(self._tasks)


def is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def process_scope() -> str:
    """Return the scope of process ids, boot id and PID namespace; empty if unknown."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def start_time(pid: int) -> str:
    """Return a process's start in clock ticks, proc_pid_stat(5); empty if dead."""
    with suppress(OSError):
        # The second field, in parentheses, is the program's name and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
        return "" if fields[_STATE] in _DEAD_STATES else fields[_START]
    return ""


_STATE, _START = 0, 19

_DEAD_STATES = frozenset("ZXx")

_tracer = get_tracer("codepilot")


@contextmanager
def traced(
    name: str, attributes: Mapping[str, str | int] | None = None, *, kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[Span]:
    """Trace the body by a span; records only an error's class, as its text may hold secrets."""
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:  # whatever it is, it is raised again
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise


def home_dir(problem: str, *, remedy: str = "", kind: type[SandboxError | SettingsError] = SettingsError) -> Path:
    """Return this user's home directory; `problem` and `remedy` are for the error."""
    try:
        return Path.home()
    except RuntimeError as error:
        alternative = f", or {remedy}" if remedy else ""
        raise kind(f"{problem}: this user has no home directory. Set HOME{alternative}.") from error
