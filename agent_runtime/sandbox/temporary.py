"""Temporary directories that are removed when their process ends, in every case."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

_NEWBORN_SECONDS = 60.0
"""A directory younger than this may not be locked yet by the process that makes it."""

_REMOVAL_SECONDS = 60.0


class Temporary:
    """A private directory, removed by `close`, with this object, or at the process's end.

    A process that is killed removes nothing. So each holds a lock on its directories, which the kernel gives back
    whatever happens, and the next one to make a directory of that name removes those that nobody holds. (Not on
    Windows, where directories have no locks.)

    Attributes:
        path: the directory.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        """Make a directory whose name begins with `prefix`.

        Args:
            prefix: what begins the names of all that are made for the same.
            place: where; None for the system's place for temporary files.

        Raises:
            OSError: the place cannot be written.
        """
        lock = -1
        place = Path(tempfile.gettempdir()) if place is None else place
        if sys.platform != "win32":
            _sweep(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        if sys.platform != "win32":
            lock = _lock(self.path)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it; idempotent."""
        self._remove()


def _sweep(prefix: str, place: Path) -> None:
    for left in place.glob(f"{prefix}*"):
        try:
            status = left.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _NEWBORN_SECONDS:
                continue
            lock = _lock(left)
        except OSError:  # in use, gone meanwhile, or no directory
            continue
        _remove(left, lock, os.getpid())


def _lock(directory: Path) -> int:
    """Lock a directory for as long as the descriptor is open.

    Raises:
        OSError: it is locked already, or no directory; or this is Windows, where directories have no locks.
    """
    if sys.platform == "win32":
        raise OSError(f"{directory} cannot be locked on Windows")
    import fcntl  # noqa: PLC0415 - Windows lacks it

    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(directory: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        with suppress(RecursionError):  # of a tree with very many levels
            shutil.rmtree(directory, ignore_errors=True)
        if sys.platform != "win32" and directory.exists():  # or of one whose directories may not be entered
            script = 'chmod -R u+rwX -- "$0"; rm -rf -- "$0"'
            with suppress(subprocess.TimeoutExpired):  # the next one to sweep goes on with it
                subprocess.run(
                    ["/bin/sh", "-c", script, str(directory)],
                    capture_output=True,
                    check=False,
                    timeout=_REMOVAL_SECONDS,
                )
    if lock >= 0:
        os.close(lock)
