"""Confined file access: everything that reads or writes a workspace by name uses this module."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from typing_extensions import override

from agent_runtime.core.errors import ToolError, ToolErrorKind
from agent_runtime.workspace import confined, paths
from agent_runtime.workspace.staging import Staged, standing

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
    errno.EFBIG: ("OSError", "could not be written: it would be larger than this process may make a file"),
    errno.EROFS: ("PermissionError", "could not be written: the file system is read-only"),
}
_READ_CHUNK = 1 << 20


class OtherFiles(Protocol):
    """Files elsewhere that can be read and written, too; see `Scratch`."""

    @property
    def prefix(self) -> str:
        """How their paths begin, in the agent's eyes."""
        ...

    @property
    def files(self) -> Workspace:
        """What holds them now."""
        ...


class Workspace:
    """One directory, held open by descriptor, and the files beneath it.

    Symbolic links are followed as long as they are relative and stay beneath the root, for writes too: the link stays,
    its target is written. A file is replaced as a whole, so its other hard links keep the old content.

    Attributes:
        root: the directory's absolute path on this machine.
        confined: whether no path may leave it.
        readable: the other directories that may be read, by their path in the agent's eyes.
    """

    def __init__(
        self,
        root: Path,
        *,
        seen_as: str | None = None,
        confined_to_root: bool = True,
        readable: Mapping[str, Path] | None = None,
        scratch: OtherFiles | None = None,
    ) -> None:
        """Open the directory.

        Args:
            root: the directory.
            seen_as: its absolute path in the agent's eyes, where a sandbox shows it elsewhere.
            confined_to_root: False lets paths leave the directory, for an agent that may do what its user may
                (`unsafe_mode`); git's own files and what is no regular file stay refused.
            readable: directories elsewhere that may be read, too, by their absolute path in the agent's eyes, such as
                `/logs`. Nothing writes there through here.
            scratch: the sandbox's own `/tmp`, which may be read and written, too; None where that is the machine's.

        Raises:
            OSError: it is not a directory that can be opened; or this is Windows, which cannot open a file beneath a
                directory that is held, so that nothing would keep paths from being swapped for links.
        """
        if os.open not in os.supports_dir_fd:
            raise OSError(
                errno.ENOTSUP,
                "Windows has no way to open files safely beneath a directory; run this in WSL or in a Linux container",
                str(root),
            )
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - links in the caller's own path are kept
        spellings = (seen_as, str(self.root), os.path.realpath(root))
        self._spellings = tuple(dict.fromkeys(name for name in spellings if name))
        self._home = () if confined_to_root else tuple(filter(None, os.path.realpath(root).split("/")))
        self.confined = confined_to_root
        self._seen_as = seen_as
        self._root = os.open(root if confined_to_root else "/", confined.PATH_ONLY | os.O_DIRECTORY)
        # Also where nobody calls `close`: a sandbox's `/tmp` is closed after its last use.
        self._release = weakref.finalize(self, os.close, self._root)
        self._open = confined.choose_opener(self._root)
        self._scratch = scratch
        self.readable = dict(readable or {})
        self._others = {prefix: Workspace(directory) for prefix, directory in self.readable.items()}

    def close(self) -> None:
        """Give the descriptor back; idempotent."""
        self._release()
        self._root = -1
        for other in self._others.values():
            other.close()

    @override
    def __reduce__(self) -> tuple[Callable[..., Workspace], tuple[object, ...]]:
        """For a worker process, which opens the same directory, and closes it; the sandbox's `/tmp` is not there."""
        return _reopened, (self.root, self._seen_as, self.confined, self.readable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, path: str) -> str:
        """The canonical path relative to the root, `.` for the root itself; what does not exist yet is fine.

        Raises:
            ToolError: the path is malformed, leaves the workspace or enters a git directory.
        """
        if other := self._elsewhere(path):
            prefix, place, rest = other
            return f"{prefix}/{place.resolve(rest)}".removesuffix("/.")
        parts, home = self._resolve(path), len(self._home)
        if parts[:home] == self._home:
            return "/".join(parts[home:]) or "."
        return "/" + "/".join(parts)  # outside the workspace

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
            ToolError: as for `resolve`, or it is not a directory.
        """
        if other := self._elsewhere(path):
            return other[1].names(other[2])
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
        if other := self._elsewhere(path):
            return other[1].read_bytes(other[2], limit)
        parts = self._resolve(path)
        with _told(path):
            descriptor = self._open(self._root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            with confined.held(descriptor):
                status = os.fstat(descriptor)
                _require_regular(status.st_mode, path)
                chunks, left = list[bytes](), limit + 1
                while left > 0 and (chunk := os.read(descriptor, min(left, _READ_CHUNK))):
                    chunks.append(chunk)
                    left -= len(chunk)
        data = b"".join(chunks)
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
            ToolError: as for `resolve`; something that is not a regular file is there, or the disk refuses.
        """
        with self.stage(path, data, mode=mode) as staged:
            self.put(path, staged)

    def stage(self, path: str, data: bytes, *, mode: int | None = None) -> Staged:
        """Write a file's new content beside it, making the directories it needs; see `write_bytes`.

        Raises:
            ToolError: as for `write_bytes`; nothing is left behind then.
        """
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.files.stage(path, data, mode=mode)
        parts = self._resolve(path)
        if parts == self._home:
            raise ToolError(f"{path!r} is the workspace's own directory; name a file in it", kind="IsADirectoryError")
        made: list[Sequence[str]] = []
        with _told(path):
            directory = self._directory(parts[:-1], made)
            with contextlib.ExitStack() as stack:
                stack.callback(self._unmake, made)
                stack.callback(os.close, directory)
                if old := standing(directory, parts[-1]):
                    _require_regular(old.st_mode, path)
                stack.pop_all()  # from here on the staged file closes and unmakes
            return Staged(directory, parts[-1], data, mode, lambda: self._unmake(made))

    def put(self, path: str, staged: Staged) -> None:
        """Put staged content in place.

        Raises:
            ToolError: the disk refuses; the old content still stands.
        """
        with _told(path):
            staged.put()

    def delete(self, path: str) -> None:
        """Remove a regular file.

        Raises:
            ToolError: as for `resolve`; it is missing, no regular file, or may not be removed.
        """
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.files.delete(path)
        *parents, name = self._resolve(path) or (".",)
        with _told(path), confined.held(self._open(self._root, parents, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode, path)
            os.unlink(name, dir_fd=directory)
            return None

    def is_temporary(self, path: str) -> bool:
        """Whether a path lies in the sandbox's own `/tmp`; the workspace itself may lie in the machine's."""
        scratch = self._scratch
        if scratch is None or not f"{path}/".startswith(f"{scratch.prefix}/"):
            return False
        return paths.beneath(path, self._spellings) is None

    def mode(self, path: str) -> int | None:
        """A file's permission bits; None when there is none.

        Raises:
            ToolError: as for `resolve`.
        """
        status = self._status(path)
        return stat.S_IMODE(status.st_mode) if status else None

    def stamp(self, canonical: str) -> tuple[int, int, int, int] | None:
        """What changes whenever a file does: times of modification and status, size and inode; None when it is gone.

        It looks under the name itself, which is quicker than `resolve`, and is to be compared only, never told.

        Args:
            canonical: a path that `resolve` gave.
        """
        if other := self._elsewhere(canonical):
            prefix, place, _ = other  # elsewhere than in `/tmp` only we write
            return place.stamp(canonical[len(prefix) + 1 :]) if self.is_temporary(canonical) else None
        try:
            return self.quick_stamp(canonical)
        except OSError:  # a directory may have become a link, which must not say what stands outside
            try:
                status = self._status(canonical)
            except ToolError:  # no longer to be reached: it is as good as gone
                return None
        return _stamp_of(status) if status is not None else None

    def quick_stamp(self, canonical: str) -> tuple[int, int, int, int] | None:
        """The same without following anything, for callers that must not be held up by what others made there.

        Raises:
            OSError: that is not enough: a directory on the way has become a link, say; or the file is not beneath the
                root.
        """
        if self._elsewhere(canonical):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), canonical)
        home = () if canonical.startswith("/") else self._home
        *parents, name = [*home, *canonical.strip("/").split("/")]
        try:
            with confined.held(self._open(self._root, parents, confined.PATH_ONLY | os.O_DIRECTORY)) as directory:
                return _stamp_of(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def open_directory(self, canonical: str) -> int:
        """A descriptor of a directory, to be closed by the caller.

        Raises:
            OSError: it is no longer a directory, or cannot be read.
        """
        if other := self._elsewhere(canonical):
            return other[1].open_directory(other[2])
        return self._open(self._root, self._resolve(canonical), os.O_RDONLY | os.O_DIRECTORY)

    def _resolve(self, path: str) -> tuple[str, ...]:
        with _told(path):
            if self.confined:
                parts = confined.canonical(self._root, paths.parts_of(path, self._spellings), self._open)
            else:
                given = paths.parts_anywhere(path, self._spellings, self._home)
                parts = confined.canonical(self._root, given, self._open, beneath=False)
        paths.refuse_git(parts, path)
        return parts

    def _elsewhere(self, path: str) -> tuple[str, Workspace, str] | None:
        """The other directory that a path lies in: its prefix, its files, and the path there."""
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.prefix, self._scratch.files, path
        for prefix, place in self._others.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return prefix, place, path[len(prefix) + 1 :] or "."
        return None

    def _status(self, path: str) -> os.stat_result | None:
        if other := self._elsewhere(path):
            return other[1]._status(other[2])  # noqa: SLF001 - of the same class
        parts = self._resolve(path)
        with _told(path):
            try:
                with confined.held(self._open(self._root, parts, confined.PATH_ONLY)) as descriptor:
                    return os.fstat(descriptor)
            except FileNotFoundError:
                return None

    def _directory(self, parts: Sequence[str], made: list[Sequence[str]]) -> int:
        """Open a directory for writing names into it; make it and its parents where they are missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self._open(self._root, parts, flags)
        except FileNotFoundError:
            with (
                confined.held(self._directory(parts[:-1], made)) as parent,
                contextlib.suppress(FileExistsError),  # someone else made it meanwhile; opening it decides
            ):
                os.mkdir(parts[-1], dir_fd=parent)
                made.append(parts)
            return self._open(self._root, parts, flags)

    def _unmake(self, made: Sequence[Sequence[str]]) -> None:
        """Take back directories that were made for a file which then was not written."""
        for parts in reversed(made):
            with (
                contextlib.suppress(OSError),  # someone else has put something there; it is theirs now
                confined.held(self._open(self._root, parts[:-1], os.O_RDONLY | os.O_DIRECTORY)) as parent,
            ):
                os.rmdir(parts[-1], dir_fd=parent)


def _reopened(root: Path, seen_as: str | None, confined_to_root: bool, readable: Mapping[str, Path]) -> Workspace:  # noqa: FBT001 - called by pickle
    return Workspace(root, seen_as=seen_as, confined_to_root=confined_to_root, readable=readable)


def _stamp_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


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
        kind, text = _KINDS.get(error.errno or 0, ("OSError", error.strerror or str(error)))
        raise ToolError(f"{path!r} {text}", kind=kind) from error
