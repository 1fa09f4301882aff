"""The index as one SQLite database: its tables, and how a file's definitions come into it and go."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import zlib
from dataclasses import dataclass

from agent_runtime.index.languages import is_copied
from agent_runtime.index.parsing import ParsedFile

SCHEMA = 2
"""Raise it whenever what is stored, or how it is found, changes: indexes of another number are built anew."""
_MOST_WORDS = 20_000  # characters of one definition's body that are searched
_MOST_HEAD = 2_000
_TEST_SHARE, _COPIED_SHARE = 0.5, 0.4
_HASH_BYTES = 64 * 1024**2
_TABLES = """
CREATE TABLE files(
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER,
  looked INTEGER, digest BLOB, is_test INTEGER, weight REAL, note TEXT NOT NULL, first INTEGER, facts BLOB);
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


def split_words(text: str) -> str:
    """A text with its identifiers cut into words; the tokenizer does the rest."""
    return _HUMPS.sub(r" \g<0>", text)


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes whenever a file does."""

    size: int
    modified: int
    changed: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """What is known of a file beside what it defines.

    Attributes:
        looked: when it was read, in nanoseconds.
        digest: of its bytes.
        is_test: whether it holds tests.
        note: why nothing in it is indexed; empty if it is.
    """

    looked: int
    digest: bytes
    is_test: bool
    note: str = ""


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

    def confirm(self, path: str, stamp: FileStamp, looked: int) -> None:
        """Note that a file still holds what it held."""
        self.database.execute(
            "UPDATE files SET size=?, modified=?, changed=?, inode=?, looked=? WHERE path=?",
            (stamp.size, stamp.modified, stamp.changed, stamp.inode, looked, path),
        )

    def put(self, path: str, stamp: FileStamp, content: FileContent, parsed: ParsedFile | None) -> None:
        """Store what was found in a file, in place of what was known of it."""
        self.drop(path)
        database, file = self.database, self._next_file
        self._next_file += 1
        facts = zlib.compress(json.dumps([parsed.calls, parsed.imports]).encode(), 1) if parsed else b""
        # How much what is found in it counts.
        weight = _COPIED_SHARE if is_copied(path) else _TEST_SHARE if content.is_test else 1.0
        database.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file, path, stamp.size, stamp.modified, stamp.changed, stamp.inode, content.looked, content.digest,
             content.is_test, weight, content.note, self._next, facts),
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


def _called(calls: list[tuple[int, str, str, int]], imports: list[tuple[str, str, str]]) -> set[str]:
    """The names that a file calls, and those for which it calls another one by an import."""
    names = {call[1] for call in calls}
    return names | {name for local, _, name in imports if name and local in names}


def calls_and_imports(facts: bytes) -> tuple[list[tuple[int, str, str, int]], list[tuple[str, str, str]]]:
    """The calls and imports of a file, as `ParsedFile` has them."""
    if not facts:
        return [], []
    calls, imports = json.loads(zlib.decompress(facts))
    return calls, imports


def digest_of(data: bytes) -> bytes:
    """Tells a file's content from another one."""
    return hashlib.blake2b(data, digest_size=16).digest()
