"""Find the files written to a workspace since a sandbox started, by walking it. POSIX.

A file counts when the kernel says that it was made or changed since then (`st_ctime` in inode(7), which nobody inside
can set). So nothing has to be counted before the first command, and nothing is forgiven for having been quick.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Generator
from dataclasses import dataclass

_BLOCK = 512
_SLICE = 64
_DEEPEST = 100
"""Directories below one another; each is held open while what is below it is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a walk found.

    Attributes:
        disk_bytes: that files made or changed since then take on the disk.
        files: how many these are; directories count.
        blind: whether there are directories that are too deep or that we may not read, whose contents are not counted.
    """

    disk_bytes: int = 0
    files: int = 0
    blind: bool = False


def walk(root: int, since: int) -> Generator[None, None, Growth]:
    """Walk the directory with the descriptor `root`; pauses after every few entries.

    Directories are entered one from the other and never by way of a link, so what is swapped meanwhile leads nowhere.

    Args:
        root: the workspace, which stays the caller's.
        since: nanoseconds since the epoch.
    """
    linked: set[int] = set()
    disk = files = 0
    blind = False
    path: list[_Directory] = []
    try:
        path.append(_Directory(".", root))
        for step in itertools.count(1):
            entry = path[-1].next()
            if entry is None:
                path.pop().close()
                if not path:
                    break
                continue
            if step % _SLICE == 0:
                yield
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISDIR(status.st_mode):
                blind |= not _entered(path, entry.name)
            if status.st_ctime_ns >= since and status.st_ino not in linked:
                disk += status.st_blocks * _BLOCK
                files += 1
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    linked.add(status.st_ino)
    finally:
        for directory in path:
            directory.close()
    return Growth(disk_bytes=disk, files=files, blind=blind)


def _entered(path: list[_Directory], name: str) -> bool:
    """Go down into a directory, if there is still one; whether there is nothing in it that will not be counted."""
    if len(path) >= _DEEPEST:
        return False
    try:
        path.append(_Directory(name, path[-1].descriptor))
    except PermissionError:
        return False
    except OSError:  # removed or replaced meanwhile
        return True
    return True


class _Directory:
    """An open directory on the way down."""

    def __init__(self, name: str, parent: int) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.descriptor = os.open(name, flags, dir_fd=parent)
        try:
            self._entries = os.scandir(self.descriptor)
        except BaseException:  # whatever it was, nobody else knows of the descriptor
            os.close(self.descriptor)
            raise

    def next(self) -> os.DirEntry[str] | None:
        """The next entry, or None at the end."""
        try:
            return next(self._entries, None)
        except OSError:  # the directory was removed meanwhile
            return None

    def close(self) -> None:
        """Give the descriptors back."""
        self._entries.close()
        os.close(self.descriptor)
