"""Programs and threads that can be stopped at any moment, and facts about this process and its user.

- `started` and `end` start and kill a program in a session of its own; nothing of it is left when its starter is
  cancelled. `run_in_thread` and `run_in_daemon_thread` are `asyncio.to_thread` for calls that must, or need not, end.
- `LoopThread` is an event loop in a thread of its own, for code that blocks.
- `machine` and `start_time` tell a process from every other one that has, had or will have its id.
- `traced` is a span of OpenTelemetry, `home` this user's home directory.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Generic, TypeVar

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer

from agent_runtime.core.errors import SandboxError, SettingsError, UsageError

T = TypeVar("T")


async def started(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    stderr: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """`asyncio.create_subprocess_exec` with nothing on standard input, in a session of its own; `end` it.

    Cancelled between the process's birth and the connecting of its pipes, that one waits for ever for the process to
    end (Python 3.11). This one lets it come so far, and kills it.

    Raises:
        OSError: it cannot be started.
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
        end=_ended,
    )


async def finish_start(start: Awaitable[T], *, end: Callable[[T], Awaitable[object]]) -> T:
    """Await a start that must not be interrupted: when cancelled, let it finish, and end its result then."""
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
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    return await finish_start(done, end=_nothing)


async def _nothing(_answer: object) -> None:
    """Undo nothing."""


async def _ended(process: asyncio.subprocess.Process) -> None:
    end(process)
    await process.communicate()  # `wait` never returns as long as reading stands still


def end(process: asyncio.subprocess.Process | subprocess.Popen[bytes]) -> None:
    """Kill a program that was started in a session of its own, and what it has begun to start.

    Bubblewrap's first child waits for its parent before it says that it will die with it; killed alone, a parent that
    has not come so far leaves a child that never ends.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def run_in_daemon_thread(call: Callable[[], T]) -> T:
    """`asyncio.to_thread`, in a thread that does not keep the process from ending.

    A prompt that is still open when its run was stopped would otherwise hold up the interpreter's exit until somebody
    answers it.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[tuple[list[T], BaseException | None]] = loop.create_future()

    def settle(values: list[T], error: BaseException | None) -> None:
        if not done.done():
            done.set_result((values, error))

    def work() -> None:
        values, error = list[T](), None
        try:
            values.append(context.run(call))
        except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, values, error)

    threading.Thread(target=work, name="codepilot asks", daemon=True).start()
    values, error = await done
    if error is not None:
        raise error
    return values[0]


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


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def machine() -> str:
    """Return the scope in which process ids can be compared: this boot of the system and this process namespace.

    Two words; empty where the system does not tell.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def start_time(pid: int) -> str:
    """Return the start of a process in the kernel's ticks; empty if it is gone. See proc_pid_stat(5)."""
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
    """Trace the body by a span, which costs next to nothing until a program installs an SDK.

    Of an error it names the class alone: its text may hold anything.

    Args:
        name: one of a small fixed set.
        attributes: nothing that strangers wrote, and no secret.
        kind: `CLIENT` where another service answers.
    """
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:  # whatever it is, it is raised again
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise


def home(lacking: str, *, otherwise: str = "", kind: type[SandboxError | SettingsError] = SettingsError) -> Path:
    """Return this user's home directory.

    Args:
        lacking: a sentence on the consequence, without its full stop.
        otherwise: another remedy than setting `HOME`.
        kind: the class of the error.

    Raises:
        SettingsError, or another `kind`: there is none; a container may run as a user that it does not know.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        also = f", or {otherwise}" if otherwise else ""
        raise kind(f"{lacking}: this user has no home directory. Set HOME{also}.") from error
