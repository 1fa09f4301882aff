"""Confined access to a workspace's files through `Workspace`.

Files are opened beneath a descriptor of the root, so no path, link or swapped directory leads out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import sys
import unicodedata
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from typing_extensions import override

from agent_runtime.core.errors import ToolError, ToolErrorKind
from agent_runtime.core.text import REPOSITORY_ENTRIES, is_dot_git, is_git_directory
from agent_runtime.sandbox.protocol import PrivateDirectory
from agent_runtime.workspace.diffs import decode
from agent_runtime.workspace.edits import with_current_lines

_ERRORS: dict[int, tuple[ToolErrorKind, str]] = {
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


class Workspace:
    """A directory, held open by descriptor, and the files beneath it.

    Relative links beneath the root are followed. Methods raise ToolError as `resolve` does.

    Attributes:
        confined: paths may not leave the root.
        readable: further readable directories by the agent's path.
    """

    def __init__(
        self,
        root: Path,
        *,
        agent_path: str | None = None,
        confined_to_root: bool = True,
        readable: Mapping[str, Path] | None = None,
        scratch: Scratch | None = None,
        git_writable: bool = False,
    ) -> None:
        """Open the directory.

        Args:
            root: host path.
            agent_path: path in the sandbox.
            confined_to_root: False allows paths outside (`unsafe_mode`).
            readable: further directories by the agent's path.
            scratch: the sandbox's `/tmp`.
            git_writable: allow repositories except `.git`.

        Raises:
            OSError: no directory, or Windows.
        """
        if os.open not in os.supports_dir_fd:
            raise OSError(
                errno.ENOTSUP,
                "Windows has no way to open files safely beneath a directory; run this in WSL or in a Linux container",
                str(root),
            )
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - links in the caller's own path are kept
        spellings = (agent_path, str(self.root), os.path.realpath(root))
        self._spellings = tuple(dict.fromkeys(name for name in spellings if name))
        self._home = () if confined_to_root else tuple(filter(None, os.path.realpath(root).split("/")))
        self.confined = confined_to_root
        self._git_writable = git_writable
        self._agent_path = agent_path
        self._root = os.open(root if confined_to_root else "/", PATH_ONLY | os.O_DIRECTORY)
        # Also without `close`: a sandbox's `/tmp` is closed after its last use.
        self._release = weakref.finalize(self, os.close, self._root)
        self._open = choose_opener(self._root)
        self._scratch = scratch
        self.readable = dict(readable or {})
        self._mounts = {prefix: Workspace(directory) for prefix, directory in self.readable.items()}

    def close(self) -> None:
        """Close the descriptors; idempotent."""
        self._release()
        self._root = -1
        for mount in self._mounts.values():
            mount.close()

    @override
    def __reduce__(self) -> tuple[Callable[..., Workspace], tuple[object, ...]]:
        return _reopen, (self.root, self._agent_path, self.confined, self.readable, self._git_writable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, path: str) -> str:
        """Return the canonical path relative to the root; it may not exist.

        Raises:
            ToolError: malformed, outside, or in a git directory.
        """
        if mount := self._find_mount(path):
            prefix, place, rest = mount
            return f"{prefix}/{place.resolve(rest)}".removesuffix("/.")
        parts, home = self._resolve(path), len(self._home)
        if parts[:home] == self._home:
            return "/".join(parts[home:]) or "."
        return "/" + "/".join(parts)  # outside the workspace

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return self._status(path) is not None

    def size(self, path: str) -> int:
        """Return a file's size; 0 if missing."""
        status = self._status(path)
        return status.st_size if status else 0

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_file(self, path: str) -> bool:
        """Whether the path is a regular file."""
        status = self._status(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def list_directory(self, path: str) -> list[str]:
        """List a directory without `.git`; directories end in `/`."""
        if mount := self._find_mount(path):
            return mount[1].list_directory(mount[2])
        parts = self._resolve(path)
        with (
            _tool_errors(path),
            closing(self._open(self._root, parts, os.O_RDONLY | os.O_DIRECTORY)) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            names = [f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in entries]
        return sorted(name for name in names if not is_dot_git(name.rstrip("/")))

    def read_bytes(self, path: str, limit: int) -> bytes:
        """Read a regular file.

        Raises:
            ToolError: missing, irregular, unreadable or over `limit` bytes.
        """
        if mount := self._find_mount(path):
            return mount[1].read_bytes(mount[2], limit)
        parts = self._resolve(path)
        with _tool_errors(path):
            descriptor = self._open(self._root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            with closing(descriptor):
                status = os.fstat(descriptor)
                _require_regular(status.st_mode, path)
                chunks, remaining = list[bytes](), limit + 1
                while remaining > 0 and (chunk := os.read(descriptor, min(remaining, _READ_CHUNK))):
                    chunks.append(chunk)
                    remaining -= len(chunk)
        data = b"".join(chunks)
        if len(data) > limit:
            size = max(status.st_size, len(data))
            raise ToolError(
                f"{path!r} holds {size:,} bytes, more than the {limit:,} that can be read whole; "
                "look at a part of it with a shell command (head, tail, sed -n)",
                kind="ValueError",
            )
        return data

    def read_or_empty(self, path: str, limit: int) -> bytes:
        """Read a regular file; empty if unreadable."""
        try:
            return self.read_bytes(path, limit)
        except ToolError:
            return b""

    def write_bytes(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace a file atomically, creating directories. Mode None keeps permissions or applies the umask.

        Raises:
            ToolError: irregular, or a disk error.
        """
        with self.stage(path, data, mode=mode) as staged:
            self.put(path, staged)

    def stage(self, path: str, data: bytes, *, mode: int | None = None) -> StagedContent:
        """Write new content beside a file; see `write_bytes`. On errors nothing remains."""
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.files.stage(path, data, mode=mode)
        parts = self._resolve(path)
        if parts == self._home:
            raise ToolError(f"{path!r} is the workspace's own directory; name a file in it", kind="IsADirectoryError")
        self._refuse_repository(parts, path)
        created: list[Sequence[str]] = []
        with _tool_errors(path):
            directory = self._make_directory(parts[:-1], created)
            with contextlib.ExitStack() as stack:
                stack.callback(self._remove_directories, created)
                stack.callback(os.close, directory)
                if old := entry_status(directory, parts[-1]):
                    _require_regular(old.st_mode, path)
                stack.pop_all()  # the staged content cleans up from here on
            return StagedContent(directory, parts[-1], data, mode, lambda: self._remove_directories(created))

    def put(self, path: str, staged: StagedContent) -> None:
        """Move staged content into place. On errors the old content remains."""
        with _tool_errors(path):
            staged.put()

    def delete(self, path: str) -> None:
        """Remove a regular file."""
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.files.delete(path)
        *parents, name = parts = self._resolve(path) or (".",)
        self._refuse_repository(parts, path)
        with _tool_errors(path), closing(self._open(self._root, parents, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode, path)
            os.unlink(name, dir_fd=directory)
            return None

    def is_temporary(self, path: str) -> bool:
        """Whether a path is in the sandbox's own `/tmp`; the workspace may be in the machine's."""
        scratch = self._scratch
        if scratch is None or not f"{path}/".startswith(f"{scratch.prefix}/"):
            return False
        return relative_to_roots(path, self._spellings) is None

    def mode(self, path: str) -> int | None:
        """Return a file's permission bits, or None."""
        status = self._status(path)
        return stat.S_IMODE(status.st_mode) if status else None

    def stamp(self, canonical: str) -> Stamp | None:
        """Return a canonical path's stamp, only for comparison; None if missing."""
        if mount := self._find_mount(canonical):
            prefix, place, _ = mount  # only `/tmp` has other writers
            return place.stamp(canonical[len(prefix) + 1 :]) if self.is_temporary(canonical) else None
        try:
            return self.quick_stamp(canonical)
        except OSError:  # a directory may have become a link, which must reveal nothing outside
            try:
                status = self._status(canonical)
            except ToolError:  # no longer reachable
                return None
        return stamp_of(status) if status is not None else None

    def quick_stamp(self, canonical: str) -> Stamp | None:
        """Like `stamp`, without following links.

        Raises:
            OSError: a directory became a link, or the file is not beneath the root.
        """
        if self._find_mount(canonical):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), canonical)
        home = () if canonical.startswith("/") else self._home
        *parents, name = [*home, *canonical.strip("/").split("/")]
        try:
            with closing(self._open(self._root, parents, PATH_ONLY | os.O_DIRECTORY)) as directory:
                return stamp_of(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def open_directory(self, canonical: str) -> int:
        """Open a directory; the caller closes the descriptor.

        Raises:
            OSError: no directory, or unreadable.
        """
        if mount := self._find_mount(canonical):
            return mount[1].open_directory(mount[2])
        return self._open(self._root, self._resolve(canonical), os.O_RDONLY | os.O_DIRECTORY)

    def _resolve(self, path: str) -> tuple[str, ...]:
        with _tool_errors(path):
            requested = split_path(path, self._spellings, None if self.confined else self._home)
            parts = resolve_links(self._root, requested, self._open, beneath=self.confined)
        refuse_git(parts, path)
        return parts

    def _find_mount(self, path: str) -> tuple[str, Workspace, str] | None:
        """Return prefix, workspace and inner path."""
        if self.is_temporary(path) and self._scratch is not None:
            return self._scratch.prefix, self._scratch.files, path
        for prefix, place in self._mounts.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return prefix, place, path[len(prefix) + 1 :] or "."
        return None

    def _status(self, path: str) -> os.stat_result | None:
        if mount := self._find_mount(path):
            return mount[1]._status(mount[2])  # noqa: SLF001 - of the same class
        parts = self._resolve(path)
        with _tool_errors(path):
            try:
                with closing(self._open(self._root, parts, PATH_ONLY)) as descriptor:
                    return os.fstat(descriptor)
            except FileNotFoundError:
                return None

    def _refuse_repository(self, parts: Sequence[str], path: str) -> None:
        """Reject paths that enter or complete a directory that git takes for a repository."""
        if self._git_writable:
            return
        for depth, part in enumerate(parts):
            with _tool_errors(path):
                try:
                    with closing(self._open(self._root, parts[:depth], PATH_ONLY | os.O_DIRECTORY)) as directory:
                        names = [name for name in REPOSITORY_ENTRIES if entry_status(directory, name) is not None]
                except FileNotFoundError:  # a missing directory is empty
                    names = []
            if is_git_directory([*names, part]):
                place = "/".join(parts[:depth]) or "."
                raise ToolError(
                    f"{path!r} cannot be written: git takes {place!r} for a repository, because it has HEAD, objects "
                    "and refs; the user's git would run programs of its configuration. Use other names, or /tmp; "
                    "`runtime.git_writable: true` allows it",
                    kind="PermissionError",
                )

    def _make_directory(self, parts: Sequence[str], created: list[Sequence[str]]) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self._open(self._root, parts, flags)
        except FileNotFoundError:
            with (
                closing(self._make_directory(parts[:-1], created)) as parent,
                contextlib.suppress(FileExistsError),  # created concurrently; opening it decides
            ):
                os.mkdir(parts[-1], dir_fd=parent)
                created.append(parts)
            return self._open(self._root, parts, flags)

    def _remove_directories(self, created: Sequence[Sequence[str]]) -> None:
        for parts in reversed(created):
            with (
                contextlib.suppress(OSError),  # not empty: another program uses it
                closing(self._open(self._root, parts[:-1], os.O_RDONLY | os.O_DIRECTORY)) as parent,
            ):
                os.rmdir(parts[-1], dir_fd=parent)


class Scratch:
    """The `/tmp` of the running sandbox, or files stored for the next one."""

    prefix = "/tmp"  # noqa: S108 - the sandbox's, never the host's

    def __init__(self) -> None:
        self._live: tuple[Workspace, Callable[[], bool]] | None = None
        self._stored: tuple[Workspace, PrivateDirectory] | None = None

    @property
    def files(self) -> Workspace:
        """Workspace of the current `/tmp`, valid for one operation.

        Raises:
            ToolError: no sandbox runs, and the disk is full.
        """
        live = self._live
        if live is not None and live[1]():
            return live[0]
        self._live = None
        if self._stored is None:
            try:
                directory = PrivateDirectory("codepilot-scratch-")
            except OSError as error:
                message = f"{self.prefix} cannot be used before a command has run: {error.strerror or error}"
                raise ToolError(message, kind="OSError") from error
            self._stored = Workspace(directory.path, agent_path=self.prefix, git_writable=True), directory
        return self._stored[0]

    def attach(self, root: int, alive: Callable[[], bool]) -> None:
        """Switch to a sandbox's `/tmp`; copy stored files as far as they fit.

        Raises:
            OSError: the sandbox ended, or has no own `/tmp`.
        """
        # An image may have a link there, which would be resolved from this process's root.
        flags = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with closing(os.open(self.prefix.removeprefix("/"), flags, dir_fd=root)) as directory:
            if os.path.samestat(os.fstat(directory), Path(self.prefix).stat()):
                raise OSError(f"{self.prefix} in the sandbox is the machine's own")
            live = Workspace(Path(f"/proc/self/fd/{directory}"), agent_path=self.prefix, git_writable=True)
        if self._stored is not None:
            files, stored = self._stored
            for path in stored.path.rglob("*"):  # has no links, as no other program writes there
                if path.is_file():
                    name = f"{self.prefix}/{path.relative_to(stored.path)}"
                    # The tmpfs may be too small, or a host file mounted there.
                    with contextlib.suppress(ToolError):
                        live.write_bytes(name, path.read_bytes(), mode=files.mode(name))
        self._live = live, alive
        self.clear()

    def detach(self) -> None:
        """Forget the ending sandbox."""
        self._live = None

    def clear(self) -> None:
        """Remove stored files; idempotent."""
        if self._stored is not None:
            self._stored[1].close()
        self._stored = None


def _reopen(
    root: Path,
    agent_path: str | None,
    confined_to_root: bool,  # noqa: FBT001 - called by pickle
    readable: Mapping[str, Path],
    git_writable: bool,  # noqa: FBT001 - the same
) -> Workspace:
    return Workspace(
        root, agent_path=agent_path, confined_to_root=confined_to_root, readable=readable, git_writable=git_writable
    )


def _require_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path!r} is a directory; name a file in it", kind="IsADirectoryError")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path!r} is not a regular file; only regular files can be used here", kind="PermissionError")


@contextlib.contextmanager
def _tool_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind, text = _ERRORS.get(error.errno or 0, ("OSError", error.strerror or str(error)))
        raise ToolError(f"{path!r} {text}", kind=kind) from error


MAX_BYTES = 10_000_000
"""Of a text file to edit."""
_MAX_ERROR_LINES = 40


Stamp = tuple[int, int, int, int]
"""Modification time, status change time, size and inode."""
_TIME_GRANULARITY = 20_000_000  # ns; file times advance with the kernel's tick, at most 10 ms


def stamp_of(status: os.stat_result) -> Stamp:
    """Return a status's stamp."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def is_recent(stamp: Stamp, checked_at: int) -> bool:
    """Return whether a later change could have the same stamp."""
    return max(stamp[:2]) + _TIME_GRANULARITY > checked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A change of one file.

    Attributes:
        data: None to delete.
        old: None if missing or unread.
        mode: None keeps the permission bits.
        unread: replaces a large or binary file.
    """

    path: str
    data: bytes | None
    old: bytes | None
    mode: int | None = None
    unread: bool = False


def apply_changes(files: Workspace, changes: Sequence[StagedFile]) -> None:
    """Apply all changes or none; check first that no file has changed.

    Raises:
        ToolError: a change failed, or a file has changed.
    """
    modes = [files.mode(change.path) for change in changes]
    applied: list[tuple[StagedFile, int | None]] = []
    with contextlib.ExitStack() as stack:
        staged = [
            None if c.data is None else stack.enter_context(files.stage(c.path, c.data, mode=c.mode)) for c in changes
        ]
        try:
            for change, content, mode in zip(changes, staged, modes, strict=True):
                _require_unchanged(files, change)
                if content is None:
                    files.delete(change.path)
                else:
                    files.put(change.path, content)
                applied.append((change, mode))
        except ToolError:
            for change, mode in reversed(applied):
                if change.old is None:
                    files.delete(change.path)
                else:
                    files.write_bytes(change.path, change.old, mode=mode)
            raise


def is_unchanged(files: Workspace, change: StagedFile) -> bool:
    """Whether a file is as the change expects."""
    current = _read_current(files, change.path)
    if change.unread:
        return current is None or decode(current) is None
    return current == change.old and (current is not None or files.mode(change.path) is None)


def _require_unchanged(files: Workspace, change: StagedFile) -> None:
    if is_unchanged(files, change):
        return
    current = _read_current(files, change.path)
    text = decode(current) if current is not None else None
    head = f"{change.path!r} was changed or removed by someone else in this very moment; nothing was written."
    if text is None:
        raise ToolError(f"{head} Read it again before you change it.", kind="ValueError")
    before = decode(change.old) if change.old is not None else None
    both = zip(before.lines if before else (), text.lines, strict=False)
    same = next((number for number, (old, new) in enumerate(both) if old != new), 0)
    raise ToolError(with_current_lines(head, text.lines, same + 1, same + _MAX_ERROR_LINES), kind="ValueError")


def _read_current(files: Workspace, path: str) -> bytes | None:
    try:
        return files.read_bytes(path, MAX_BYTES)
    except ToolError as error:
        if error.kind in {"FileNotFoundError", "ValueError"}:
            return None
        raise


class StagedContent:
    """Synced content not yet in place; a context manager that removes it."""

    def __init__(
        self, directory: int, name: str, data: bytes, mode: int | None, undo: Callable[[], None] = lambda: None
    ) -> None:
        """Write and sync the content; takes over the `directory` descriptor.

        Raises:
            OSError: a disk error; nothing remains.
        """
        self._directory, self._name, self._undo = directory, name, undo
        self._temporary = ""
        try:
            self._write(data, mode)
        except BaseException:  # the caller has nothing to close yet
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self) -> None:
        """Rename into place.

        The directory is not synced: after a crash either file is fine, and it would double an edit's cost.

        Raises:
            OSError: a disk error; the old file remains.
        """
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._temporary, self._undo = "", lambda: None

    def close(self) -> None:
        """Remove content not put in place; idempotent."""
        if self._directory < 0:
            return
        if self._temporary:
            with contextlib.suppress(FileNotFoundError):  # removed by another program
                os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = -1
        self._undo()

    def _write(self, data: bytes, mode: int | None) -> None:
        old = entry_status(self._directory, self._name)
        if mode is None and old is not None:
            mode = stat.S_IMODE(old.st_mode)
        temporary = f".{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=self._directory)
        self._temporary = temporary
        with closing(descriptor):
            _write(descriptor, data)
            new = os.fstat(descriptor)
            if old is not None and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
                # Only root can; the content matters more than the owner.
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)


def entry_status(directory: int, name: str) -> os.stat_result | None:
    """Return the status of a directory entry, or None."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def split_path(path: str, roots: Iterable[str], home: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Split a path from control code; with `home`, outside paths start at `/`.

    Raises:
        ToolError: empty, unprintable, outside, or in a git directory.
    """
    _check_text(path)
    inside = relative_to_roots(path, roots)
    if inside is None and home is None:
        raise ToolError(
            f"{path!r} is outside the workspace {next(iter(roots), '')!r}; only files in it can be used here",
            kind="PermissionError",
        )
    parts = tuple(part for part in (path if inside is None else inside).split("/") if part not in {"", "."})
    refuse_git(parts, path)
    return parts if inside is None else (*(home or ()), *parts)


def relative_to_roots(path: str, roots: Iterable[str]) -> str | None:
    """Return the path relative to a root; None if outside."""
    if not path.startswith("/"):
        return path
    for root in roots:
        prefix = root.rstrip("/")
        if path == prefix or path.startswith(f"{prefix}/"):
            return path[len(prefix) + 1 :]
    return None


def quote_path(path: str) -> str:
    """Quote a path with unprintable characters."""
    return path if path.isprintable() else repr(path)


def refuse_git(parts: Iterable[str], path: str) -> None:
    """Reject git directories in any file system's spelling.

    Raises:
        ToolError: a part names one.
    """
    if any(is_dot_git(piece) for part in parts for piece in part.split("\\")):
        raise ToolError(
            f"{path!r} lies in a git directory, which belongs to the host; use git commands to look at history",
            kind="PermissionError",
        )


def _check_text(path: str) -> None:
    if not path:
        raise ToolError("path must name a file or directory in the workspace, got an empty text", kind="ValueError")
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in path):
        raise ToolError(
            f"path {path!r} holds control characters or unpaired surrogates; no such name is opened",
            kind="ValueError",
        )


_OPENAT2 = 437  # on every architecture with Python wheels
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40  # as in path_resolution(7)

# O_PATH is Linux only; Windows lacks both.
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
Opener = Callable[[int, Sequence[str], int], int]


def choose_opener(root: int) -> Opener:
    """Select `openat2` if available: old kernels and some container filters lack it."""
    if sys.platform != "linux":  # the system call's number differs elsewhere
        return open_by_walking
    try:
        os.close(open_by_kernel(root, (), PATH_ONLY | os.O_DIRECTORY))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:
            raise
        return open_by_walking
    return open_by_kernel


def open_by_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Open canonical parts beneath `root` by openat2(2), which refuses links.

    Raises:
        OSError: `ELOOP` for a link, `ENOSYS` or `EPERM` if unavailable, else as for `open`.
        ValueError: a null byte.
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
    """Open parts beneath `root` by one `openat` each.

    Raises:
        OSError: `ELOOP` or `ENOTDIR` for a link.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if not parts:
        return os.open(".", flags, dir_fd=root)
    with contextlib.ExitStack() as stack:
        directory = root
        for part in parts[:-1]:
            directory = os.open(part, PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            stack.callback(os.close, directory)
        descriptor = os.open(parts[-1], flags, dir_fd=directory)
    if flags & PATH_ONLY == PATH_ONLY and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
    return descriptor


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def resolve_links(root: int, parts: Sequence[str], opener: Opener, *, beneath: bool = True) -> tuple[str, ...]:
    """Resolve links beneath `root`; parts may not exist.

    Open the result only with an `Opener`, which refuses later changes.

    Raises:
        OSError: `EXDEV` outside `root`, `ELOOP` for too many links.
    """
    if _is_canonical(root, parts, opener):
        return tuple(parts)
    resolved: list[str] = []
    pending = deque(parts)
    links = 0
    while pending:
        part = pending.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            if not resolved and beneath:
                raise OSError(errno.EXDEV, "leads out of the workspace", "/".join(parts))
            del resolved[-1:]
            continue
        target = _link_target(root, resolved, part, opener)
        if target is None:
            resolved.append(part)
            continue
        links += 1
        if target.startswith("/") and beneath:
            raise OSError(errno.EXDEV, "is a link to an absolute path", "/".join(parts))
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
        if target.startswith("/"):
            resolved.clear()
        pending.extendleft(reversed(target.split("/")))
    return tuple(resolved)


def _is_canonical(root: int, parts: Sequence[str], opener: Opener) -> bool:
    if not parts or not {"", ".", ".."}.isdisjoint(parts):
        return False
    try:
        return _link_target(root, parts[:-1], parts[-1], opener) is None
    except OSError:
        return False


def _link_target(root: int, parents: Sequence[str], name: str, opener: Opener) -> str | None:
    try:
        with closing(opener(root, parents, PATH_ONLY | os.O_DIRECTORY)) as directory:
            return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # no link; missing
            return None
        raise


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
