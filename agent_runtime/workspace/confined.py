"""Open files beneath a directory descriptor in a way that no symbolic link and no swap can lead out of it.

Names come in canonical (no `.`, `..` or link in them), so a link found on the way means that someone swapped it in:
the kernel refuses it (`openat2(2)` with `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS`), and where
that call is missing or forbidden the walk by `O_NOFOLLOW`, one component at a time, does the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache

_OPENAT2 = 437  # the same number on every architecture that Python's wheels are built for
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40  # as in path_resolution(7)

# Only Linux has the first, and Windows lacks the other.
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
Opener = Callable[[int, Sequence[str], int], int]


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_by_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Open an existing file beneath `root` in one system call.

    Raises:
        OSError: as for `open`; `ELOOP` when a component is a link, `ENOSYS` or `EPERM` when the call is not available.
        ValueError: a component holds a null byte, at which the kernel would end the name.
    """
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    name = os.fsencode("/".join(parts) or ".")
    if b"\0" in name:
        raise ValueError("embedded null byte")  # as `os.open` does
    while True:
        descriptor = int(_libc().syscall(_OPENAT2, root, name, ctypes.byref(how), ctypes.sizeof(how)))
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code not in {errno.EINTR, errno.EAGAIN}:
            raise OSError(code, os.strerror(code), "/".join(parts))


def open_by_walking(root: int, parts: Sequence[str], flags: int) -> int:
    """The same by one `openat` a component.

    Raises:
        OSError: as for `open`; `ELOOP` or `ENOTDIR` when a component is a link.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if not parts:
        return os.open(".", flags, dir_fd=root)
    with contextlib.ExitStack() as stack:
        here = root
        for part in parts[:-1]:
            here = os.open(part, PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            stack.callback(os.close, here)
        descriptor = os.open(parts[-1], flags, dir_fd=here)
    if flags & PATH_ONLY == PATH_ONLY and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
    return descriptor


def choose_opener(root: int) -> Opener:
    """Ask the kernel once whether `openat2` is available: old kernels and some container filters lack it."""
    if sys.platform != "linux":  # elsewhere the number means something else
        return open_by_walking
    try:
        os.close(open_by_kernel(root, (), PATH_ONLY | os.O_DIRECTORY))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:
            raise
        return open_by_walking
    return open_by_kernel


def canonical(root: int, parts: Sequence[str], opener: Opener, *, beneath: bool = True) -> tuple[str, ...]:
    """Follow the links of a path as long as they stay beneath `root`; what does not exist is taken as it is written.

    With `beneath=False`, `root` must be the machine's own root, which no path can leave.

    Only names are decided here: open the answer only with an `Opener`, which refuses what changed since.

    Raises:
        OSError: `EXDEV` when the path leaves `root`, `ELOOP` for too many links, else as for `open`.
    """
    if _is_canonical(root, parts, opener):
        return tuple(parts)
    done: list[str] = []
    todo = deque(parts)
    links = 0
    while todo:
        part = todo.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            if not done and beneath:
                raise OSError(errno.EXDEV, "leads out of the workspace", "/".join(parts))
            del done[-1:]
            continue
        target = _link_target(root, done, part, opener)
        if target is None:
            done.append(part)
            continue
        links += 1
        if target.startswith("/") and beneath:
            raise OSError(errno.EXDEV, "is a link to an absolute path", "/".join(parts))
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
        if target.startswith("/"):
            done.clear()
        todo.extendleft(reversed(target.split("/")))
    return tuple(done)


@contextlib.contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_canonical(root: int, parts: Sequence[str], opener: Opener) -> bool:
    """Whether nothing is to be followed, by one look: the opener refuses links above the last component."""
    if not parts or not {"", ".", ".."}.isdisjoint(parts):
        return False
    try:
        return _link_target(root, parts[:-1], parts[-1], opener) is None
    except OSError:
        return False


def _link_target(root: int, parents: Sequence[str], name: str, opener: Opener) -> str | None:
    try:
        with held(opener(root, parents, PATH_ONLY | os.O_DIRECTORY)) as directory:
            return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # not a link; not there
            return None
        raise


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
