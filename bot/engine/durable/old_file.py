"""Take over the jobs of the SQLite file that versions before the durable engine kept."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock

from bot.domain.errors import QueueError
from bot.domain.job import TRANSITIONS, JobState
from bot.engine.durable import jobs
from bot.engine.durable.store import JobStore, Transaction, insert
from bot.engine.durable.tables import JOBS, LABELS, OWED, RECORDS, SIGNALS, SUSPECTS, TOLD

log = logging.getLogger(__name__)

_VERSION = 4
_JOBS = (
    "id, delivery_id, repo_id, thread, installation, actor_id, lane, state, reason, attempts, held_until, waits_until,"
    " enqueued_at, begun_at, finished_at, body"
)
_AT_ONCE = 500
"""Jobs in one transaction: each live one locks its thread, and PostgreSQL has room for some thousand locks."""
_BUSY_SECONDS = 60.0

_Row = Mapping[str, Any]


def import_file(store: JobStore, path: Path) -> int:
    """Put everything that the file holds into a database, once, and rename the file.

    A job that was running is queued again: the process that had it is gone, or ends now, as it finds its file gone.

    Args:
        store: the database; what it holds already stays as it is.
        path: the file; nothing is done when it does not exist.

    Returns:
        How many jobs were in the file.

    Raises:
        QueueError: the file cannot be read, or is of another version.
    """
    if not path.exists():
        return 0
    try:
        # Of several processes that start at once one takes over, and the others wait for it.
        with FileLock(f"{path}.lock", timeout=_BUSY_SECONDS, mode=0o600):
            count = _import(store, path) if path.exists() else 0
    except (sqlite3.Error, OSError) as error:
        raise QueueError(f"{path}, which an earlier version wrote, cannot be taken over: {error}") from error
    return count


def _import(store: JobStore, path: Path) -> int:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS)) as old:
        version = old.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise QueueError(
                f"{path} has format {version}, and only format {_VERSION} can be taken over; start the version of "
                "Codepilot that wrote it once and end it, or move the file away, which loses the jobs in it"
            )
        old.row_factory = lambda cursor, row: dict(zip((each[0] for each in cursor.description), row, strict=True))
        _refuse_writes(old)
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        count = 0
        found = old.execute(f"SELECT {_JOBS} FROM jobs ORDER BY seq")  # noqa: S608 - ours
        while some := found.fetchmany(_AT_ONCE):
            store.run_here(partial(_take, old=old, some=some, first=not count))
            count += len(some)
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(part.with_name(f"{path.name}.imported{suffix}"))
    log.info("%d jobs of %s were taken over; the file is kept as %s.imported", count, path, path.name)
    return count


def _refuse_writes(old: sqlite3.Connection) -> None:
    """Have processes fail that still write to the file, under whatever name: what they stored would be lost."""
    old.execute("BEGIN EXCLUSIVE")
    for table in (JOBS, RECORDS, SIGNALS, SUSPECTS, OWED, LABELS, TOLD):
        for change in ("INSERT", "UPDATE", "DELETE"):
            old.execute(
                f"CREATE TRIGGER IF NOT EXISTS no_{change}_{table.name} BEFORE {change} ON {table.name} "
                "BEGIN SELECT RAISE(ABORT, 'a newer version of Codepilot has taken this file over'); END"
            )
    old.execute("COMMIT")


def _take(tx: Transaction, *, old: sqlite3.Connection, some: Sequence[_Row], first: bool) -> None:
    """Take over some jobs, with all that is kept of them; with the first ones what is kept of threads, too."""
    new = [row for row in some if _put(tx, JOBS, {**row, **_state_of(row)})]
    for row in new:
        for table in (RECORDS, SIGNALS, SUSPECTS, OWED):
            for kept in old.execute(f"SELECT * FROM {table.name} WHERE job_id = ?", (row["id"],)):  # noqa: S608 - ours
                _put(tx, table, kept)
                if table is OWED:
                    jobs.owe(tx, row["id"], 0.0)
        if TRANSITIONS[JobState(row["state"])]:
            jobs.take_up(tx, row["id"])
    # Not when this process or another one was cut here before: by now a label may have been taken off.
    if first and new:
        # Of two spellings that were two labels in the file the newer one counts.
        for label in old.execute("SELECT * FROM labels ORDER BY at DESC"):
            _put(tx, LABELS, {**label, "folded": label["name"].casefold()})
        for told in old.execute("SELECT * FROM told"):
            _put(tx, TOLD, told)


def _state_of(row: _Row) -> _Row:
    return {"state": JobState.QUEUED, "attempts": 0} if row["state"] == JobState.RUNNING else {}


def _put(tx: Transaction, table: sa.Table, row: _Row) -> bool:
    """Insert what a table has columns for; False when the row is there."""
    values = {name: value for name, value in row.items() if name in table.c}
    key = next(iter(table.primary_key)) if table is not JOBS else JOBS.c.id
    put = insert(tx, table).values(**values).on_conflict_do_nothing().returning(key)
    return tx.rows.execute(put).first() is not None
