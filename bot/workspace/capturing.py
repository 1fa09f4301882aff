"""Read everything that is in a job's files, for a snapshot; hostile programs may have made it.

Every step goes down by directory descriptor and never through a symbolic link. Unlike `scan.py` this leaves out nothing
that has a content: directories called `.git` are taken, too, and so is what git ignores.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bot.workspace.changed import Baseline
from bot.workspace.errors import WorkspaceError
from bot.workspace.listing import is_too_deep
from bot.workspace.scan import OPEN_FILE, OPEN_FOLDER, Stamp, open_own, stamp_of
from bot.workspace.vault import Packs

_PIECE = 1024 * 1024
_MODES = 0o1777
"""What is kept of a mode: a program that runs with its owner's rights is never made."""
_MOST_TRACKED = 32 * 1024 * 1024
"""Bytes of a file that is taken from the commit again rather than stored."""
_TICK_NS = 20_000_000
"""A file changed so shortly before it was read may change again without a trace: the kernel's clock has ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """What a snapshot may hold; a sandbox's own limits are lower.

    Attributes:
        content: bytes of all files together.
        entries: files, links, directories, and what is left out.
        seconds: that taking it may last.
    """

    content: int = 12 * 1024**3
    entries: int = 250_000
    seconds: float = 600.0


class Entry(NamedTuple):
    """A file, link or directory; a plain tuple, since there are many and JSON writes it as a list.

    Attributes:
        path: from the root, as `os.fsdecode` spells it.
        kind: `file`, `folder`, `link`, or `again` for a file that has another name as well.
        mode: its permissions.
        modified: its modification time, in ns.
        size: bytes of a file.
        pieces: where the content is: pack, offset and length of each piece.
        blob: git's id of the content instead, where it is as in the commit.
        target: of a link; of `again` the other name.
        given: whether it is as it was given to the agent.
        changed: see `Baseline.changed_ns`; 0 for a directory, and for what is as it was given.
    """

    path: str
    kind: Literal["file", "folder", "link", "again"]
    mode: int
    modified: int
    size: int = 0
    pieces: list[list[int]] = []  # noqa: RUF012 - shared by all that have none, and never changed
    blob: str = ""
    target: str = ""
    given: bool = False
    changed: int = 0


class Known(NamedTuple):
    """What an earlier snapshot read."""

    stamp: Stamp
    entry: Entry


class Found(NamedTuple):
    """What lies in the directory that is open as `parent`."""

    path: str
    name: str
    parent: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        """Changes whenever the content or the mode does."""
        return stamp_of(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Everything that was found.

    Attributes:
        entries: each directory before what is in it.
        stamps: of the files among them that were read while nothing wrote to them, by path.
        skipped: how many pipes, sockets and devices there were, which have no content.
    """

    entries: list[Entry]
    stamps: dict[str, Stamp]
    skipped: int


def found_in(folder: int, path: str = "") -> Iterator[Found]:
    """Everything below a directory, each directory before what is in it.

    Raises:
        WorkspaceError: something is too deep.
    """
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda each: each.name)
    for each in listed:
        below = f"{path}/{each.name}" if path else each.name
        try:
            status = each.stat(follow_symlinks=False)
        except FileNotFoundError:  # it vanished while we looked
            continue
        yield Found(below, each.name, folder, status)
        if not stat.S_ISDIR(status.st_mode):
            continue
        if is_too_deep(os.fsencode(below)):
            raise WorkspaceError("The files of the job are nested too deep to be stored.", "Remove them.")
        try:
            held = open_own(os.fsencode(each.name), OPEN_FOLDER, folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            yield from found_in(held, below)
        finally:
            os.close(held)


class TreeReader:
    """One reading of a job's files.

    Args:
        packs: take the content of what is new.
        known: what an earlier snapshot read, by path.
        blobs: git's ids of the files of the commit, by path.
        given: the files as they were given to the agent.
        limits: what it may hold.
    """

    def __init__(
        self,
        packs: Packs,
        known: Mapping[str, Known],
        *,
        blobs: Mapping[str, str],
        given: Baseline,
        limits: SnapshotLimits,
    ) -> None:
        self._packs, self._known, self._blobs, self._given, self._limits = packs, known, blobs, given, limits
        self._left = limits.content
        self._deadline = time.monotonic() + limits.seconds
        self._names: dict[tuple[int, int], str] = {}
        self._stamps: dict[str, Stamp] = {}

    def of(self, root: int) -> Captured:
        """Read what is below a descriptor.

        Raises:
            WorkspaceError: it is more than a snapshot may hold.
            StorageError: the store failed.
        """
        entries: list[Entry] = []
        skipped = 0
        for found in found_in(root):
            if (entry := self._entry(found)) is not None:
                entries.append(entry)
            elif not stat.S_ISREG(found.status.st_mode):
                skipped += 1
            if len(entries) + skipped > self._limits.entries:
                raise _too_much(f"{self._limits.entries:,} files and directories")
        return Captured(entries=entries, stamps=self._stamps, skipped=skipped)

    def _entry(self, found: Found) -> Entry | None:
        status = found.status
        path = os.fsencode(found.path)
        given = self._given.entries.get(path)
        same = given is not None and given.stamp == found.stamp
        changed = 0 if same else self._given.changed_ns(path, found.stamp)
        common = (stat.S_IMODE(status.st_mode) & _MODES, status.st_mtime_ns)
        if stat.S_ISDIR(status.st_mode):
            return Entry(found.path, "folder", *common)
        if stat.S_ISLNK(status.st_mode):
            try:
                target = os.readlink(found.name, dir_fd=found.parent)
            except OSError:  # it is gone, or a link no longer
                return None
            return Entry(found.path, "link", *common, target=target, given=same, changed=changed)
        if not stat.S_ISREG(status.st_mode):
            return None
        first = self._names.setdefault((status.st_dev, status.st_ino), found.path) if status.st_nlink > 1 else ""
        if first and first != found.path:
            return Entry(found.path, "again", *common, target=first, given=same, changed=changed)
        return self._file(found, given=same, changed=changed)

    def _file(self, found: Found, *, given: bool, changed: int) -> Entry | None:
        known = self._known.get(found.path)
        if known is not None and known.stamp == found.stamp:
            self._take(known.entry.size)
            self._stamps[found.path] = known.stamp
            return known.entry._replace(given=given, changed=changed)
        now = time.time_ns()
        try:
            descriptor = open_own(os.fsencode(found.name), OPEN_FILE, found.parent)
        except OSError:  # it is gone, or something else has its name
            return None
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            blob = self._blobs.get(found.path, "")
            if blob and (before.st_size > _MOST_TRACKED or _blob_of(descriptor, before.st_size, blob) != blob):
                blob = ""
            if blob:
                self._take(before.st_size)
                size, pieces = before.st_size, list[list[int]]()
            else:
                size, pieces = self._packed(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        # Rights that were given back to read it are not the agent's.
        mode, times = stat.S_IMODE(found.status.st_mode) & _MODES, after.st_mtime_ns
        if stamp_of(before) == stamp_of(after) == found.stamp and after.st_ctime_ns + _TICK_NS < now:
            self._stamps[found.path] = found.stamp
        if stamp_of(after) != found.stamp:  # a program wrote to it meanwhile
            changed = after.st_ctime_ns
        return Entry(found.path, "file", mode, times, size, pieces, blob, given=given, changed=changed)

    def _packed(self, descriptor: int) -> tuple[int, list[list[int]]]:
        size, pieces = 0, list[list[int]]()
        os.lseek(descriptor, 0, os.SEEK_SET)
        while content := os.read(descriptor, _PIECE):
            size += len(content)
            self._take(len(content))
            for pack, offset, length in self._packs.add(content):
                last = pieces[-1] if pieces else None
                if last is not None and last[0] == pack and last[1] + last[2] == offset:
                    last[2] += length
                else:
                    pieces.append([pack, offset, length])
        return size, pieces

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_much(f"{self._limits.content:,} bytes")
        if time.monotonic() > self._deadline:
            raise _too_much(f"what {self._limits.seconds:.0f} s are enough for")


def blob_id(content: bytes, like: str) -> str:
    """Git's id of some content, by the digest that another id was made with."""
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()  # noqa: PLR2004 - hex digits
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()


def _blob_of(descriptor: int, size: int, like: str) -> str:
    content = b""
    while piece := os.read(descriptor, size + 1 - len(content)):
        content += piece
    return blob_id(content, like)


def _too_much(what: str) -> WorkspaceError:
    return WorkspaceError(f"The files of the job are more than {what}.", "Only this machine can continue the job.")
