"""Keep mirrors small: prune what nothing holds, pack what many fetches left, remove those used longest ago."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bot.workspace.errors import WorkspaceError
from bot.workspace.mirror import KEPT, RECENT, RECENT_SECONDS, Mirror, MirrorLimits
from bot.workspace.removal import discard

log = logging.getLogger(__name__)

_REMOVED = ".removed-"
_BLOCK = 512
_DAY_SECONDS = 24 * 3600.0
_LOOSE_END_BYTES = 64 * 1024**2
# A git may outlive the bot that started it, and finish a fetch whose commit no ref holds yet.
_GRACE_SECONDS = 3600
# So long after its last use nothing of a mirror is recent any more.
_SETTLED_SECONDS = 2 * RECENT_SECONDS + 2 * _GRACE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """A mirror with the files of its last checkout.

    Attributes:
        used: when it was last used.
        size: bytes on the disk.
        repo_id: whose it is.
    """

    used: float
    size: int
    repo_id: int


class Upkeep:
    """The care for all mirrors below one directory.

    A mirror is a cache: all that is in it can be fetched again. What a job needs is held by its keep refs, and what was
    asked for lately by a ref that has the hour in its name. Nothing is touched without the mirror's lock.

    Args:
        folder: holds the mirrors.
        mirror: makes the one of a repository.
        limits: how large all of them may be together, and how long one stays unused.
    """

    def __init__(self, folder: Path, mirror: Callable[[int], Mirror], limits: MirrorLimits) -> None:
        self._folder = folder
        self._mirror = mirror
        self._limits = limits

    async def tidy(self) -> None:
        """Prune and pack each mirror that needs it; then remove unused ones, and others while all are too large."""
        for left in sorted(self._folder.glob(f"{_REMOVED}*")):
            await asyncio.to_thread(discard, left)
        for repo_id in self._ids():
            try:
                await self._prune(self._mirror(repo_id))
            except (WorkspaceError, OSError) as error:
                # One damaged mirror must not keep the others from it; its own jobs will say so.
                place = self._mirror(repo_id).path
                log.warning("mirror %s was not packed; if it is damaged, delete it: %s", place, error)
        sizes = [await asyncio.to_thread(self._size, repo_id) for repo_id in self._ids()]
        total = sum(each.size for each in sizes)
        allowed, oldest = self._limits.total_bytes, time.time() - self._limits.unused_seconds
        for each in sorted(sizes, key=lambda size: size.used):
            too_much = total > allowed or each.used < oldest
            if too_much and await self._removed(self._mirror(each.repo_id)):
                log.info("mirror %s was removed: all mirrors had %s bytes of %s", each.repo_id, total, allowed)
                total -= each.size
        if total > allowed:
            log.warning("the mirrors that jobs need have %s bytes; the limit is %s", total, allowed)

    def _ids(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.git") if path.stem.isdecimal())

    def _size(self, repo_id: int) -> _Size:
        mirror = self._mirror(repo_id)
        size = sum(map(_disk_bytes, _places(mirror)))
        return _Size(used=_changed_at(mirror.lock), size=size, repo_id=repo_id)

    async def _prune(self, mirror: Mirror) -> None:
        async with mirror.held():
            oldest = int(time.time()) // RECENT_SECONDS - 1
            listed = (await mirror.git.run("for-each-ref", "--format=%(refname)", RECENT)).decode().split()
            old = [ref for ref in listed if int(ref.removeprefix(RECENT).partition("/")[0]) < oldest]
            if old:
                await mirror.git.run("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in old).encode())
            if not await asyncio.to_thread(_is_due, mirror):
                return
            expiry = f"--prune={int(time.time()) - _GRACE_SECONDS}"
            # Unreachable objects go with their whole pack, and those of the last hour stay in one of their own.
            await mirror.git.run("gc", "--quiet", "--cruft", expiry)
            _note(mirror).touch()

    async def _removed(self, mirror: Mirror) -> bool:
        """Remove a mirror that no job holds and that was not asked lately; whether it was."""
        async with mirror.held():
            try:
                if await mirror.git.run("for-each-ref", "--count=1", KEPT, RECENT):
                    return False
            except WorkspaceError:  # it is damaged, and may still be in use; it was logged above
                return False
            # Renamed first: half a mirror would be taken for a whole one.
            for path in _places(mirror):
                if path.exists():
                    place = self._folder / f"{_REMOVED}{path.name}-{secrets.token_hex(4)}"
                    path.rename(place)
                    await asyncio.to_thread(discard, place)
        return True


def _places(mirror: Mirror) -> tuple[Path, Path, Path]:
    """The mirror, the files of its last checkout, and their code index."""
    return mirror.path, mirror.path.with_suffix(".files"), mirror.path.with_suffix(".index")


def _is_due(mirror: Mirror) -> bool:
    """Whether much lies outside the main pack, or there is something to prune that was not when it was last packed."""
    packs = sorted(pack.stat().st_size for pack in (mirror.path / "objects" / "pack").glob("*.pack"))
    if sum(packs[:-1]) > _LOOSE_END_BYTES:
        return True
    packed = _changed_at(_note(mirror)) or _changed_at(mirror.path / "HEAD")
    return time.time() - packed > _DAY_SECONDS and packed < _changed_at(mirror.lock) + _SETTLED_SECONDS


def _note(mirror: Mirror) -> Path:
    return mirror.path / "packed"


def _changed_at(path: Path) -> float:
    """When a file was last written; the beginning of time for one that is not there."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _disk_bytes(folder: Path) -> int:
    """What a directory takes on the disk, of any depth; what vanishes meanwhile counts for nothing."""
    total = 0
    with suppress(FileNotFoundError):
        for _, _, files, descriptor in os.fwalk(folder):
            for name in files:
                with suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * _BLOCK
    return total
