"""Remove directories that hostile programs have made: of any depth, any mode and any names.

A path may be too long to be written down (`PATH_MAX`), and a stack of calls or of open directories may be too short for
its depth. So no path below the directory is ever put together: each subdirectory that is not empty is moved up beside
the others and emptied there. Two directories are open at a time, and no symbolic link is followed.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM})
SET_ASIDE = ".set-aside-"
"""Begins the names of directories that could not be removed, which nothing looks at again."""


def remove_tree(folder: Path) -> None:
    """Remove a directory and all that is in it; nothing to do when it is missing.

    Raises:
        OSError: something in it could not be removed, e.g. because it is immutable; everything else is gone.
    """
    with suppress(FileNotFoundError):
        name, parent = os.fsencode(folder.name), os.open(folder.parent, _FOLDER)
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            _own(parent, name)
            top = os.open(name, _FOLDER, dir_fd=parent)
            try:
                emptying = _Emptying(top)
                emptying.empty()
            finally:
                os.close(top)
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                cause = emptying.failed or error
                raise OSError(cause.errno, f"not all of it could be removed: {cause.strerror}", str(folder)) from cause
        finally:
            os.close(parent)


def discard(folder: Path) -> None:
    """Remove a directory; what cannot be removed is renamed, so that its name is free and no sweep meets it again.

    Never raises OSError: a directory that stays costs disk space, and nothing that was done may be lost over it.
    """
    try:
        remove_tree(folder)
    except OSError as error:
        place = folder.with_name(f"{SET_ASIDE}{folder.name}-{secrets.token_hex(4)}")
        try:
            folder.rename(place)
        except OSError:
            place = folder
        said = "%s; it was left as %s. Remove it by hand (see lsattr and the owner of its files)."
        log.warning(said, error, place)


class _Emptying:
    """The removal of everything in one directory.

    Attributes:
        failed: the first thing that went wrong.
    """

    def __init__(self, top: int) -> None:
        self.failed: OSError | None = None
        self._top = top
        self._prefix = secrets.token_hex(16).encode()
        self._moved = 0
        self._pending: deque[bytes] = deque()

    def empty(self) -> None:
        """Remove what can be removed."""
        self._clear(self._top)
        while self._pending:
            name = self._pending.popleft()
            try:
                folder = os.open(name, _FOLDER, dir_fd=self._top)
                try:
                    self._clear(folder)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=self._top)
            except OSError as error:
                self._note(error)

    def _clear(self, folder: int) -> None:
        """Remove the files of a directory, which frees space, and then move up its directories, which may need some."""
        folders: list[bytes] = []
        for name in map(os.fsencode, os.listdir(folder)):
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                folders.append(name)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno == errno.EPERM and _is_folder(folder, name):  # POSIX's own answer
                    folders.append(name)
                else:
                    self._note(error)
        for name in folders:
            try:
                self._take(folder, name)
            except OSError as error:
                self._note(error)

    def _take(self, folder: int, name: bytes) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _own(folder, name)
            if folder != self._top:
                self._moved += 1
                place = b"%s-%d" % (self._prefix, self._moved)
                os.rename(name, place, src_dir_fd=folder, dst_dir_fd=self._top)
                name = place
            self._pending.append(name)

    def _note(self, error: OSError) -> None:
        self.failed = self.failed or error


def _is_folder(parent: int, name: bytes) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def _own(parent: int, name: bytes) -> None:
    """Take back the rights on a directory, which the agent may have given up: moving it needs them, too."""
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(held).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # The descriptor names the directory itself, whatever is at its name by now.
            os.chmod(f"/proc/self/fd/{held}", stat.S_IRWXU)  # noqa: PTH101 - a descriptor, not a path
    finally:
        os.close(held)
