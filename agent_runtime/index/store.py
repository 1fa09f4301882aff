"""The index as one SQLite database: its tables, and how it is brought up to date with a workspace.

`refresh` runs in a worker process and writes nothing itself: it returns the new database, which `IndexStore` has made
in memory. Files that did not change since the last look are not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from agent_runtime.core.errors import ToolError
from agent_runtime.index.parsing import ParsedFile, TooSlowError, is_copied, is_installed, is_test, language_of, parse
from agent_runtime.workspace import files as files_module
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import Stamp, Workspace, is_recent, stamp_of

SCHEMA = 3
"""Raise it whenever what is stored, or how it is found, changes: indexes of another number are built anew."""
MOST_BYTES = 1_000_000
"""Bytes of a file that is indexed; longer ones are data, or made by programs."""
_MOST_FILES = 20_000
_MOST_SEEN = 200_000
_MOST_GLANCED = 2_000
_MOST_SOURCE = 25 * 1024**2  # bytes; the index takes 1.13 times as many, and a worker gives back 32 MiB
_MOST_LINE = 2_000  # bytes of a line on average, beyond which a file is packed for machines


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
    before: dict[str, tuple[Stamp, int, bytes]] = field(default_factory=dict)

    def begin(self) -> None:
        """Read what is known of files, unless the database is none, of another schema, or mostly stale."""
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.place))}?mode=ro&immutable=1", uri=True)) as database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                (live,) = database.execute("SELECT count(*) FROM definitions").fetchone()
                (ever,) = database.execute("SELECT count(*) FROM words_docsize").fetchone()
                if version == SCHEMA and ever <= 2 * live + 1000:
                    rows = database.execute("SELECT path, modified, changed, size, inode, looked, digest FROM files")
                    self.before = {path: (tuple(stamp), looked, digest) for path, *stamp, looked, digest in rows}
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
        stamp = stamp_of(status)
        seen.add(path)
        bytes_seen += min(status.st_size, MOST_BYTES)
        known = before.get(path)
        if known and known[0] == stamp and not is_recent(stamp, known[1]):
            continue
        _read(doing, directory, entry.name, path, known[2] if known else None)
    for path in before.keys() - seen:
        doing.store.drop(path)
    return len(seen)


def _read(doing: _Round, directory: int, name: str, path: str, digest: bytes | None) -> None:
    looked = time.time_ns()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with files_module.held(os.open(name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            data = b""
            while stat.S_ISREG(status.st_mode) and (chunk := os.read(descriptor, MOST_BYTES + 1 - len(data))):
                data += chunk
    except OSError:  # gone in this moment, or not ours to read
        return
    stamp = stamp_of(status)
    new = digest_of(data)
    if new == digest and path not in doing.refused:
        doing.store.confirm(path, stamp, looked)
        return
    if doing.left <= 0 or time.monotonic() > doing.until:
        doing.behind = doing.behind or path
        return
    doing.left -= 1
    parsed = None if path in doing.refused else _parsed(path, data)  # its grammar crashes on one that is refused
    doing.store.put(path, stamp, looked, new, parsed)
    doing.parsed += 1


def _parsed(path: str, data: bytes) -> ParsedFile | None:
    """Parse a file; None for one that is too large, binary, made for machines, or takes its grammar too long."""
    language = language_of(path)
    packed = len(data) > _MOST_LINE * (data.count(b"\n") + 1)
    if language is None or len(data) > MOST_BYTES or b"\0" in data or packed:
        return None
    try:
        return parse(language, data, Path(path).stem)
    except TooSlowError:
        return None


def has_sources(workspace: Workspace) -> bool:
    """Whether there is anything to be indexed, as far as a short look tells."""
    pending, seen = ["."], 0
    while pending and seen < _MOST_GLANCED:
        place = pending.pop(0)
        try:
            descriptor = workspace.open_directory(place)
        except (OSError, ToolError):
            continue
        with files_module.held(descriptor), os.scandir(descriptor) as entries:
            for entry in islice(entries, _MOST_GLANCED - seen):
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{place}/{entry.name}")
                elif (language := language_of(entry.name)) and is_installed(language):
                    return True
    return False


_MOST_WORDS = 20_000  # characters of one definition's body that are searched
_MOST_HEAD = 2_000
_TEST_SHARE, _COPIED_SHARE = 0.5, 0.4
_HASH_BYTES = 64 * 1024**2
_TABLES = """
CREATE TABLE files(
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, modified INTEGER, changed INTEGER, size INTEGER, inode INTEGER,
  looked INTEGER, digest BLOB, is_test INTEGER, weight REAL, first INTEGER, facts BLOB);
CREATE TABLE definitions(
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, qualified TEXT NOT NULL, kind TEXT NOT NULL,
  first INTEGER, last INTEGER, header INTEGER, parent INTEGER, bases TEXT NOT NULL);
CREATE TABLE callees(name TEXT NOT NULL, file INTEGER NOT NULL, PRIMARY KEY (name, file)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
  name, signature, docstring, body, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE file_words USING fts5(
  path, names, text, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS definitions_by_file ON definitions(file);
CREATE INDEX IF NOT EXISTS definitions_by_name ON definitions(name);
"""
_HUMPS = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")


class IndexStore:
    """An index in memory, being written."""

    def __init__(self, database: sqlite3.Connection, *, new: bool) -> None:
        self.database = database
        database.execute("PRAGMA temp_store = MEMORY")  # a worker may write no file
        if new:
            database.execute(f"PRAGMA user_version = {SCHEMA}")
            database.executescript(_TABLES)
            for table in ("words", "file_words"):
                database.execute(f"INSERT INTO {table}({table}, rank) VALUES ('hashsize', {_HASH_BYTES})")  # noqa: S608 - our own names
        self.new = new
        self._next = 1 + max(
            int(each or 0)
            for table in ("definitions", "words_docsize")
            for (each,) in database.execute(f"SELECT max(rowid) FROM {table}")  # noqa: S608 - our own names
        )
        (last,) = database.execute("SELECT max(rowid) FROM file_words_docsize").fetchone()
        self._next_file = 1 + (last or 0)

    def confirm(self, path: str, stamp: Stamp, looked: int) -> None:
        """Note that a file still holds what it held."""
        self.database.execute(
            "UPDATE files SET modified=?, changed=?, size=?, inode=?, looked=? WHERE path=?", (*stamp, looked, path)
        )

    def put(self, path: str, stamp: Stamp, looked: int, digest: bytes, parsed: ParsedFile | None) -> None:
        """Store what was found in a file, in place of what was known of it.

        Args:
            path: the file.
            stamp: of the file when it was read.
            looked: when that was, in nanoseconds.
            digest: of its bytes.
            parsed: its definitions; None for a file of which nothing is indexed.
        """
        self.drop(path)
        database, file = self.database, self._next_file
        self._next_file += 1
        facts = zlib.compress(json.dumps([parsed.calls, parsed.imports]).encode(), 1) if parsed else b""
        # How much what is found in it counts.
        in_tests = is_test(path)
        weight = _COPIED_SHARE if is_copied(path) else _TEST_SHARE if in_tests else 1.0
        database.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file, path, *stamp, looked, digest, in_tests, weight, self._next, facts),
        )  # fmt: skip
        pieces = parsed.pieces if parsed else []
        names = split_words(" ".join(dict.fromkeys(piece.name for piece in pieces)))
        database.execute(
            "INSERT INTO file_words(rowid, path, names, text) VALUES (?, ?, ?, ?)",
            (file, split_words(path), names, split_words(parsed.text) if parsed else ""),
        )
        if parsed is None:
            return
        base = self._next
        self._next += len(pieces)
        database.executemany(
            "INSERT INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (base + place, file, piece.name, piece.qualified, piece.kind, piece.first, piece.last, piece.header,
                 base + piece.parent if piece.parent >= 0 else None, " ".join(piece.bases))
                for place, piece in enumerate(pieces)
            ],
        )  # fmt: skip
        database.executemany(
            "INSERT INTO words(rowid, name, signature, docstring, body) VALUES (?, ?, ?, ?, ?)",
            [
                (base + place, split_words(piece.name),
                 split_words(f"{piece.qualified} {piece.signature[:_MOST_HEAD]}"),
                 split_words(piece.docstring[:_MOST_HEAD]), split_words(piece.body[:_MOST_WORDS]))
                for place, piece in enumerate(pieces)
            ],
        )  # fmt: skip
        called = sorted(_called(parsed.calls, parsed.imports))
        database.executemany("INSERT INTO callees VALUES (?, ?)", [(name, file) for name in called])

    def drop(self, path: str) -> None:
        """Forget a file; its words stay until the index is built anew, and are never found."""
        known = self.database.execute("SELECT id, facts FROM files WHERE path = ?", (path,)).fetchone()
        if known is not None:
            file, facts = known
            called = _called(*calls_and_imports(facts))
            self.database.executemany(
                "DELETE FROM callees WHERE name = ? AND file = ?", [(name, file) for name in called]
            )
            self.database.execute("DELETE FROM definitions WHERE file = ?", (file,))
            self.database.execute("DELETE FROM files WHERE id = ?", (file,))

    def packed(self) -> bytes:
        """The whole database."""
        if self.new:
            for table in ("words", "file_words"):
                self.database.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")  # noqa: S608 - our own names
        self.database.executescript(_INDEXES)
        self.database.commit()
        return self.database.serialize()


def calls_and_imports(facts: bytes) -> tuple[list[tuple[int, str, str, int]], list[tuple[str, str, str]]]:
    """The calls and imports of a file, as `ParsedFile` has them."""
    if not facts:
        return [], []
    calls, imports = json.loads(zlib.decompress(facts))
    return calls, imports


def _called(calls: list[tuple[int, str, str, int]], imports: list[tuple[str, str, str]]) -> set[str]:
    """The names that a file calls, and those for which it calls another one by an import."""
    names = {call[1] for call in calls}
    return names | {name for local, _, name in imports if name and local in names}


def split_words(text: str) -> str:
    """A text with its identifiers cut into words; the tokenizer does the rest."""
    return _HUMPS.sub(r" \g<0>", text)


def digest_of(data: bytes) -> bytes:
    """Tells a file's content from another one."""
    return hashlib.blake2b(data, digest_size=16).digest()
