"""Lock, list, read, copy and remove directories that hostile programs may write to at the same time."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from bot.git.errors import WorkspaceError
from bot.git.process import ProcessBounds, run

T = TypeVar("T")
log = logging.getLogger(__name__)
SET_ASIDE = ".set-aside-"
"""Prefix of directories that could not be removed."""
MAX_DEPTH = 100
"""Limit of nested directories."""
MAX_PATH_BYTES = 3_000
"""Limit in bytes; Linux allows 4,095 including the checkout directory."""
_POLL_SECONDS = 0.02
_CHUNK = 1024 * 1024
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Removed, or no directory; a link with O_NOFOLLOW; readlink on no link; a socket instead of a file.
_CHANGED_KIND = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO})
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM})

# Code points that HFS+ ignores in names, so that `.g<U+200C>it` is `.git` there; git refuses the same ones. This is
# Apple's list for names of files, not the set of characters that are invisible in a text.
_IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)
Stamp = tuple[int, int, int, int, int]
"""Changes with a file's content or mode: inode, size, modification and change time in ns, mode."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    mode: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Folder:
    """Content of a directory, without special files and `.git` in any spelling."""

    files: dict[bytes, ScannedFile]
    folders: tuple[bytes, ...]


@asynccontextmanager
async def hold_lock(path: Path, *, seconds: float, once: bool = False) -> AsyncIterator[None]:
    """Hold the lock on `path`; the kernel releases it when the process dies.

    Args:
        once: whether to remove the file afterwards.

    Raises:
        WorkspaceError: timed out after `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while (descriptor := try_lock(path)) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise WorkspaceError(
                f"Another process has held {path} for more than {seconds:.0f} s.",
                "Find it with `fuser`; a git process that hangs can be killed safely.",
            ) from BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if once:
            release(path, descriptor)
        else:
            os.close(descriptor)


def try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the locked file.
        try:
            is_held = os.path.samestat(path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            is_held = False
    except BlockingIOError:
        is_held = False
    except BaseException:  # nothing else closes the descriptor
        os.close(descriptor)
        raise
    if not is_held:
        os.close(descriptor)
        return None
    return descriptor


def release(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    descriptor = try_lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            release(path, descriptor)


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


async def run_thread(call: Callable[..., T], *args: object) -> T:
    """Like `asyncio.to_thread`, but wait for the thread when cancelled, e.g. before releasing a lock."""
    future = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        return await asyncio.shield(future)
    finally:
        await asyncio.wait([future])


@contextmanager
def open_root(root: Path) -> Iterator[int]:
    descriptor = os.open(root, OPEN_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_below(root: int, path: bytes, *, make: bool = False) -> Iterator[int]:
    """Open a directory part by part without following links; `make` creates missing parts."""
    folder = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            below = open_own(part, OPEN_FOLDER, folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def walk_files(root: int, excluded: frozenset[bytes] = frozenset()) -> Iterator[tuple[bytes, ScannedFile]]:
    pending = [b""]
    while pending:
        path = pending.pop()
        folder = read_folder(root, path)
        if folder is None:
            continue
        for name, entry in folder.files.items():
            if (below := join_path(path, name)) not in excluded:
                yield below, entry
        pending.extend(
            below
            for name in folder.folders
            if (below := join_path(path, name)) not in excluded and not is_too_deep(below)
        )


def read_folder(root: int, path: bytes) -> Folder | None:
    files: dict[bytes, ScannedFile] = {}
    folders: list[bytes] = []
    try:
        with open_below(root, path) as folder, os.scandir(folder) as entries:
            for item in entries:
                name = os.fsencode(item.name)
                if is_git_name(name):
                    continue
                with suppress(FileNotFoundError):  # it has just vanished
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(name)
                    elif stat.S_ISLNK(status.st_mode):
                        files[name] = ScannedFile("120000", make_stamp(status))
                    elif stat.S_ISREG(status.st_mode):
                        mode = "100755" if status.st_mode & stat.S_IXUSR else "100644"
                        files[name] = ScannedFile(mode, make_stamp(status))
    except OSError as error:
        if error.errno in _CHANGED_KIND:
            return None
        raise
    return Folder(files, tuple(folders))


def read_file(root: int, path: bytes, mode: str, *, limit: int) -> bytes | None:
    """Read a file's bytes or a link's target; None if its kind changed.

    Returns at most `limit` + 1 bytes, so that the caller can tell a longer file.
    """
    content = BytesIO()
    return None if copy_file(root, path, mode, content, limit=limit) is None else content.getvalue()[: limit + 1]


def copy_file(root: int, path: bytes, mode: str, target: BinaryIO, *, limit: int) -> int | None:
    """Copy a file's bytes or a link's target, and return their number; None if its kind changed.

    The copy ends at some point beyond `limit` bytes.
    """
    parent, _, name = path.rpartition(b"/")
    try:
        with open_below(root, parent) as folder:
            if mode == "120000":
                return target.write(os.fsencode(os.readlink(name, dir_fd=folder)))
            descriptor = open_own(name, OPEN_FILE, folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                size = 0
                while size <= limit and (chunk := os.read(descriptor, _CHUNK)):
                    size += target.write(chunk)
                return size
            finally:
                os.close(descriptor)
    except OSError as error:
        if error.errno in _CHANGED_KIND:
            return None
        raise


def open_own(name: bytes, flags: int, folder: int) -> int:
    """Open a file or directory; restores read permission that the agent has removed."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        grant_owner(folder, name)
        return os.open(name, flags, dir_fd=folder)


def grant_owner(folder: int, name: bytes) -> None:
    """Give the owner of a file or directory the rights that the agent has removed."""
    # O_PATH refers to the file itself and follows no link, so no other file gets the permissions.
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        rights = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
        if mode & rights != rights:
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(mode) | rights)  # noqa: PTH101 - a descriptor, not a path
    finally:
        os.close(descriptor)


def make_stamp(status: os.stat_result) -> Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def join_path(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def parent_folders(paths: Collection[bytes]) -> set[bytes]:
    folders: set[bytes] = set()
    for path in paths:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition(b"/")[0]
    return folders


def is_too_deep(path: bytes) -> bool:
    return len(path) > MAX_PATH_BYTES or path.count(b"/") >= MAX_DEPTH


def is_git_name(name: bytes) -> bool:
    """Whether some file system treats this name as `.git`."""
    return fold_name(name) in {".git", "git~1"}


def fold_name(name: bytes) -> str:
    """Normalize a name like the most lenient file system: case, invisible characters, trailing dots."""
    return os.fsdecode(name).translate(_IGNORED_BY_HFS).rstrip(". ").casefold()


async def copy_names(source: Path, target: Path, names: Sequence[str]) -> str:
    """Copy names of one directory into another, and return the error output of `cp`; links are copied as links."""
    result = await run(
        (
            shutil.which("cp") or "cp",
            "-r",
            "-P",
            "--reflink=auto",
            "--preserve=timestamps",
            "-t",
            str(target),
            "--",
            *names,
        ),
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        bounds=ProcessBounds(),
        cwd=source,
    )
    return "" if result.code == 0 else result.stderr.strip()[:500] or "cp gave no reason"


def remove_tree(folder: Path) -> None:
    """Remove a directory, if it exists.

    Raises:
        OSError: an entry could not be removed; everything else is removed.
    """
    with suppress(FileNotFoundError):
        name, parent = os.fsencode(folder.name), os.open(folder.parent, OPEN_FOLDER)
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            grant_owner(parent, name)
            top = os.open(name, OPEN_FOLDER, dir_fd=parent)
            try:
                removal = _TreeRemoval(top)
                removal.empty()
            finally:
                os.close(top)
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                cause = removal.first_error or error
                raise OSError(cause.errno, f"not all of it could be removed: {cause.strerror}", str(folder)) from cause
        finally:
            os.close(parent)


def discard(folder: Path) -> None:
    """Remove a directory, or rename it so that no sweep meets it again.

    Never raises OSError: leftover files only cost disk space.
    """
    try:
        remove_tree(folder)
    except OSError as error:
        target = folder.with_name(f"{SET_ASIDE}{folder.name}-{secrets.token_hex(4)}")
        try:
            folder.rename(target)
        except OSError:
            target = folder
        message = "%s; it was left as %s. Remove it by hand (see lsattr and the owner of its files)."
        log.warning(message, error, target)


class _TreeRemoval:
    """Removes a directory's content, however deep.

    Paths may exceed `PATH_MAX`, and depth the stack or open files, so each nonempty subdirectory is moved to the top
    first.
    """

    def __init__(self, top: int) -> None:
        self.first_error: OSError | None = None
        self._top = top
        self._prefix = secrets.token_hex(16).encode()
        self._moved = 0
        self._pending: deque[bytes] = deque()

    def empty(self) -> None:
        self._clear(self._top)
        while self._pending:
            name = self._pending.popleft()
            try:
                folder = os.open(name, OPEN_FOLDER, dir_fd=self._top)
                try:
                    self._clear(folder)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=self._top)
            except OSError as error:
                self._record_error(error)

    def _clear(self, folder: int) -> None:
        """Remove files, which frees space, then move directories up, which may need some."""
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
                    self._record_error(error)
        for name in folders:
            try:
                self._move_up(folder, name)
            except OSError as error:
                self._record_error(error)

    def _move_up(self, folder: int, name: bytes) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            grant_owner(folder, name)  # required for moving, too
            if folder != self._top:
                self._moved += 1
                target = b"%s-%d" % (self._prefix, self._moved)
                os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._top)
                name = target
            self._pending.append(name)

    def _record_error(self, error: OSError) -> None:
        self.first_error = self.first_error or error


def _is_folder(parent: int, name: bytes) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False
