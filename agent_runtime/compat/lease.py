"""One agent at a time in a directory: a lock outside of it, which the system releases when its process dies."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_runtime.core.errors import SettingsError, UsageError
from agent_runtime.processes.user_directories import home


@contextmanager
def lease_of(root: Path) -> Iterator[None]:
    """Hold a directory for one agent's run.

    Raises:
        SettingsError: the lock cannot be made.
        UsageError: another agent, of this process or another one of this user, works there.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only agents pay

    name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=16).hexdigest()
    place = home("One agent at a time is kept to a directory by a lock") / ".codepilot" / "agents" / f"{name}.lock"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(place, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"Another agent works in {root}. Wait until its run is over, or give this one a copy of the directory."
        ) from None
    except OSError as error:
        raise SettingsError(f"The lock {place} cannot be made: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()
