"""Cache the results of a repository's setups for its later jobs, each under the key of what it depends on.

An entry appears whole or not at all, and is checked to the byte before it is used. No sandbox ever sees it: jobs get
copies. Who may keep something is the caller's to decide; see docs/decisions.
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
from bot.git.filesystem import SET_ASIDE, cp, discard, lock_if_free, locked, remove_tree

log = logging.getLogger(__name__)

_SECONDS = 600.0
_NOTE, _FILES = "note.json", "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What lies in a directory.

    Attributes:
        digest: of all names, kinds, rights to execute and contents.
        size: bytes of all files.
    """

    digest: str
    size: int


class SetupCache:
    """All that is kept on this machine, below one directory that several worker processes may share.

    Args:
        root: a directory of the bot's own that no sandbox may read; made with mode 0700.
        max_bytes: of all entries together; the one that was used longest ago goes first. 0 keeps nothing.
        unused_seconds: after which an entry is removed.
    """

    def __init__(self, root: Path, *, max_bytes: int, unused_seconds: float = inf) -> None:
        self._root = root
        self._max_bytes, self._unused_seconds = max_bytes, unused_seconds
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def restore(self, repo_id: int, key: str, workspace: Path, paths: Sequence[str]) -> bool:
        """Copy an entry into a workspace that no program runs in; whether there was a sound one.

        Args:
            repo_id: GitHub's numeric id; one repository never gets what another made.
            key: names the entry.
            workspace: a checkout, in which nothing is at `paths` yet.
            paths: what the entry holds, as it was kept.

        Raises:
            WorkspaceError: it could not be copied; what was, is gone again.
        """
        entry = self._entry(repo_id, key)
        if not entry.is_dir():
            return False
        async with locked(_lock_of(entry), seconds=_SECONDS, once=True):
            if not await asyncio.to_thread(_is_sound, entry):
                log.warning("setup cache: %s is damaged and was removed", entry)
                await asyncio.to_thread(discard, entry)
                return False
            for path in paths:
                _check_above(workspace, path)
                if _exists(workspace / path):
                    raise WorkspaceError(f"`{path}` already exists.", "Cache only what `setup` creates.")
            try:
                for number, path in enumerate(paths):
                    await _copy(entry / _FILES / str(number), workspace, path)
            except WorkspaceError:
                # These are ours alone: a moment ago nothing was there, and no link was on the way.
                for path in paths:
                    await asyncio.to_thread(remove_tree, workspace / path)
                raise
            os.utime(entry)
        return True

    async def keep(self, repo_id: int, key: str, workspace: Path, paths: Sequence[str]) -> None:
        """Keep a copy of `paths` of a workspace that no program runs in, unless there is one.

        Raises:
            WorkspaceError: they hold what cannot be kept, are too large, or could not be copied.
        """
        entry = self._entry(repo_id, key)
        entry.parent.mkdir(mode=0o700, exist_ok=True)
        async with locked(_lock_of(entry), seconds=_SECONDS, once=True):
            if entry.exists():
                return
            size = await asyncio.to_thread(_size, workspace, paths)
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
        """Remove what is too old, and what was used longest ago until the rest fits; what is in use stays."""
        await asyncio.to_thread(self._evict)

    async def _write(self, partial: Path, workspace: Path, paths: Sequence[str]) -> None:
        await asyncio.to_thread(discard, partial)
        (partial / _FILES).mkdir(mode=0o700, parents=True)
        for number, path in enumerate(paths):
            place = partial / _FILES / str(number)
            place.mkdir()
            source = workspace / path
            if _exists(source) and (said := await cp(source.parent, place, [source.name], times=True)):
                raise WorkspaceError(f"`{path}` could not be cached: {said}", "Check whether the disk is full.")
        content = await asyncio.to_thread(_content, partial / _FILES)
        (partial / _NOTE).write_text(json.dumps({"digest": content.digest, "size": content.size}))

    def _entry(self, repo_id: int, key: str) -> Path:
        return self._root / str(repo_id) / key

    def _evict(self) -> None:
        entries = [each for each in self._root.glob("*/*") if each.is_dir() and not each.name.startswith(SET_ASIDE)]
        sizes = {each: _noted(each).size for each in entries}
        total = sum(sizes.values())
        oldest = time.time() - self._unused_seconds
        for entry in sorted(entries, key=_used):
            left = entry.suffix == ".partial"
            if total <= self._max_bytes and _used(entry) >= oldest and not left:
                continue
            with lock_if_free(_lock_of(entry.with_suffix(""))) as is_held:
                if is_held:
                    discard(entry)
                    total -= sizes[entry]


def _exists(path: Path) -> bool:
    """Whether anything is at a path, a link to nowhere included."""
    return os.path.lexists(path)


def _lock_of(entry: Path) -> Path:
    return entry.with_suffix(".lock")


def _used(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0


def _noted(entry: Path) -> _Content:
    """What the note says; nothing when there is no note that could be read."""
    try:
        note = json.loads((entry / _NOTE).read_bytes())
        return _Content(digest=str(note["digest"]), size=int(note["size"]))
    except (OSError, ValueError, KeyError, TypeError):  # a note in whatever state a crash left it
        return _Content(digest="", size=0)


def _is_sound(entry: Path) -> bool:
    try:
        return _content(entry / _FILES) == _noted(entry)
    except (OSError, WorkspaceError):
        return False


async def _copy(place: Path, workspace: Path, path: str) -> None:
    """Copy what lies in a numbered directory to where it came from."""
    source, target = place / Path(path).name, workspace / path
    if not _exists(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if said := await cp(place, target.parent, [source.name], times=True):
        raise WorkspaceError(f"`{path}` could not be copied: {said}", "Check whether the disk is full.")


def _check_above(workspace: Path, path: str) -> None:
    """Let nothing lead out of the workspace on the way to a path.

    Raises:
        WorkspaceError: a directory on the way is none.
    """
    place = workspace
    for part in Path(path).parts[:-1]:
        place /= part
        if _exists(place) and not stat.S_ISDIR(place.lstat().st_mode):
            raise WorkspaceError(
                f"`{place.relative_to(workspace)}`, on the way to `{path}`, is not a directory.", "Make it one."
            )


def _size(workspace: Path, paths: Sequence[str]) -> int:
    """Bytes of all files at some paths.

    Raises:
        WorkspaceError: there is something that cannot be kept.
    """
    total = 0
    for path in paths:
        _check_above(workspace, path)
        if _exists(workspace / path):
            total += sum(status.st_size for _, status in _walk(workspace / path) if stat.S_ISREG(status.st_mode))
    return total


def _content(folder: Path) -> _Content:
    """What lies in a directory, read to the byte.

    Raises:
        WorkspaceError: there is something that cannot be kept.
    """
    digest, size = hashlib.blake2b(digest_size=32), 0
    for path, status in _walk(folder):
        kind = stat.S_IFMT(status.st_mode) | status.st_mode & stat.S_IXUSR
        name = os.fsencode(path.relative_to(folder))
        if stat.S_ISLNK(status.st_mode):
            held = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            size += status.st_size
            with path.open("rb") as file:
                held = hashlib.file_digest(file, "blake2b").digest()
        else:
            held = b""
        digest.update(b"%d %d %d\0" % (kind, len(name), len(held)) + name + held)
    return _Content(digest=digest.hexdigest(), size=size)


def _walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """A path and everything below it, in a fixed order; links are not followed.

    Raises:
        WorkspaceError: there is something else than files, directories and links, or it cannot be read.
    """
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
