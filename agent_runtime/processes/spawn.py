"""Starting a program so that its starter can be stopped at any moment, and nothing of the program is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

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
    return await seen_through(
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


async def seen_through(start: Awaitable[T], *, end: Callable[[T], Awaitable[object]]) -> T:
    """Await a start that must not be broken off in the middle: cancelled, it is let come to its end, and ended then."""
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


async def in_thread(call: Callable[[], T]) -> T:
    """`asyncio.to_thread` for what must not go on when nobody waits for it any more: cancelled, it is waited for."""
    # No task of its own, as `to_thread` would take.
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    return await seen_through(done, end=_nothing)


async def _nothing(_answer: object) -> None:
    """What was done stays done."""


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
