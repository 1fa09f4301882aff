"""Confined access to files: every read and write of a workspace by name goes through `Workspace`.

No path, no symbolic link and no swap of a directory for a link leads out of the workspace, because each file is opened
beneath a descriptor of its root (`open_by_kernel`, `open_by_walking`), and git's own directories are refused in every
spelling (`refuse_git`). New content is staged beside a file and put in its place in one step; `apply_all` does that for
several files, all or none.
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
from agent_runtime.workspace.edits import with_lines

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
        scratch: Scratch | None = None,
        git_writable: bool = False,
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
            git_writable: whether files may be written that make a directory a git repository, or lie in such a
                directory. A `.git` stays refused.

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
        self._git_writable = git_writable
        self._seen_as = seen_as
        self._root = os.open(root if confined_to_root else "/", PATH_ONLY | os.O_DIRECTORY)
        # Also where nobody calls `close`: a sandbox's `/tmp` is closed after its last use.
        self._release = weakref.finalize(self, os.close, self._root)
        self._open = choose_opener(self._root)
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
        return _reopened, (self.root, self._seen_as, self.confined, self.readable, self._git_writable)

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
            held(self._open(self._root, parts, os.O_RDONLY | os.O_DIRECTORY)) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            found = [f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in entries]
        return sorted(name for name in found if not is_dot_git(name.rstrip("/")))

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
            with held(descriptor):
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

    def read_if_any(self, path: str, limit: int) -> bytes:
        """The whole content of a regular file; nothing where it cannot be read."""
        try:
            return self.read_bytes(path, limit)
        except ToolError:
            return b""

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
        self._refuse_repository(parts, path)
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
        *parents, name = parts = self._resolve(path) or (".",)
        self._refuse_repository(parts, path)
        with _told(path), held(self._open(self._root, parents, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode, path)
            os.unlink(name, dir_fd=directory)
            return None

    def is_temporary(self, path: str) -> bool:
        """Whether a path lies in the sandbox's own `/tmp`; the workspace itself may lie in the machine's."""
        scratch = self._scratch
        if scratch is None or not f"{path}/".startswith(f"{scratch.prefix}/"):
            return False
        return beneath(path, self._spellings) is None

    def mode(self, path: str) -> int | None:
        """A file's permission bits; None when there is none.

        Raises:
            ToolError: as for `resolve`.
        """
        status = self._status(path)
        return stat.S_IMODE(status.st_mode) if status else None

    def stamp(self, canonical: str) -> Stamp | None:
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
        return stamp_of(status) if status is not None else None

    def quick_stamp(self, canonical: str) -> Stamp | None:
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
            with held(self._open(self._root, parents, PATH_ONLY | os.O_DIRECTORY)) as directory:
                return stamp_of(os.stat(name, dir_fd=directory, follow_symlinks=False))
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
            given = parts_of(path, self._spellings, None if self.confined else self._home)
            parts = canonical(self._root, given, self._open, beneath=self.confined)
        refuse_git(parts, path)
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
                with held(self._open(self._root, parts, PATH_ONLY)) as descriptor:
                    return os.fstat(descriptor)
            except FileNotFoundError:
                return None

    def _refuse_repository(self, parts: Sequence[str], path: str) -> None:
        """Keep out of directories that git takes for repositories by their entries, and make none.

        Raises:
            ToolError: a directory on the way is one, or would become one.
        """
        if self._git_writable:
            return
        for depth, part in enumerate(parts):
            with _told(path):
                try:
                    with held(self._open(self._root, parts[:depth], PATH_ONLY | os.O_DIRECTORY)) as directory:
                        names = [name for name in REPOSITORY_ENTRIES if standing(directory, name) is not None]
                except FileNotFoundError:  # nor is there anything in it
                    names = []
            if is_git_directory([*names, part]):
                place = "/".join(parts[:depth]) or "."
                raise ToolError(
                    f"{path!r} cannot be written: git takes {place!r} for a repository, because it has HEAD, objects "
                    "and refs; the user's git would run programs of its configuration. Use other names, or /tmp; "
                    "`runtime.git_writable: true` allows it",
                    kind="PermissionError",
                )

    def _directory(self, parts: Sequence[str], made: list[Sequence[str]]) -> int:
        """Open a directory for writing names into it; make it and its parents where they are missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self._open(self._root, parts, flags)
        except FileNotFoundError:
            with (
                held(self._directory(parts[:-1], made)) as parent,
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
                held(self._open(self._root, parts[:-1], os.O_RDONLY | os.O_DIRECTORY)) as parent,
            ):
                os.rmdir(parts[-1], dir_fd=parent)


class Scratch:
    """The `/tmp` of the sandbox that runs now, or what that of the next one begins with.

    A sandbox starts with its first command and may end at any time, and its `/tmp` with it. What is written while none
    runs is kept in a private directory, and copied when one starts.

    Attributes:
        prefix: how its paths begin.
    """

    prefix = "/tmp"  # noqa: S108 - the sandbox's, never the host's

    def __init__(self) -> None:
        self._live: tuple[Workspace, Callable[[], bool]] | None = None
        self._kept: tuple[Workspace, PrivateDirectory] | None = None

    @property
    def files(self) -> Workspace:
        """Its files, by paths with the prefix; each operation asks for them again, since sandboxes come and go.

        Raises:
            ToolError: none runs, and this machine has no room to keep files for the next one.
        """
        live = self._live
        if live is not None and live[1]():
            return live[0]
        self._live = None
        if self._kept is None:
            try:
                directory = PrivateDirectory("codepilot-scratch-")
            except OSError as error:
                told = f"{self.prefix} cannot be used before a command has run: {error.strerror or error}"
                raise ToolError(told, kind="OSError") from error
            self._kept = Workspace(directory.path, seen_as=self.prefix, git_writable=True), directory
        return self._kept[0]

    def attach(self, root: int, alive: Callable[[], bool]) -> None:
        """Take over the `/tmp` of a sandbox that has started.

        What is kept for it and does not fit there is lost, as the sandbox's own files are when it ends; the model is
        told about a file that it knew and that is gone.

        Args:
            root: descriptor of the sandbox's root directory, which stays the caller's.
            alive: whether the sandbox still runs.

        Raises:
            OSError: the sandbox has ended, or has no `/tmp` of its own.
        """
        # An image may have a link there, which would lead from the root of this process.
        flags = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with held(os.open(self.prefix.removeprefix("/"), flags, dir_fd=root)) as directory:
            if os.path.samestat(os.fstat(directory), Path(self.prefix).stat()):
                raise OSError(f"{self.prefix} in the sandbox is the machine's own")
            live = Workspace(Path(f"/proc/self/fd/{directory}"), seen_as=self.prefix, git_writable=True)
        if self._kept is not None:
            files, kept = self._kept
            for path in kept.path.rglob("*"):  # only we write there, so there are no links
                if path.is_file():
                    name = f"{self.prefix}/{path.relative_to(kept.path)}"
                    with contextlib.suppress(
                        ToolError
                    ):  # the tmpfs is too small, or something of the machine is shown there
                        live.write_bytes(name, path.read_bytes(), mode=files.mode(name))
        self._live = live, alive
        self.clear()

    def detach(self) -> None:
        """Let go of a sandbox that ends."""
        self._live = None

    def clear(self) -> None:
        """Forget what is kept for the next sandbox; idempotent."""
        if self._kept is not None:
            self._kept[1].close()
        self._kept = None


def _reopened(
    root: Path,
    seen_as: str | None,
    confined_to_root: bool,  # noqa: FBT001 - called by pickle
    readable: Mapping[str, Path],
    git_writable: bool,  # noqa: FBT001 - the same
) -> Workspace:
    return Workspace(
        root, seen_as=seen_as, confined_to_root=confined_to_root, readable=readable, git_writable=git_writable
    )


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


MAX_BYTES = 10_000_000
"""Of a file that is read and changed as a text."""
_SHOWN = 40


Stamp = tuple[int, int, int, int]
"""Times of modification and of status change, size and inode of a file: changes whenever the file does."""
_GRAIN = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file with this status."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def is_recent(stamp: Stamp, looked: int) -> bool:
    """Return whether a file was changed so shortly before it was looked at that a later change may not show."""
    return max(stamp[:2]) + _GRAIN > looked


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """What is to become of one file.

    Attributes:
        path: which.
        data: its new content; None to remove it.
        old: the content that the change was worked out from; None when there is no file, or one that was not read.
        mode: permission bits of the new content; None keeps them.
        unread: whether it replaces a file that was not read, because it is large or no text.
    """

    path: str
    data: bytes | None
    old: bytes | None
    mode: int | None = None
    unread: bool = False


def apply_all(files: Workspace, changes: Sequence[StagedFile]) -> None:
    """Make several changes, or none.

    All contents are on the disk before the first takes its place; if one then cannot, what was done is taken back.
    Right before a file is replaced or removed it is read again, so that what someone else wrote meanwhile is not lost.

    Raises:
        ToolError: a change cannot be made, or a file is no longer as the change found it.
    """
    modes = [files.mode(change.path) for change in changes]
    done: list[tuple[StagedFile, int | None]] = []
    with contextlib.ExitStack() as stack:
        staged = [
            None if each.data is None else stack.enter_context(files.stage(each.path, each.data, mode=each.mode))
            for each in changes
        ]
        try:
            for change, content, mode in zip(changes, staged, modes, strict=True):
                _require_unchanged(files, change)
                if content is None:
                    files.delete(change.path)
                else:
                    files.put(change.path, content)
                done.append((change, mode))
        except ToolError:
            for change, mode in reversed(done):
                if change.old is None:
                    files.delete(change.path)
                else:
                    files.write_bytes(change.path, change.old, mode=mode)
            raise


def is_unchanged(files: Workspace, change: StagedFile) -> bool:
    """Whether a file is as a change found it."""
    now = _content(files, change.path)
    if change.unread:
        return now is None or decode(now) is None
    return now == change.old and (now is not None or files.mode(change.path) is None)


def _require_unchanged(files: Workspace, change: StagedFile) -> None:
    if is_unchanged(files, change):
        return
    now = _content(files, change.path)
    text = decode(now) if now is not None else None
    head = f"{change.path!r} was changed or removed by someone else in this very moment; nothing was written."
    if text is None:
        raise ToolError(f"{head} Read it again before you change it.", kind="ValueError")
    before = decode(change.old) if change.old is not None else None
    both = zip(before.lines if before else (), text.lines, strict=False)
    same = next((number for number, (old, new) in enumerate(both) if old != new), 0)
    raise ToolError(with_lines(head, text.lines, same + 1, same + _SHOWN), kind="ValueError")


def _content(files: Workspace, path: str) -> bytes | None:
    """A file's content; None when it is gone or too large to be a text that was worked on."""
    try:
        return files.read_bytes(path, MAX_BYTES)
    except ToolError as error:
        if error.kind in {"FileNotFoundError", "ValueError"}:
            return None
        raise


class Staged:
    """New content that is written and synced, but not yet in its place.

    Use as a context manager: whatever was not put in place by its end leaves nothing behind.
    """

    def __init__(
        self, directory: int, name: str, data: bytes, mode: int | None, undo: Callable[[], None] = lambda: None
    ) -> None:
        """Write and sync the content.

        Args:
            directory: descriptor of the directory, closed at the end.
            name: the file's name in it.
            data: the whole content.
            mode: permission bits; None keeps an existing file's, and gives a new one what the umask leaves.
            undo: called if the content is not put in place.

        Raises:
            OSError: the disk refuses; nothing is left behind.
        """
        self._directory, self._name, self._undo = directory, name, undo
        self._temporary = ""
        try:
            self._write(data, mode)
        except BaseException:  # whatever it was, nobody closes a file that was never staged
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self) -> None:
        """Take the file's place.

        The content is on the disk before, so that a crash leaves the old file or the new one, whole. The directory is
        not synced: which of the two it is does not matter, and waiting for it would double the cost of an edit.

        Raises:
            OSError: the file system refuses; the old file still stands.
        """
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._temporary, self._undo = "", lambda: None

    def close(self) -> None:
        """Remove what was not put in place; idempotent."""
        if self._directory < 0:
            return
        if self._temporary:
            with contextlib.suppress(FileNotFoundError):  # a program in the workspace was faster
                os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = -1
        self._undo()

    def _write(self, data: bytes, mode: int | None) -> None:
        old = standing(self._directory, self._name)
        if mode is None and old is not None:
            mode = stat.S_IMODE(old.st_mode)
        temporary = f".{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=self._directory)
        self._temporary = temporary
        with held(descriptor):
            _write(descriptor, data)
            new = os.fstat(descriptor)
            if old is not None and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
                # An ordinary user cannot; the content matters more than the owner.
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)


def standing(directory: int, name: str) -> os.stat_result | None:
    """What stands under a name, links not followed; None for nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def parts_of(path: str, roots: Iterable[str], home: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Split a path that control code gave into its components, `.` and empty ones left out.

    Args:
        path: relative to the workspace, or absolute.
        roots: the absolute spellings of the workspace's own path.
        home: the components of the workspace's own path, where files outside may be used, too: the answer then begins
            at the machine's root. None to refuse what is not beneath one of `roots`.

    Raises:
        ToolError: the path is empty, not printable text, refused, or enters a git directory.
    """
    _check_text(path)
    inside = beneath(path, roots)
    if inside is None and home is None:
        raise ToolError(
            f"{path!r} is outside the workspace {next(iter(roots), '')!r}; only files in it can be used here",
            kind="PermissionError",
        )
    parts = tuple(part for part in (path if inside is None else inside).split("/") if part not in {"", "."})
    refuse_git(parts, path)
    return parts if inside is None else (*(home or ()), *parts)


def beneath(path: str, roots: Iterable[str]) -> str | None:
    """The path from the workspace's root; None for an absolute one elsewhere."""
    if not path.startswith("/"):
        return path
    for root in roots:
        prefix = root.rstrip("/")
        if path == prefix or path.startswith(f"{prefix}/"):
            return path[len(prefix) + 1 :]
    return None


def in_line(path: str) -> str:
    """A path as a part of a line: quoted where it has characters that break or hide a line, or cannot be encoded."""
    return path if path.isprintable() else repr(path)


def refuse_git(parts: Iterable[str], path: str) -> None:
    """Keep out of git's own files, in every spelling that some file system takes for `.git`.

    Raises:
        ToolError: a component names a git directory.
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


_OPENAT2 = 437  # the same number on every architecture that Python's wheels are built for
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40  # as in path_resolution(7)

# Only Linux has the first, and Windows lacks the other.
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
Opener = Callable[[int, Sequence[str], int], int]


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


def open_by_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Open an existing file beneath `root` in one system call, openat2(2).

    The parts are canonical, so a link among them was swapped in since they were resolved; the kernel refuses it.

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


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


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


@contextlib.contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
