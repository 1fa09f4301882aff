"""Take over the jobs of the SQLite file that versions before the durable engine kept."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from bot.domain.errors import QueueError
from bot.domain.job import JobState
from bot.engine.durable import jobs
from bot.engine.durable.store import JobStore, Transaction, insert
from bot.engine.durable.tables import JOBS, LABELS, RECORDS, SIGNALS, SUSPECTS, TOLD

log = logging.getLogger(__name__)

_VERSION = 4
_JOBS = (
    "id, delivery_id, repo_id, thread, installation, actor_id, lane, state, reason, attempts, held_until, waits_until,"
    " enqueued_at, begun_at, finished_at, body"
)


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
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as old:
            version = old.execute("PRAGMA user_version").fetchone()[0]
            if version != _VERSION:
                raise QueueError(
                    f"{path} has format {version}, and only format {_VERSION} can be taken over; start the version of "
                    "Codepilot that wrote it once and end it, or move the file away, which loses the jobs in it"
                )
            old.row_factory = lambda cursor, row: dict(zip((each[0] for each in cursor.description), row, strict=True))
            # Another process may still write: what it stores after this would be lost.
            old.execute("BEGIN EXCLUSIVE")
            count = store.run_here(lambda tx: _import(tx, old))
            for suffix in ("", "-wal", "-shm"):
                part = path.with_name(path.name + suffix)
                if part.exists():
                    part.rename(part.with_name(f"{path.name}.imported{suffix}"))
    except (sqlite3.Error, OSError) as error:
        raise QueueError(f"{path}, which an earlier version wrote, cannot be taken over: {error}") from error
    log.info("%d jobs of %s were taken over; the file is kept as %s.imported", count, path, path.name)
    return count


def _import(tx: Transaction, old: sqlite3.Connection) -> int:
    found, new = old.execute(f"SELECT {_JOBS} FROM jobs ORDER BY seq").fetchall(), set[str]()  # noqa: S608 - ours
    for row in found:
        was_running = {"state": JobState.QUEUED, "attempts": 0} if row["state"] == JobState.RUNNING else {}
        put = insert(tx, JOBS).values(**row | was_running).on_conflict_do_nothing().returning(JOBS.c.id)
        new.update(tx.rows.execute(put).scalars())
    for table in (RECORDS, SIGNALS, SUSPECTS, LABELS, TOLD):
        for row in old.execute(f"SELECT * FROM {table.name}"):  # noqa: S608 - ours
            folded = {"folded": row["name"].casefold()} if table is LABELS else {}
            if row.get("job_id") in {None, *new}:
                tx.rows.execute(insert(tx, table).values(**row | folded).on_conflict_do_nothing())
    for row in old.execute("SELECT job_id FROM owed"):
        if row["job_id"] in new:
            jobs.owe(tx, row["job_id"], 0.0)
    for row in found:
        if row["id"] in new:
            jobs.take_up(tx, row["id"])
    return len(found)
