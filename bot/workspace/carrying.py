"""Carry a job's changed files as bytes to a machine that has none of them but fetches the same commit."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bot.workspace.changed import Baseline
from bot.workspace.errors import ChangeError
from bot.workspace.scan import ScannedFile, Stamp, is_git_name, opened_root, read_file, stamp_of

MAX_CARRIED_BYTES = 20 * 1024 * 1024
_MAX_FILES = 2_000
_LINK = "120000"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """A file or link that differs from the commit.

    Attributes:
        path: relative to the repository's root.
        mode: git's mode, `100644`, `100755` or `120000`.
        content: its bytes; of a link, its target.
        changed: see `Baseline.changed_ns`; 0 where an earlier version did not record it.
    """

    path: bytes
    mode: str
    content: bytes
    changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a workspace holds beyond its commit and what set-up makes; files that git ignores are no part of it.

    Attributes:
        files: what was changed or is new.
        gone: what is in the commit and was removed.
    """

    files: tuple[CarriedFile, ...] = ()
    gone: tuple[bytes, ...] = ()


def take(root: Path, present: Mapping[bytes, ScannedFile], gone: tuple[bytes, ...], baseline: Baseline) -> Carried:
    """Read what changed; nothing outside of `root` is read, whatever programs do there meanwhile.

    Raises:
        ChangeError: it is more than can be carried.
    """
    files, left = [], MAX_CARRIED_BYTES
    if len(present) > _MAX_FILES or sum(entry.stamp[1] for entry in present.values()) > left:
        raise _too_much()
    with opened_root(root) as place:
        for path, entry in sorted(present.items()):
            content = read_file(place, path, entry.mode, limit=left)
            if content is None:  # it went, or became something else, in this moment
                continue
            left -= len(content)
            if left < 0:
                raise _too_much()
            changed = baseline.changed_ns(path, entry.stamp)
            files.append(CarriedFile(path=path, mode=entry.mode, content=content, changed=changed))
    return Carried(files=tuple(files), gone=gone)


def put(root: Path, carried: Carried) -> dict[bytes, tuple[Stamp, int]]:
    """Make the same changes in a checkout that no program runs in; what set-up left there leads nowhere else.

    Returns:
        The files that were written, as in `Baseline.restored`.

    Raises:
        ChangeError: something stands in the way.
    """
    restored = dict[bytes, tuple[Stamp, int]]()
    with opened_root(root) as place:
        for path in carried.gone:
            _remove(place, path)
        for file in carried.files:
            try:
                stamp = _write(place, file)
            except OSError as error:
                raise ChangeError(
                    f"`{os.fsdecode(file.path)}` cannot be restored: {error.strerror}.", "Give the command again."
                ) from error
            if file.changed:
                restored[file.path] = stamp, file.changed
    return restored


def _write(root: int, file: CarriedFile) -> Stamp:
    folder, _, name = file.path.rpartition(b"/")
    with _below(root, folder, make=True) as place:
        _clear(place, name)
        if file.mode == _LINK:
            os.symlink(file.content, name, dir_fd=place)
        else:
            rights = 0o755 if file.mode == "100755" else 0o644
            with os.fdopen(os.open(name, _NEW_FILE, rights, dir_fd=place), "wb") as target:
                target.write(file.content)
        return stamp_of(os.stat(name, dir_fd=place, follow_symlinks=False))


def _clear(folder: int, name: bytes) -> None:
    """Take away what has the name: a file, a link, or a directory with nothing in it."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _remove(root: int, path: bytes) -> None:
    """Remove a file, and the directories that are empty then."""
    while path:
        folder, _, name = path.rpartition(b"/")
        try:
            with _below(root, folder) as place:
                _clear(place, name)
        except OSError:  # it is not there any more, or not all that was in the directory is gone
            return
        path = folder


@contextmanager
def _below(root: int, path: bytes, *, make: bool = False) -> Iterator[int]:
    """Open a directory part by part, never through a link."""
    place = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            if part in {b".", b".."} or is_git_name(part):
                raise PermissionError(None, "its path leads outside the workspace")
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=place)
            below = os.open(part, _FOLDER, dir_fd=place)
            os.close(place)
            place = below
        yield place
    finally:
        os.close(place)


def _too_much() -> ChangeError:
    return ChangeError(
        f"The change has more than {_MAX_FILES:,} files or {MAX_CARRIED_BYTES // 1024**2} MiB, which is too large "
        "for a waiting workflow run.",
        "Split the task.",
    )
