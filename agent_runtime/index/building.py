"""Bring an index up to date with a workspace. Runs in a worker process; writes nothing itself."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from agent_runtime.core.errors import ToolError
from agent_runtime.index.languages import is_installed, is_test, language_of
from agent_runtime.index.parsing import ParsedFile, TooSlowError, parse
from agent_runtime.index.store import SCHEMA, FileContent, FileStamp, IndexStore, digest_of
from agent_runtime.workspace import confined, listing
from agent_runtime.workspace.files import Workspace

MOST_BYTES = 1_000_000
"""Bytes of a file that is indexed; longer ones are data, or made by programs."""
_MOST_FILES = 20_000
_MOST_SEEN = 200_000
_MOST_GLANCED = 2_000
_MOST_SOURCE = 25 * 1024**2  # bytes; the index takes 1.13 times as many, and a worker gives back 32 MiB
_MOST_LINE = 2_000  # bytes of a line on average, beyond which a file is packed for machines
_GRAIN = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most


@dataclass
class _Round:
    """What one round has done.

    Attributes:
        place: the database as it was.
        left: how many more files it may parse.
        until: when it is to end.
        refused: files that are not parsed.
        behind: the first file that it left to the next round; empty for none.
        parsed: how many files it parsed.
        truncated: whether there are more files than are indexed.
    """

    place: Path
    left: int
    until: float
    refused: frozenset[str]
    behind: str = ""
    parsed: int = 0
    truncated: bool = False
    before: dict[str, tuple[FileStamp, int, bytes]] = field(default_factory=dict)

    def begin(self) -> None:
        """Read what is known of files, unless the database is none, of another schema, or mostly stale."""
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.place))}?mode=ro&immutable=1", uri=True)) as database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                (live,) = database.execute("SELECT count(*) FROM definitions").fetchone()
                (ever,) = database.execute("SELECT count(*) FROM words_docsize").fetchone()
                if version == SCHEMA and ever <= 2 * live + 1000:
                    rows = database.execute("SELECT path, size, modified, changed, inode, looked, digest FROM files")
                    self.before = {path: (FileStamp(*stamp), looked, digest) for path, *stamp, looked, digest in rows}
        except sqlite3.Error:  # there is none yet
            return

    @cached_property
    def store(self) -> IndexStore:
        """The index, to be written: made when the first file is."""
        database = sqlite3.connect(":memory:")
        if self.before:
            database.deserialize(self.place.read_bytes())
        return IndexStore(database, new=not self.before)

    @property
    def changed(self) -> bool:
        """Whether there is anything new to be kept."""
        return "store" in self.__dict__ or not self.before


def refresh(workspace: Workspace, place: str, most: int, seconds: float, refused: Sequence[str]) -> bytes:
    """Look at every file of a workspace, and read those that changed.

    Args:
        workspace: where.
        place: the database as it was; one that cannot be used counts as none.
        most: how many files may be parsed.
        seconds: how long files are parsed; what is left over is told.
        refused: files that are not parsed, because their grammar crashes.

    Returns:
        A line of JSON, and the new database; nothing behind the line when nothing changed.
    """
    doing = _Round(Path(place), most, time.monotonic() + seconds, frozenset(refused))
    doing.begin()
    with workspace:
        files = _look(workspace, doing)
    told = {"behind": doing.behind, "files": files, "parsed": doing.parsed, "truncated": doing.truncated}
    return json.dumps(told).encode() + b"\n" + (doing.store.packed() if doing.changed else b"")


def has_sources(workspace: Workspace) -> bool:
    """Whether there is anything to be indexed, as far as a short look tells."""
    pending, seen = ["."], 0
    while pending and seen < _MOST_GLANCED:
        place = pending.pop(0)
        try:
            descriptor = workspace.open_directory(place)
        except (OSError, ToolError):
            continue
        with confined.held(descriptor), os.scandir(descriptor) as entries:
            for entry in islice(entries, _MOST_GLANCED - seen):
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{place}/{entry.name}")
                elif (language := language_of(entry.name)) and is_installed(language):
                    return True
    return False


def _look(workspace: Workspace, doing: _Round) -> int:
    before, seen, bytes_seen = doing.before, set[str](), 0
    for number, (directory, prefix, entry) in enumerate(listing.entries(workspace)):
        if number > _MOST_SEEN or len(seen) >= _MOST_FILES or bytes_seen > _MOST_SOURCE:
            doing.truncated = True
            break
        if entry is None or not entry.name.isprintable():
            continue
        language = language_of(entry.name)
        if language is None or not entry.is_file(follow_symlinks=False) or not is_installed(language):
            continue
        path = prefix + entry.name
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # gone in this moment
            continue
        stamp = FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        seen.add(path)
        bytes_seen += min(stamp.size, MOST_BYTES)
        known = before.get(path)
        if known and known[0] == stamp and max(stamp.modified, stamp.changed) + _GRAIN < known[1]:
            continue
        _read(doing, directory, entry.name, path, known[2] if known else None)
    for path in before.keys() - seen:
        doing.store.drop(path)
    return len(seen)


def _read(doing: _Round, directory: int, name: str, path: str, digest: bytes | None) -> None:
    looked = time.time_ns()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with confined.held(os.open(name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            data = b""
            while stat.S_ISREG(status.st_mode) and (chunk := os.read(descriptor, MOST_BYTES + 1 - len(data))):
                data += chunk
    except OSError:  # gone in this moment, or not ours to read
        return
    stamp = FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    new = digest_of(data)
    if new == digest and path not in doing.refused:
        doing.store.confirm(path, stamp, looked)
        return
    if doing.left <= 0 or time.monotonic() > doing.until:
        doing.behind = doing.behind or path
        return
    doing.left -= 1
    parsed, note = (None, "its grammar crashes on it") if path in doing.refused else _parsed(path, data)
    doing.store.put(path, stamp, FileContent(looked=looked, digest=new, is_test=is_test(path), note=note), parsed)
    doing.parsed += 1


def _parsed(path: str, data: bytes) -> tuple[ParsedFile | None, str]:
    """What is in a file, or why it is left out."""
    if len(data) > MOST_BYTES:
        return None, f"it has more than {MOST_BYTES:,} bytes"
    if b"\0" in data:
        return None, "it is binary"
    if len(data) > _MOST_LINE * (data.count(b"\n") + 1):
        return None, "its lines are made for machines"
    language = language_of(path)
    try:
        return (parse(language, data, Path(path).stem) if language else None), ""
    except TooSlowError:
        return None, "its grammar takes too long over it"
