"""Cache results of a repository's setup for later jobs, under a key of their inputs.

Entries are written atomically and verified before use; no sandbox sees them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from bot.git.errors import WorkspaceError
from bot.git.filesystem import (
    SET_ASIDE,
    copy_names,
    discard,
    hold_lock,
    lock_if_free,
    open_root,
    remove_tree,
    walk_files,
)

log = logging.getLogger(__name__)

_SECONDS = 600.0
_NOTE, _FILES = "note.json", "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digest:
    digest: str
    size: int


class SetupCache:
    """Setup cache of this machine, shared by several worker processes.

    Args:
        root: created with mode 0700; no sandbox may read it.
        max_bytes: of all entries, least recently used evicted first; 0 disables the cache.
    """

    def __init__(self, root: Path, *, max_bytes: int, unused_seconds: float = inf) -> None:
        self._root = root
        self._max_bytes, self._unused_seconds = max_bytes, unused_seconds
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def restore(self, repo_id: int, key: str, workspace: Path, paths: Sequence[str]) -> bool:
        """Copy an entry into a workspace without running programs; return whether a valid entry exists.

        Raises:
            WorkspaceError: the copy failed and was removed.
        """
        entry = self._entry_path(repo_id, key)
        if not entry.is_dir():
            return False
        async with hold_lock(_lock_of(entry), seconds=_SECONDS, once=True):
            if not await asyncio.to_thread(_is_intact, entry):
                log.warning("setup cache: %s is damaged and was removed", entry)
                await asyncio.to_thread(discard, entry)
                return False
            for path in paths:
                _check_parents(workspace, path)
                if _exists(workspace / path):
                    raise WorkspaceError(f"`{path}` already exists.", "Cache only what `setup` creates.")
            try:
                for number, path in enumerate(paths):
                    await _copy(entry / _FILES / str(number), workspace, path)
            except WorkspaceError:
                # Only our own copies: nothing existed there, and no parent was a link.
                for path in paths:
                    await asyncio.to_thread(remove_tree, workspace / path)
                raise
            os.utime(entry)
            # The checkout may have been prepared before, and build tools compare the times of sources and results.
            written = (entry / _NOTE).stat().st_mtime_ns
            await asyncio.to_thread(_touch_older, workspace, frozenset(map(os.fsencode, paths)), written)
        return True

    async def keep(self, repo_id: int, key: str, workspace: Path, paths: Sequence[str]) -> None:
        """Store a copy of `paths`, unless the entry exists; no program may run in the workspace.

        Raises:
            WorkspaceError: they are too large, not plain files, or could not be copied.
        """
        entry = self._entry_path(repo_id, key)
        entry.parent.mkdir(mode=0o700, exist_ok=True)
        async with hold_lock(_lock_of(entry), seconds=_SECONDS, once=True):
            if entry.exists():
                return
            size = await asyncio.to_thread(_total_size, workspace, paths)
            if size > self._max_bytes:
                raise WorkspaceError(
                    f"{', '.join(paths)} have {size:,} bytes; the limit is {self._max_bytes:,}.",
                    "Cache less, or ask the operator to raise CODEPILOT_SETUP_CACHE_GB.",
                )
            partial = entry.with_suffix(".partial")
            try:
                await self._write(partial, workspace, paths)
                partial.rename(entry)
            finally:
                await asyncio.to_thread(discard, partial)
        await self.sweep()

    async def sweep(self) -> None:
        await asyncio.to_thread(self._evict)

    async def _write(self, partial: Path, workspace: Path, paths: Sequence[str]) -> None:
        await asyncio.to_thread(discard, partial)
        (partial / _FILES).mkdir(mode=0o700, parents=True)
        for number, path in enumerate(paths):
            target = partial / _FILES / str(number)
            target.mkdir()
            source = workspace / path
            if _exists(source) and (error := await copy_names(source.parent, target, [source.name])):
                raise WorkspaceError(f"`{path}` could not be cached: {error}", "Check whether the disk is full.")
        content = await asyncio.to_thread(_compute_digest, partial / _FILES)
        (partial / _NOTE).write_text(json.dumps({"digest": content.digest, "size": content.size}))

    def _entry_path(self, repo_id: int, key: str) -> Path:
        return self._root / str(repo_id) / key

    def _evict(self) -> None:
        entries = [path for path in self._root.glob("*/*") if path.is_dir() and not path.name.startswith(SET_ASIDE)]
        sizes = {path: _read_note(path).size for path in entries}
        total = sum(sizes.values())
        oldest = time.time() - self._unused_seconds
        for entry in sorted(entries, key=_used_at):
            is_partial = entry.suffix == ".partial"
            if total <= self._max_bytes and _used_at(entry) >= oldest and not is_partial:
                continue
            with lock_if_free(_lock_of(entry.with_suffix(""))) as is_held:
                if is_held:
                    discard(entry)
                    total -= sizes[entry]


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _lock_of(entry: Path) -> Path:
    return entry.with_suffix(".lock")


def _used_at(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0


def _read_note(entry: Path) -> _Digest:
    try:
        note = json.loads((entry / _NOTE).read_bytes())
        return _Digest(digest=str(note["digest"]), size=int(note["size"]))
    except (OSError, ValueError, KeyError, TypeError):  # damaged by a crash
        return _Digest(digest="", size=0)


def _is_intact(entry: Path) -> bool:
    try:
        return _compute_digest(entry / _FILES) == _read_note(entry)
    except (OSError, WorkspaceError):
        return False


async def _copy(folder: Path, workspace: Path, path: str) -> None:
    source, target = folder / Path(path).name, workspace / path
    if not _exists(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if error := await copy_names(folder, target.parent, [source.name]):
        raise WorkspaceError(f"`{path}` could not be copied: {error}", "Check whether the disk is full.")


def _touch_older(workspace: Path, excluded: frozenset[bytes], written: int) -> None:
    """Set the times of files from before `written`, in ns, to now; no program may run in the workspace."""
    with open_root(workspace) as root:
        for path, file in walk_files(root, excluded):
            if file.stamp[2] <= written:
                os.utime(path, dir_fd=root, follow_symlinks=False)


def _check_parents(workspace: Path, path: str) -> None:
    parent = workspace
    for part in Path(path).parts[:-1]:
        parent /= part
        if _exists(parent) and not stat.S_ISDIR(parent.lstat().st_mode):
            raise WorkspaceError(
                f"`{parent.relative_to(workspace)}`, on the way to `{path}`, is not a directory.", "Make it one."
            )


def _total_size(workspace: Path, paths: Sequence[str]) -> int:
    total = 0
    for path in paths:
        _check_parents(workspace, path)
        if _exists(workspace / path):
            total += sum(status.st_size for _, status in _walk(workspace / path) if stat.S_ISREG(status.st_mode))
    return total


def _compute_digest(folder: Path) -> _Digest:
    digest, size = hashlib.blake2b(digest_size=32), 0
    for path, status in _walk(folder):
        kind = stat.S_IFMT(status.st_mode) | status.st_mode & stat.S_IXUSR
        name = os.fsencode(path.relative_to(folder))
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            size += status.st_size
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "blake2b").digest()
        else:
            content = b""
        digest.update(b"%d %d %d\0" % (kind, len(name), len(content)) + name + content)
    return _Digest(digest=digest.hexdigest(), size=size)


def _walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    pending = [top]
    while pending:
        path = pending.pop()
        status = path.lstat()
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise WorkspaceError(f"`{path.name}` is a pipe, socket or device.", "Cache files and directories only.")
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            try:
                pending.extend(sorted(path.iterdir(), reverse=True))
            except PermissionError as error:
                raise WorkspaceError(f"`{path.name}` cannot be read.", "Grant its owner read permission.") from error
