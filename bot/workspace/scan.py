"""Walk a directory that hostile programs may write to, at this moment, without leaving it.

Every step goes down by directory descriptor and never through a symbolic link, so nothing outside can be listed or
read however names are swapped meanwhile. Git itself never looks at the directory: it is given copies.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from bot.workspace.listing import folded, is_too_deep

_PIECE = 1024 * 1024
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


Stamp = tuple[int, int, int, int, int]
"""Changes whenever the content or the mode of a file does: inode, size, modification and change time in ns, mode."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file or symbolic link as it lies in the directory.

    Attributes:
        mode: git's mode, `100644`, `100755` or `120000`.
        stamp: of the file.
    """

    mode: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Folder:
    """What one directory holds.

    Attributes:
        files: name to entry; sockets, pipes and devices are left out.
        folders: names of subdirectories, without `.git` in any spelling.
    """

    files: dict[bytes, ScannedFile]
    folders: tuple[bytes, ...]


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def is_git_name(name: bytes) -> bool:
    """Whether some file system takes this name for `.git`."""
    return folded(name) in {".git", "git~1"}


def read_folder(root: int, path: bytes) -> Folder | None:
    """List the directory `path` below the descriptor `root`; None when it is a directory no longer."""
    files: dict[bytes, ScannedFile] = {}
    folders: list[bytes] = []
    try:
        with opened(root, path) as folder, os.scandir(folder) as entries:
            for found in entries:
                name = os.fsencode(found.name)
                if is_git_name(name):
                    continue
                with suppress(FileNotFoundError):  # it vanished while we looked
                    status = found.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(name)
                    elif stat.S_ISLNK(status.st_mode):
                        files[name] = ScannedFile("120000", stamp_of(status))
                    elif stat.S_ISREG(status.st_mode):
                        mode = "100755" if status.st_mode & stat.S_IXUSR else "100644"
                        files[name] = ScannedFile(mode, stamp_of(status))
    except (FileNotFoundError, NotADirectoryError, OSError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) or _is_link(error):
            return None
        raise
    return Folder(files, tuple(folders))


def read_file(root: int, path: bytes, mode: str, *, limit: int) -> bytes | None:
    """Read what git would store for `path`, the bytes or a link's target.

    None when it changed its kind meanwhile. Of a longer one the first `limit` + 1 bytes, so that the caller can tell.
    """
    content = BytesIO()
    return None if copy_file(root, path, mode, content, limit=limit) is None else content.getvalue()[: limit + 1]


def copy_file(root: int, path: bytes, mode: str, target: BinaryIO, *, limit: int) -> int | None:
    """Write what git would store for `path` to a file; how many bytes it were.

    None when it changed its kind meanwhile. More than `limit` bytes are cut at some place beyond it.
    """
    parent, _, name = path.rpartition(b"/")
    try:
        with opened(root, parent) as folder:
            if mode == "120000":
                return target.write(os.fsencode(os.readlink(name, dir_fd=folder)))
            return _copied(open_own(name, OPEN_FILE, folder), target, limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if _is_link(error):
            return None
        raise


def walk(root: int, left_out: frozenset[bytes] = frozenset()) -> Iterator[tuple[bytes, ScannedFile]]:
    """Every file and link below `root`, by path from there, but for what is in `left_out` or too deep."""
    pending = [b""]
    while pending:
        path = pending.pop()
        folder = read_folder(root, path)
        if folder is None:
            continue
        for name, entry in folder.files.items():
            if (below := join(path, name)) not in left_out:
                yield below, entry
        pending.extend(
            below for name in folder.folders if (below := join(path, name)) not in left_out and not is_too_deep(below)
        )


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """A directory's descriptor."""
    descriptor = os.open(root, OPEN_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def join(folder: bytes, name: bytes) -> bytes:
    """Put a path together; the root is the empty string."""
    return folder + b"/" + name if folder else name


def _copied(descriptor: int, target: BinaryIO, limit: int) -> int | None:
    """Copy a regular file, which is closed then; None for anything else."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        size = 0
        while size <= limit and (piece := os.read(descriptor, _PIECE)):
            size += target.write(piece)
        return size
    finally:
        os.close(descriptor)


@contextmanager
def opened(root: int, path: bytes) -> Iterator[int]:
    """Open a directory part by part, never through a link."""
    folder = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            below = open_own(part, OPEN_FOLDER, folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_own(name: bytes, flags: int, folder: int) -> int:
    """Open a file or directory; what the agent took our right to read from, it gets back first: the files are ours."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        # The descriptor names the thing itself and follows no link, so nothing else can be given rights instead.
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            mode = os.fstat(held).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise
            rights = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(mode) | rights)  # noqa: PTH101 - a descriptor, not a path
        finally:
            os.close(held)
        return os.open(name, flags, dir_fd=folder)


def _is_link(error: OSError) -> bool:
    # O_NOFOLLOW met a link; readlink met something else; a socket lies where a file was.
    return error.errno in {errno.ELOOP, errno.EINVAL, errno.ENXIO}
