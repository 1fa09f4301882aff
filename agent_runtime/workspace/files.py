"""Confined file access: everything that reads or writes a workspace by name comes through here."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Self

from agent_runtime.errors import ToolError, ToolErrorKind
from agent_runtime.workspace import confined, paths

_KINDS: dict[int, tuple[ToolErrorKind, str]] = {
    errno.ENOENT: ("FileNotFoundError", "does not exist"),
    errno.ENOTDIR: ("NotADirectoryError", "passes through something that is not a directory"),
    errno.EISDIR: ("IsADirectoryError", "is a directory"),
    errno.EACCES: ("PermissionError", "may not be opened: permission denied"),
    errno.EPERM: ("PermissionError", "may not be changed: operation not permitted"),
    errno.EXDEV: ("PermissionError", "leads out of the workspace; only files in it can be used here"),
    errno.ELOOP: ("PermissionError", "passes through links that loop or change while they are followed"),
    errno.ENXIO: ("PermissionError", "is not a regular file; only regular files can be used here"),
    errno.ENAMETOOLONG: ("ValueError", "has a component longer than the file system allows"),
    errno.ENOSPC: ("OSError", "could not be written: the disk is full; remove what is not needed"),
    errno.EDQUOT: ("OSError", "could not be written: the disk quota is used up; remove what is not needed"),
    errno.EROFS: ("PermissionError", "could not be written: the file system is read-only"),
}
_READ_CHUNK = 1 << 20


class Workspace:
    """One directory, held open by descriptor, and the files beneath it.

    Symbolic links are followed as long as they are relative and stay beneath the root, for writes too: the link stays,
    its target is written. A file is replaced as a whole, so its other hard links keep the old content.

    Attributes:
        root: the directory's absolute path on this machine.
    """

    def __init__(self, root: Path, *, seen_as: str | None = None) -> None:
        """Open the directory.

        Args:
            root: the directory.
            seen_as: its absolute path in the agent's eyes, where a sandbox shows it elsewhere.

        Raises:
            OSError: it is no directory that can be opened.
        """
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - links in the caller's own path are kept
        spellings = (seen_as, str(self.root), os.path.realpath(root))
        self._spellings = tuple(dict.fromkeys(name for name in spellings if name))
        self._root = os.open(root, confined.PATH_ONLY | os.O_DIRECTORY)
        self._open = confined.choose_opener(self._root)

    def close(self) -> None:
        """Give the descriptor back; idempotent."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, path: str) -> str:
        """The canonical path relative to the root, `.` for the root itself; what does not exist yet is fine.

        Raises:
            ToolError: the path is malformed, leaves the workspace or enters a git directory.
        """
        return "/".join(self._resolve(path)) or "."

    def exists(self, path: str) -> bool:
        """Whether something stands at this path.

        Raises:
            ToolError: as for `resolve`.
        """
        return self._status(path) is not None

    def size(self, path: str) -> int:
        """A file's size in bytes; 0 when there is none.

        Raises:
            ToolError: as for `resolve`.
        """
        status = self._status(path)
        return status.st_size if status else 0

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at this path.

        Raises:
            ToolError: as for `resolve`.
        """
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_file(self, path: str) -> bool:
        """Whether a regular file stands at this path.

        Raises:
            ToolError: as for `resolve`.
        """
        status = self._status(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def names(self, path: str) -> list[str]:
        """What a directory holds, sorted; directories end in `/`, git's own directory is left out.

        Raises:
            ToolError: as for `resolve`, or it is no directory.
        """
        parts = self._resolve(path)
        with (
            _told(path),
            confined.held(self._open(self._root, parts, os.O_RDONLY | os.O_DIRECTORY)) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            found = [f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in entries]
        return sorted(name for name in found if not paths.is_git(name.rstrip("/")))

    def read_bytes(self, path: str, limit: int) -> bytes:
        """The whole content of a regular file.

        Raises:
            ToolError: as for `resolve`; the file is missing, not regular, unreadable or larger than `limit` bytes.
        """
        parts = self._resolve(path)
        with _told(path):
            descriptor = self._open(self._root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            with confined.held(descriptor):
                status = os.fstat(descriptor)
                _require_regular(status.st_mode, path)
                data = _read(descriptor, limit + 1)
        if len(data) > limit:
            size = max(status.st_size, len(data))
            raise ToolError(
                f"{path!r} holds {size:,} bytes, more than the {limit:,} that can be read whole; "
                "look at a part of it with a shell command (head, tail, sed -n)",
                kind="ValueError",
            )
        return data

    def write_bytes(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Put `data` in place of a file in one step, making the directories it needs.

        Args:
            path: which file; a link beneath the root is written through.
            data: the whole new content.
            mode: permission bits; None keeps an existing file's, and gives a new one what the umask leaves.

        Raises:
            ToolError: as for `resolve`; something that is no regular file stands there, or the disk refuses.
        """
        parts = self._resolve(path)
        if not parts:
            raise ToolError(f"{path!r} is the workspace's own directory; name a file in it", kind="IsADirectoryError")
        with _told(path), confined.held(self._directory(parts[:-1])) as directory:
            old = _standing(directory, parts[-1])
            if old is not None:
                _require_regular(old.st_mode, path)
            _replace(directory, parts[-1], data, old, mode)

    def _resolve(self, path: str) -> tuple[str, ...]:
        given = paths.parts_of(path, self._spellings)
        with _told(path):
            parts = confined.canonical(self._root, given, self._open)
        paths.refuse_git(parts, path)
        return parts

    def _status(self, path: str) -> os.stat_result | None:
        parts = self._resolve(path)
        with _told(path):
            try:
                with confined.held(self._open(self._root, parts, confined.PATH_ONLY)) as descriptor:
                    return os.fstat(descriptor)
            except FileNotFoundError:
                return None

    def _directory(self, parts: Sequence[str]) -> int:
        """Open a directory for writing names into it; make it and its parents where they are missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self._open(self._root, parts, flags)
        except FileNotFoundError:
            with confined.held(self._directory(parts[:-1])) as parent:
                with contextlib.suppress(FileExistsError):  # someone else made it meanwhile; opening it decides
                    os.mkdir(parts[-1], dir_fd=parent)
                os.fsync(parent)
            return self._open(self._root, parts, flags)


def _read(descriptor: int, most: int) -> bytes:
    chunks: list[bytes] = []
    while most > 0 and (chunk := os.read(descriptor, min(most, _READ_CHUNK))):
        chunks.append(chunk)
        most -= len(chunk)
    return b"".join(chunks)


def _standing(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _replace(directory: int, name: str, data: bytes, old: os.stat_result | None, mode: int | None) -> None:
    if mode is None and old is not None:
        mode = stat.S_IMODE(old.st_mode)
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=directory)
    try:
        with confined.held(descriptor):
            _write(descriptor, data)
            _keep_owner(descriptor, old)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _keep_owner(descriptor: int, old: os.stat_result | None) -> None:
    """Give the new file its predecessor's owner, as an edit in place would have."""
    if old is None:
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # an ordinary user cannot; the content matters more than the owner
            os.fchown(descriptor, old.st_uid, old.st_gid)


def _require_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path!r} is a directory; name a file in it", kind="IsADirectoryError")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path!r} is not a regular file; only regular files can be used here", kind="PermissionError")


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the system says into a sentence about the path."""
    try:
        yield
    except OSError as error:
        _tell(path, error)


def _tell(path: str, error: OSError) -> NoReturn:
    kind, text = _KINDS.get(error.errno or 0, ("OSError", error.strerror or str(error)))
    raise ToolError(f"{path!r} {text}", kind=kind) from error
