"""SQLite database of the index and its refresh.

`refresh` runs in a worker process and returns the new database, built in memory. Unchanged files are not read.
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

SCHEMA = 4
"""Raise it for any change of storage or parsing: older indexes are rebuilt."""
MAX_FILE_BYTES = 1_000_000
"""Bytes of an indexed file; longer ones are data or generated."""
_MAX_FILES = 20_000
_MAX_ENTRIES = 200_000
_MAX_QUICK_ENTRIES = 2_000
_MAX_SOURCE_BYTES = 25 * 1024**2  # the index takes 1.13 times as many, and a worker returns at most 32 MiB
_MAX_MEAN_LINE = 2_000  # bytes; more indicates a minified file


def refresh(workspace: Workspace, database_path: str, max_files: int, seconds: float, refused: Sequence[str]) -> bytes:
    """Parse the changed files of a workspace, up to `max_files` and except `refused` ones.

    Returns:
        A line of JSON, and the new database unless unchanged.
    """
    state = _Refresh(Path(database_path), max_files, time.monotonic() + seconds, frozenset(refused))
    state.load_known_files()
    with workspace:
        files = _scan(workspace, state)
    report = {"behind": state.behind, "files": files, "parsed": state.parsed, "truncated": state.truncated}
    return json.dumps(report).encode() + b"\n" + (state.store.serialize() if state.has_changes else b"")


@dataclass
class _Refresh:
    """State of one refresh.

    Attributes:
        file_budget: files that may still be parsed.
        deadline: monotonic.
        behind: first file left to the next round, or "".
    """

    source: Path
    file_budget: int
    deadline: float
    refused: frozenset[str]
    behind: str = ""
    parsed: int = 0
    truncated: bool = False
    known_files: dict[str, tuple[Stamp, int, bytes]] = field(default_factory=dict)

    def load_known_files(self) -> None:
        """Read the known files, unless the database is missing, outdated or mostly stale."""
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.source))}?mode=ro&immutable=1", uri=True)) as database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                (live,) = database.execute("SELECT count(*) FROM definitions").fetchone()
                (total,) = database.execute("SELECT count(*) FROM words_docsize").fetchone()
                if version == SCHEMA and total <= 2 * live + 1000:
                    rows = database.execute("SELECT path, modified, changed, size, inode, looked, digest FROM files")
                    self.known_files = {path: (tuple(stamp), looked, digest) for path, *stamp, looked, digest in rows}
        except sqlite3.Error:  # there is no database yet
            return

    @cached_property
    def store(self) -> IndexStore:
        """The new index, created on first use."""
        database = sqlite3.connect(":memory:")
        if self.known_files:
            database.deserialize(self.source.read_bytes())
        return IndexStore(database, new=not self.known_files)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to store."""
        return "store" in self.__dict__ or not self.known_files


def _scan(workspace: Workspace, state: _Refresh) -> int:
    before, paths, total_bytes = state.known_files, set[str](), 0
    for number, (directory, prefix, entry) in enumerate(listing.entries(workspace)):
        if number > _MAX_ENTRIES or len(paths) >= _MAX_FILES or total_bytes > _MAX_SOURCE_BYTES:
            state.truncated = True
            break
        if entry is None or not entry.name.isprintable():
            continue
        language = language_of(entry.name)
        if language is None or not entry.is_file(follow_symlinks=False) or not is_installed(language):
            continue
        path = prefix + entry.name
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # removed meanwhile
            continue
        stamp = stamp_of(status)
        paths.add(path)
        total_bytes += min(status.st_size, MAX_FILE_BYTES)
        previous = before.get(path)
        if previous and previous[0] == stamp and not is_recent(stamp, previous[1]):
            continue
        _refresh_file(state, directory, entry.name, path, previous[2] if previous else None)
    for path in before.keys() - paths:
        state.store.drop(path)
    return len(paths)


def _refresh_file(state: _Refresh, directory: int, name: str, path: str, digest: bytes | None) -> None:
    looked = time.time_ns()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with files_module.closing(os.open(name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            data = b""
            while stat.S_ISREG(status.st_mode) and (chunk := os.read(descriptor, MAX_FILE_BYTES + 1 - len(data))):
                data += chunk
    except OSError:  # removed meanwhile, or not readable
        return
    stamp = stamp_of(status)
    new = digest_of(data)
    if new == digest and path not in state.refused:
        state.store.confirm(path, stamp, looked)
        return
    if state.file_budget <= 0 or time.monotonic() > state.deadline:
        state.behind = state.behind or path
        return
    state.file_budget -= 1
    parsed = None if path in state.refused else _parse_file(path, data)  # refused files crash their grammar
    state.store.put(path, stamp, looked, new, parsed)
    state.parsed += 1


def _parse_file(path: str, data: bytes) -> ParsedFile | None:
    """Parse a file; None if too large, binary, generated or too slow."""
    language = language_of(path)
    if language is None or len(data) > MAX_FILE_BYTES or is_generated(data):
        return None
    try:
        return parse(language, data, Path(path).stem)
    except TooSlowError:
        return None


def is_generated(data: bytes) -> bool:
    """Whether a file is binary or minified."""
    return b"\0" in data or len(data) > _MAX_MEAN_LINE * (data.count(b"\n") + 1)


def has_sources(workspace: Workspace) -> bool:
    """Whether a quick look finds a source file."""
    pending, count = ["."], 0
    while pending and count < _MAX_QUICK_ENTRIES:
        directory = pending.pop(0)
        try:
            descriptor = workspace.open_directory(directory)
        except (OSError, ToolError):
            continue
        with files_module.closing(descriptor), os.scandir(descriptor) as entries:
            for entry in islice(entries, _MAX_QUICK_ENTRIES - count):
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{directory}/{entry.name}")
                elif (language := language_of(entry.name)) and is_installed(language):
                    return True
    return False


_MAX_BODY_CHARS = 20_000
_MAX_HEAD_CHARS = 2_000
_TEST_WEIGHT, _COPIED_WEIGHT = 0.5, 0.4
_HASH_BYTES = 64 * 1024**2
_TABLES = """
CREATE TABLE files(
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, modified INTEGER, changed INTEGER, size INTEGER, inode INTEGER,
  looked INTEGER, digest BLOB, is_test INTEGER, weight REAL, first INTEGER, facts BLOB);
CREATE TABLE definitions(
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, qualified TEXT NOT NULL, kind TEXT NOT NULL,
  first INTEGER, last INTEGER, header INTEGER, parent INTEGER, bases TEXT NOT NULL, results TEXT NOT NULL);
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
_CASE_BOUNDARY = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")


class IndexStore:
    """An index under construction, in memory."""

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
            int(row or 0)
            for table in ("definitions", "words_docsize")
            for (row,) in database.execute(f"SELECT max(rowid) FROM {table}")  # noqa: S608 - our own names
        )
        (last,) = database.execute("SELECT max(rowid) FROM file_words_docsize").fetchone()
        self._next_file = 1 + (last or 0)

    def confirm(self, path: str, stamp: Stamp, looked: int) -> None:
        """Update the stamp of an unchanged file."""
        self.database.execute(
            "UPDATE files SET modified=?, changed=?, size=?, inode=?, looked=? WHERE path=?", (*stamp, looked, path)
        )

    def put(self, path: str, stamp: Stamp, looked: int, digest: bytes, parsed: ParsedFile | None) -> None:
        """Replace a file's entries; `parsed` is None if it is not indexed."""
        self.drop(path)
        database, file = self.database, self._next_file
        self._next_file += 1
        facts = zlib.compress(json.dumps([parsed.calls, parsed.imports]).encode(), 1) if parsed else b""
        in_tests = is_test(path)
        weight = _COPIED_WEIGHT if is_copied(path) else _TEST_WEIGHT if in_tests else 1.0
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
            "INSERT INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (base + place, file, piece.name, piece.qualified, piece.kind, piece.first, piece.last, piece.header,
                 base + piece.parent if piece.parent >= 0 else None, " ".join(piece.bases),
                 " ".join(piece.results))
                for place, piece in enumerate(pieces)
            ],
        )  # fmt: skip
        database.executemany(
            "INSERT INTO words(rowid, name, signature, docstring, body) VALUES (?, ?, ?, ?, ?)",
            [
                (base + place, split_words(piece.name),
                 split_words(f"{piece.qualified} {piece.signature[:_MAX_HEAD_CHARS]}"),
                 split_words(piece.docstring[:_MAX_HEAD_CHARS]), split_words(piece.body[:_MAX_BODY_CHARS]))
                for place, piece in enumerate(pieces)
            ],
        )  # fmt: skip
        called = sorted(_called_names(parsed.calls, parsed.imports))
        database.executemany("INSERT INTO callees VALUES (?, ?)", [(name, file) for name in called])

    def drop(self, path: str) -> None:
        """Remove a file; its words stay until a rebuild, but match nothing."""
        row = self.database.execute("SELECT id, facts FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            file, facts = row
            called = _called_names(*calls_and_imports(facts))
            self.database.executemany(
                "DELETE FROM callees WHERE name = ? AND file = ?", [(name, file) for name in called]
            )
            self.database.execute("DELETE FROM definitions WHERE file = ?", (file,))
            self.database.execute("DELETE FROM files WHERE id = ?", (file,))

    def serialize(self) -> bytes:
        """Return the database."""
        if self.new:
            for table in ("words", "file_words"):
                self.database.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")  # noqa: S608 - our own names
        self.database.executescript(_INDEXES)
        self.database.commit()
        return self.database.serialize()


def calls_and_imports(facts: bytes) -> tuple[list[tuple[int, str, str, int]], list[tuple[str, str, str]]]:
    """Decode a file's calls and imports."""
    if not facts:
        return [], []
    calls, imports = json.loads(zlib.decompress(facts))
    return calls, imports


def _called_names(calls: list[tuple[int, str, str, int]], imports: list[tuple[str, str, str]]) -> set[str]:
    """Return the called names, with imported names in place of aliases."""
    names = {call[1] for call in calls}
    return names | {name for local, _, name in imports if name and local in names}


def split_words(text: str) -> str:
    """Split identifiers into words for the tokenizer."""
    return _CASE_BOUNDARY.sub(r" \g<0>", text)


def digest_of(data: bytes) -> bytes:
    """Return a content digest."""
    return hashlib.blake2b(data, digest_size=16).digest()
