"""A file's new content beside it, ready to take its place in one step; and several of them, all or none."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import confined
from agent_runtime.workspace.text import decode
from agent_runtime.workspace.views import listed

_LARGEST = 10_000_000  # bytes
_AROUND, _SHOWN = 3, 40


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
        with confined.held(descriptor):
            _write(descriptor, data)
            new = os.fstat(descriptor)
            if old is not None and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
                # An ordinary user cannot; the content matters more than the owner.
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)


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


class WritableFiles(Protocol):
    """What is needed of a workspace."""

    def stage(self, path: str, data: bytes, *, mode: int | None = None) -> contextlib.AbstractContextManager[Staged]:
        """Prepare a file's new content."""
        ...

    def mode(self, path: str) -> int | None:
        """Permission bits; None when there is no file."""
        ...

    def read_bytes(self, path: str, limit: int) -> bytes:
        """A file's content."""
        ...

    def put(self, path: str, staged: Staged) -> None:
        """Put prepared content in place."""
        ...

    def write_bytes(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Put content in place of a file."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file."""
        ...


def apply_all(files: WritableFiles, changes: Sequence[StagedFile]) -> None:
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


def standing(directory: int, name: str) -> os.stat_result | None:
    """What stands under a name, links not followed; None for nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_unchanged(files: WritableFiles, change: StagedFile) -> bool:
    """Whether a file is as a change found it."""
    now = _content(files, change.path)
    if change.unread:
        return now is None or decode(now) is None
    return now == change.old and (now is not None or files.mode(change.path) is None)


def _require_unchanged(files: WritableFiles, change: StagedFile) -> None:
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
    first, last = max(1, same + 1 - _AROUND), min(len(text.lines), same + _SHOWN)
    shown, _ = listed(text.lines, first, last) if first <= last else ([], 0)
    raise ToolError("\n".join([f"{head} It has {len(text.lines)} lines; now:", *shown]), kind="ValueError")


def _content(files: WritableFiles, path: str) -> bytes | None:
    """A file's content; None when it is gone or too large to be a text that was worked on."""
    try:
        return files.read_bytes(path, _LARGEST)
    except ToolError as error:
        if error.kind in {"FileNotFoundError", "ValueError"}:
            return None
        raise


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
