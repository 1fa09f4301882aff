"""Find the live workers of this machine: each holds a lock that the kernel releases when its process dies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from bot.workspace.locks import locked, try_lock

_WAIT_SECONDS = 10.0


@asynccontextmanager
async def present(
    folder: Path, name: str, *, on_death: Callable[[Collection[str]], Awaitable[None]]
) -> AsyncIterator[None]:
    """Be known as alive while the body runs; before it does, deal with workers who died since someone last looked.

    Args:
        folder: where the locks are; made if missing, the same for all workers of a queue.
        name: a file name that no other worker has or had.
        on_death: told who died, once.

    Raises:
        WorkspaceError: another worker that is just starting hangs.
        ValueError: there is a worker of this name.
    """
    starting = _made(folder) / "starting.lock"
    # One at a time: a file that is made but not locked yet would look like a dead worker's.
    async with locked(starting, seconds=_WAIT_SECONDS):
        dead = _dead(folder)
        await on_death([path.stem for path in dead])
        for path in dead:
            path.unlink()
        mine = folder / f"{name}.alive"
        descriptor = try_lock(mine)
    if descriptor is None:
        raise ValueError(f"a worker named {name} already exists; names must be unique")
    try:
        yield
    finally:
        mine.unlink(missing_ok=True)
        os.close(descriptor)


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _dead(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.alive")) if _is_free(path)]


def _is_free(path: Path) -> bool:
    descriptor = try_lock(path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True
