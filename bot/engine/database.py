"""The one SQLite file that everything which must outlive the process is in: its tables, its versions, its thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from bot.domain.errors import QueueError
from bot.engine.facts import record_of_facts

T = TypeVar("T")

SCHEMA_VERSION = 4
"""Kept in the file as `PRAGMA user_version`; a file with a higher one is refused."""

_BUSY_SECONDS = 15.0

_JOBS = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    delivery_id TEXT NOT NULL UNIQUE,
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    installation INTEGER,
    actor_id INTEGER NOT NULL,
    lane TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease_until REAL,
    held_until REAL NOT NULL DEFAULT 0,
    waits_until REAL,
    enqueued_at REAL NOT NULL,
    begun_at REAL,
    finished_at REAL,
    body TEXT
) STRICT;
"""

_RECORDS = """
CREATE TABLE records (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

# Every question that is asked while somebody waits has an index of its own; those that `tally` counts by hold all it
# needs, so that an hour with very many jobs is counted without reading one of them.
_NEW_IN_2 = """
CREATE INDEX states ON jobs (state);
CREATE INDEX queued ON jobs (lane, seq) WHERE state = 'queued';
CREATE INDEX leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX waits ON jobs (waits_until) WHERE state = 'waiting';
CREATE INDEX kept ON jobs (finished_at) WHERE body IS NOT NULL;
CREATE UNIQUE INDEX one_running_job_a_thread ON jobs (repo_id, thread) WHERE state = 'running' AND lane = 'work';
CREATE INDEX threads ON jobs (repo_id, thread, seq) WHERE lane = 'work';
CREATE INDEX begun_in_thread ON jobs (lane, repo_id, thread, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_in_repository ON jobs (lane, repo_id, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_by_user ON jobs (lane, actor_id, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_in_installation ON jobs (lane, installation, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE TABLE signals (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    sender TEXT NOT NULL,
    PRIMARY KEY (job_id, number),
    UNIQUE (job_id, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE labels (
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    name TEXT NOT NULL COLLATE NOCASE,
    labeller_id INTEGER NOT NULL,
    labeller_login TEXT NOT NULL,
    bound_to TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (repo_id, thread, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE told (
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    cause TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (repo_id, thread, cause)
) STRICT, WITHOUT ROWID;
CREATE INDEX told_until ON told (until);
"""

_NEW_IN_3 = """
CREATE TABLE suspects (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    deaths INTEGER NOT NULL,
    claimed_at REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE owed (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    since REAL NOT NULL,
    next_at REAL NOT NULL,
    tries INTEGER NOT NULL,
    worker TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX owed_next ON owed (next_at);
"""

# Version 1 knew comments alone, and of commands `fix`, which is work, and `help`, which is not. When a job began it did
# not note; not before it was stored.
_MOVE_FROM_1 = """
INSERT INTO jobs_2
SELECT seq, id, delivery_id, repo_id, thread,
    json_extract(json, '$.installation'), coalesce(json_extract(json, '$.actor.id'), 0),
    CASE json_extract(json, '$.command.verb') WHEN 'fix' THEN 'work' ELSE 'steer' END,
    state, reason, attempts, worker, lease_until, 0, NULL, enqueued_at, iif(attempts, enqueued_at, NULL), finished_at,
    json_remove(
        json_set(json, '$.origin', json_object('kind', 'comment', 'id', json_extract(json, '$.comment_id'))),
        '$.comment_id'
    )
FROM (SELECT *, iif(json_valid(body), body, '{}') AS json FROM jobs);
DROP TABLE jobs;
ALTER TABLE jobs_2 RENAME TO jobs;
"""

_STEPS: dict[int, tuple[str, ...]] = {
    0: (_JOBS, _RECORDS, _NEW_IN_2, _NEW_IN_3),
    1: (_JOBS.replace("TABLE jobs", "TABLE jobs_2"), _MOVE_FROM_1, _RECORDS, _NEW_IN_2, _NEW_IN_3),
    2: (_RECORDS, _NEW_IN_3),
    3: (_RECORDS,),
}
"""From which version what brings a file to `SCHEMA_VERSION`; 0 is a new file."""


class Database:
    """One SQLite file, for any number of processes of one machine; must not lie on a network file system.

    All statements run in one thread of its own, so the event loop never waits for the disk. Every answer is given after
    the commit has reached the disk (`synchronous=FULL`): GitHub does not send a delivery again that was acknowledged,
    so an acknowledged job has to outlive a power cut.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, make it, or bring an older version's to this one's.

        Args:
            path: the file; its directory must exist.

        Raises:
            QueueError: the file cannot be opened, is no queue, or belongs to a newer version.
        """
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue")
        try:
            self._connection = self._thread.submit(prepared, path).result()
            self._identity = _identity(path)
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown()
            raise _explained(path, error) from error
        except QueueError:
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        """Close the file; further calls fail."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown(wait=False)

    async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements in the file's thread.

        Raises:
            QueueError: the file could not be read or written.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._done, operation)
        except (sqlite3.Error, OSError) as error:
            raise _explained(self._path, error) from error

    def _done(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements, if the file is still the one that the next process will open."""
        if _identity(self._path) != self._identity:
            raise QueueError(
                f"the job queue {self._path} was deleted or replaced while this process runs, which can no longer "
                "store jobs and must be restarted; move or restore that file only while the bot is stopped"
            )
        return operation(self._connection)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path now; None when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def exclusive(rows: sqlite3.Connection) -> Iterator[None]:
    """One transaction that holds the write lock from its start, so that what it reads stays true."""
    rows.execute("BEGIN IMMEDIATE")
    try:
        yield
        rows.execute("COMMIT")
    except BaseException:
        # A full disk makes SQLite roll back by itself.
        if rows.in_transaction:
            rows.execute("ROLLBACK")
        raise


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make an empty one; an older version's is left as it is.

    Raises:
        QueueError: a newer version wrote it.
        OSError: it cannot be made.
        sqlite3.Error: it cannot be opened or is no database.
    """
    # Of two who change a new file's journal at once SQLite lets one fail, without the wait that all else gets.
    path.parent.stat()  # the lock would make the directory
    with FileLock(f"{path}.lock", timeout=_BUSY_SECONDS, mode=0o600):
        if not path.exists():
            # Left of a file that was deleted: SQLite would take them for parts of the new one.
            for part in ("-wal", "-shm"):
                path.with_name(f"{path.name}{part}").unlink(missing_ok=True)
        # The jobs hold the words of private repositories; SQLite gives its other files the mode of this one.
        path.touch(mode=0o600, exist_ok=True)
        rows = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            with exclusive(rows):
                _version(rows, path)
            rows.execute("PRAGMA journal_mode = WAL")
            rows.execute("PRAGMA synchronous = FULL")
        except BaseException:  # whatever it was, nobody else knows of the connection
            rows.close()
            raise
    return rows


def prepared(path: Path) -> sqlite3.Connection:
    """Open the file as `connect` does, and make its tables, or bring an older version's to this one's."""
    rows = connect(path)
    try:
        with exclusive(rows):
            version = _version(rows, path)
            if version != SCHEMA_VERSION:
                for statement in "".join(_STEPS[version]).split(";"):
                    rows.execute(statement)
                if version:
                    _move_facts(rows)
                rows.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        rows.execute("PRAGMA foreign_keys = ON")
    except BaseException:  # whatever it was, nobody else knows of the connection
        rows.close()
        raise
    return rows


def _move_facts(rows: sqlite3.Connection) -> None:
    """Bring what versions before 4 kept of jobs as strings by name into a record each."""
    facts: dict[str, dict[str, str]] = {}
    for job_id, key, value in rows.execute("SELECT job_id, key, value FROM facts"):
        facts.setdefault(job_id, {})[key] = value
    rows.executemany("INSERT INTO records VALUES (?, ?)", [(id_, record_of_facts(kept)) for id_, kept in facts.items()])
    rows.execute("DROP TABLE facts")


def _version(rows: sqlite3.Connection, path: Path) -> int:
    version = int(rows.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise QueueError(
            f"the job queue {path} was written by a newer version of Codepilot (its format is {version}, this "
            f"version supports {SCHEMA_VERSION}); install a newer version, or choose another CODEPILOT_DATA_DIR"
        )
    return version


def _explained(path: Path, error: Exception) -> QueueError:
    return QueueError(f"the job queue {path} failed: {error}; check that the disk has space and the file is writable")
