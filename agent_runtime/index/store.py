"""The index as one SQLite database: its tables, and how a file's definitions come into it and go."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass

from agent_runtime.index.parsing import ParsedFile

SCHEMA = 1
"""Raise it whenever what is stored, or how it is found, changes: indexes of another number are built anew."""
_MOST_WORDS = 20_000  # characters of one definition's body that are searched
_MOST_HEAD = 2_000
_HASH_BYTES = 64 * 1024**2
_TABLES = """
CREATE TABLE files(
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER,
  looked INTEGER, digest BLOB, is_test INTEGER, note TEXT NOT NULL);
CREATE TABLE definitions(
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, qualified TEXT NOT NULL, kind TEXT NOT NULL,
  first INTEGER, last INTEGER, header INTEGER, parent INTEGER, bases TEXT NOT NULL);
CREATE TABLE calls(file INTEGER NOT NULL, caller INTEGER, callee TEXT NOT NULL, receiver TEXT NOT NULL, line INTEGER);
CREATE TABLE imports(file INTEGER NOT NULL, local TEXT NOT NULL, module TEXT NOT NULL, name TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(
  name, signature, docstring, body, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE file_words USING fts5(
  path, names, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS definitions_by_file ON definitions(file);
CREATE INDEX IF NOT EXISTS definitions_by_name ON definitions(name);
CREATE INDEX IF NOT EXISTS calls_by_callee ON calls(callee);
CREATE INDEX IF NOT EXISTS calls_by_caller ON calls(caller);
CREATE INDEX IF NOT EXISTS calls_by_file ON calls(file);
CREATE INDEX IF NOT EXISTS imports_by_file ON imports(file);
"""
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def split_words(text: str) -> str:
    """A text with its identifiers cut into words; the tokenizer does the rest."""
    return _HUMPS.sub(" ", text)


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
        """IndexStore what was found in a file, in place of what was known of it."""
        self.drop(path)
        database, file = self.database, self._next_file
        self._next_file += 1
        database.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file, path, stamp.size, stamp.modified, stamp.changed, stamp.inode, content.looked, content.digest,
             content.is_test, content.note),
        )  # fmt: skip
        pieces = parsed.pieces if parsed else []
        names = split_words(" ".join(dict.fromkeys(piece.name for piece in pieces)))
        database.execute(
            "INSERT INTO file_words(rowid, path, names) VALUES (?, ?, ?)", (file, split_words(path), names)
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
        database.executemany(
            "INSERT INTO calls VALUES (?, ?, ?, ?, ?)",
            [
                (file, base + place if place >= 0 else None, callee, receiver, line)
                for place, callee, receiver, line in parsed.calls
            ],
        )
        database.executemany("INSERT INTO imports VALUES (?, ?, ?, ?)", [(file, *each) for each in parsed.imports])

    def drop(self, path: str) -> None:
        """Forget a file; its words stay until the index is built anew, and are never found."""
        known = self.database.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if known is not None:
            for table, column in (("files", "id"), ("definitions", "file"), ("calls", "file"), ("imports", "file")):
                self.database.execute(f"DELETE FROM {table} WHERE {column} = ?", known)  # noqa: S608 - our own names

    def packed(self) -> bytes:
        """The whole database."""
        if self.new:
            for table in ("words", "file_words"):
                self.database.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")  # noqa: S608 - our own names
        self.database.executescript(_INDEXES)
        self.database.commit()
        return self.database.serialize()


def digest_of(data: bytes) -> bytes:
    """Tells a file's content from another one."""
    return hashlib.blake2b(data, digest_size=16).digest()
