"""Directories that hostile programs write to, even at this moment: lock, list, read, copy and remove them.

Everything is opened by name in a directory that is open already and never through a link, so no path leads outside.
"""

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
"""Begins the names of directories that could not be removed, which nothing looks at again."""
DEEPEST = 100
"""Directories below one another; nobody's project comes near it, and each is opened on the way to the next."""
LONGEST_PATH = 3_000
"""Bytes of a path: Linux takes 4,095, and the place where it is checked out comes before it."""
_POLL_SECONDS = 0.02
_PIECE = 1024 * 1024
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# It is gone, or no directory; O_NOFOLLOW met a link; readlink met something else; a socket lies where a file was.
_CHANGED_KIND = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO})
_FULL = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM})

# Code points that HFS+ ignores in names, so that `.g<U+200C>it` is `.git` there; git refuses the same ones. This is
# Apple's list for names of files, not the set of characters that are invisible in a text.
_IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)
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


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock on `path` if nobody else does, and give back whether it is held; its file is removed afterwards."""
    descriptor = try_lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            release(path, descriptor)


def write_atomically(path: Path, text: str) -> None:
    """Write a file of the bot's own, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


async def in_thread(call: Callable[..., T], *args: object) -> T:
    """`asyncio.to_thread` for what must not go on when a lock is given up: who is cancelled waits for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """A directory's descriptor."""
    descriptor = os.open(root, OPEN_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened(root: int, path: bytes, *, make: bool = False) -> Iterator[int]:
    """Open a directory part by part, never through a link; `make` makes the parts that are missing."""
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
    except OSError as error:
        if error.errno in _CHANGED_KIND:
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
    except OSError as error:
        if error.errno in _CHANGED_KIND:
            return None
        raise


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


def open_own(name: bytes, flags: int, folder: int) -> int:
    """Open a file or directory; what the agent took our right to read from, it gets back first: the files are ours."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        _grant_owner(folder, name)
        return os.open(name, flags, dir_fd=folder)


def _grant_owner(folder: int, name: bytes) -> None:
    """Give the owner the rights on a directory that the agent may have taken away, or the right to read a file."""
    # The descriptor names the thing itself and follows no link, so nothing else can be given rights instead.
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(held).st_mode
        rights = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
        if mode & rights != rights:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(mode) | rights)  # noqa: PTH101 - a descriptor, not a path
    finally:
        os.close(held)


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def join(folder: bytes, name: bytes) -> bytes:
    """Put a path together; the root is the empty string."""
    return folder + b"/" + name if folder else name


def parents(paths: Collection[bytes]) -> set[bytes]:
    """Every directory that one of the paths is in."""
    found: set[bytes] = set()
    for path in paths:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition(b"/")[0]
    return found


def is_too_deep(path: bytes) -> bool:
    """Whether a path is longer, or leads further down, than the bot goes."""
    return len(path) > LONGEST_PATH or path.count(b"/") >= DEEPEST


def is_git_name(name: bytes) -> bool:
    """Whether some file system takes this name for `.git`."""
    return folded(name) in {".git", "git~1"}


def folded(name: bytes) -> str:
    """A name as the least careful file system reads it: without case, invisible characters, and dots at its end."""
    return os.fsdecode(name).translate(_IGNORED_BY_HFS).rstrip(". ").casefold()


async def cp(source: Path, target: Path, names: Sequence[str], *, times: bool = False) -> str:
    """Copy some names of a directory into another one; links are copied as links.

    Args:
        source: the directory.
        target: an existing directory; nothing of these names is in it.
        names: of files and directories in `source`.
        times: whether the copies keep the times at which their files were changed.

    Returns:
        What `cp` had to complain of, or nothing.
    """
    kept = ("--preserve=timestamps",) if times else ()
    ended = await run(
        (shutil.which("cp") or "cp", "-r", "-P", "--reflink=auto", *kept, "-t", str(target), "--", *names),
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        bounds=ProcessBounds(),
        cwd=source,
    )
    return "" if ended.code == 0 else ended.said.strip()[:500] or "cp gave no reason"


def remove_tree(folder: Path) -> None:
    """Remove a directory and all that is in it; nothing to do when it is missing.

    Raises:
        OSError: something in it could not be removed, e.g. because it is immutable; everything else is gone.
    """
    with suppress(FileNotFoundError):
        name, parent = os.fsencode(folder.name), os.open(folder.parent, OPEN_FOLDER)
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            _grant_owner(parent, name)
            top = os.open(name, OPEN_FOLDER, dir_fd=parent)
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

    A path may exceed `PATH_MAX`, and the depth a stack of calls or of open directories. So no path is built: each
    subdirectory that is not empty is moved up beside the others and emptied there. Two directories are open at a time,
    and no symbolic link is followed.

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
                folder = os.open(name, OPEN_FOLDER, dir_fd=self._top)
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
            _grant_owner(folder, name)  # moving it needs them, too
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
