"""Exclusive locks between processes, waited for without blocking the event loop; and threads that end before these."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bot.workspace.errors import WorkspaceError

T = TypeVar("T")

_POLL_SECONDS = 0.02


def try_lock(path: Path) -> int | None:
    """Take the lock on `path`, made if missing; give back its descriptor, or None when someone holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whether the file that was locked is the one others will find; its last holder may have removed it.
        try:
            held = os.path.samestat(path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            held = False
    except BlockingIOError:
        held = False
    except BaseException:  # whatever it was, nobody else knows of the descriptor
        os.close(descriptor)
        raise
    if not held:
        os.close(descriptor)
        return None
    return descriptor


def release(path: Path, descriptor: int) -> None:
    """Give a lock up and remove its file, which only its holder may do."""
    path.unlink(missing_ok=True)
    os.close(descriptor)


@asynccontextmanager
async def locked(path: Path, *, seconds: float, once: bool = False) -> AsyncIterator[None]:
    """Hold the lock on `path`; the kernel drops it when the process dies.

    Args:
        path: the lock's file.
        seconds: how long to wait for another holder.
        once: whether the file is removed afterwards.

    Raises:
        WorkspaceError: someone else held it for all of `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while (descriptor := try_lock(path)) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise WorkspaceError(
                f"Another process has held {path} for more than {seconds:.0f} s.",
                "Find it with `fuser`; a git process that hangs can be killed safely.",
            )
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if once:
            release(path, descriptor)
        else:
            os.close(descriptor)


async def in_thread(call: Callable[..., T], *args: object) -> T:
    """`asyncio.to_thread` for what must not go on when a lock is given up: who is cancelled waits for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])
