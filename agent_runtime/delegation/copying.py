"""Copy a workspace for a child run, within bounds of time, size and number. No link is followed.

Files that git ignores are copied, because builds and tests need them (`.venv`, `node_modules`), and so are directories
named `.git`, for `git log` and `git diff`. A file or link of that name is not: it leads to a git directory that both
would share. What is no file, directory or link is left out, and so is what cannot be read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import confined
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.paths import is_git

_MOST_LEVELS = 100
_CHUNK = 8 * 1024**2
_NO_RANGES = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF})
"""Errors of copy_file_range(2) where the kernel, or a file system, cannot copy by itself."""
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})
"""Errors of one name of the source: it went or became another kind of thing meanwhile, or is not ours to read."""


@dataclass(slots=True, kw_only=True)
class CopyBounds:
    """What is left of the bounds of a copy.

    Attributes:
        size: bytes.
        files: files, links and directories.
        seconds: how long it may take.
        free: bytes that stay free on the disk.
    """

    size: int
    files: int
    seconds: float = 120.0
    free: int = 0


async def copied(source: Workspace, target: Path, names: Sequence[str] | None, bounds: CopyBounds) -> None:
    """Copy a workspace in a thread, or parts of it; cancelled, it ends at once and leaves what it has copied.

    Where the file system can, the copies share their bytes with the originals until either is changed.

    Args:
        source: the workspace.
        target: an empty directory.
        names: canonical paths of what to copy; None for everything.
        bounds: how much.

    Raises:
        ToolError: it is too large, there is no room for it, or nothing stands under one of the names.
    """
    stop = threading.Event()
    copying = asyncio.ensure_future(asyncio.to_thread(partial(_copy, source, target, names, bounds, stop)))
    try:
        await asyncio.shield(copying)
    except asyncio.CancelledError:
        stop.set()
        while not copying.done():
            with suppress(asyncio.CancelledError):  # it ends with the file that it is at
                await asyncio.wait([copying])
        copying.exception()
        raise


def _copy(
    source: Workspace, target: Path, names: Sequence[str] | None, bounds: CopyBounds, stop: threading.Event
) -> None:
    if missing := next((name for name in names or () if not source.exists(name)), None):
        raise ToolError(f"there is no {missing!r} in the workspace; name what is there", kind="FileNotFoundError")
    copy = _Copy(bounds=bounds, stop=stop, deadline=time.monotonic() + bounds.seconds)
    try:
        with confined.held(_open(target, os.O_DIRECTORY)) as root:
            for name in ["."] if names is None else names:
                if name == ".":
                    with confined.held(source.open_directory(".")) as directory:
                        copy.directory(directory, root, 1)
                    continue
                parent, _, last = name.rpartition("/")
                with (
                    confined.held(source.open_directory(parent or ".")) as directory,
                    _made(root, tuple(filter(None, parent.split("/")))) as beside,
                ):
                    copy.entry(directory, beside, last, 1)
    except OSError as error:
        raise ToolError(
            f"the workspace cannot be copied: {error.strerror or error}; free some space, or name the `files` that the "
            "task needs",
            kind="OSError",
        ) from error


@dataclass(slots=True, kw_only=True)
class _Copy:
    """One copy under way."""

    bounds: CopyBounds
    stop: threading.Event
    deadline: float

    def directory(self, source: int, target: int, level: int) -> None:
        """Copy what a directory holds."""
        room = os.fstatvfs(target)
        if room.f_bavail * room.f_frsize < self.bounds.free:
            raise _too_large(f"less than {self.bounds.free:,} bytes would stay free on the disk")
        if level > _MOST_LEVELS:
            raise _too_large(f"it has more than {_MOST_LEVELS} levels of directories")
        found: list[str] = []
        with os.scandir(source) as entries:
            for entry in entries:
                self.bounds.files -= 1
                if self.bounds.files < 0:
                    raise _too_large("it has too many files and directories")
                found.append(entry.name)
        for name in found:
            self.entry(source, target, name, level)

    def entry(self, source: int, target: int, name: str, level: int) -> None:
        """Copy what stands under a name."""
        self._go_on()
        try:
            found = _opened(source, name)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        if isinstance(found, str):
            os.symlink(found, name, dir_fd=target)
        if not isinstance(found, int):
            return
        with confined.held(found) as old:
            status = os.fstat(old)
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(name, 0o700, dir_fd=target)
                with confined.held(_open(name, os.O_DIRECTORY, within=target)) as new:
                    self.directory(old, new, level + 1)
                    os.fchmod(new, 0o700 | mode)
            elif stat.S_ISREG(status.st_mode):
                with confined.held(_open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, within=target)) as new:
                    self._content(old, new)
                    os.fchmod(new, mode)
                    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _content(self, old: int, new: int) -> None:
        """Copy a file's bytes; of one that somebody goes on writing, no more than there is room for."""
        while count := _some(old, new):
            self.bounds.size -= count
            if self.bounds.size < 0:
                raise _too_large("its files are too large")
            self._go_on()

    def _go_on(self) -> None:
        """Check the bounds that nothing counts down.

        Raises:
            ToolError: the time is over, or the copy is wanted no more.
        """
        if self.stop.is_set() or time.monotonic() > self.deadline:
            raise _too_large(f"copying it takes longer than {self.bounds.seconds:.0f} seconds")


def _opened(source: int, name: str) -> int | str | None:
    """What stands under a name: a descriptor of a file or directory, or where a link leads; None for all else.

    Raises:
        OSError: it cannot be opened.
    """
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return _open(name, os.O_DIRECTORY, within=source)
    if is_git(name):
        return None
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=source)
    return _open(name, os.O_NONBLOCK | os.O_NOCTTY, within=source) if stat.S_ISREG(mode) else None


def _some(old: int, new: int) -> int:
    """Copy some more of a file; gives how many bytes, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(old, new, _CHUNK)
        except OSError as error:
            if error.errno not in _NO_RANGES:
                raise
    data = memoryview(os.read(old, _CHUNK))
    size = len(data)
    while data:
        data = data[os.write(new, data) :]
    return size


@contextmanager
def _made(root: int, parts: Sequence[str]) -> Iterator[int]:
    """The directory of a path beneath `root`, made where it is missing; no link is followed."""
    with ExitStack() as stack:
        here = root
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=here)
            here = stack.enter_context(confined.held(_open(part, os.O_DIRECTORY, within=here)))
        yield here


def _too_large(why: str) -> ToolError:
    return ToolError(f"the workspace cannot be copied: {why}; name the `files` that the task needs", kind="ValueError")


def _open(name: str | Path, flags: int, *, within: int | None = None) -> int:
    """Open without following a link; what is new is its owner's alone."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=within)
