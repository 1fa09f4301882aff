"""Read jobs from the database file; callers that change something hold the transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable

from pydantic import ValidationError

from bot.domain.errors import QueueError
from bot.domain.job import JobState
from bot.engine.database import exclusive
from bot.engine.job_record import JobRecord, decode_record, encode_record
from bot.engine.records import Signal, Stored, loaded

log = logging.getLogger(__name__)

_STORED = "SELECT id, body, state, reason, attempts, enqueued_at, finished_at, waits_until FROM jobs"
_Row = tuple[str, str, str, str, int, float, float | None, float | None]


def get(rows: sqlite3.Connection, job_id: str) -> Stored | None:
    """One job, or None when it is not known, or so old that only its id is."""
    row = rows.execute(f"{_STORED} WHERE id = ? AND body IS NOT NULL", (job_id,)).fetchone()
    if row is None:
        return None
    try:
        return _stored(row)
    except ValidationError as error:
        raise QueueError(f"the stored job {job_id} cannot be read by this version: {error}") from error


def of_thread(rows: sqlite3.Connection, repo_id: int, number: int, limit: int) -> tuple[Stored, ...]:
    """The newest pieces of work of a thread in each state, newest first."""
    # By state: whoever may comment can have any number of jobs queued and refused, and must not crowd out the others.
    places = (
        "SELECT seq, row_number() OVER (PARTITION BY state ORDER BY seq DESC) AS place FROM jobs"
        " WHERE repo_id = ? AND thread = ? AND lane = 'work' AND body IS NOT NULL"
    )
    found = rows.execute(
        f"{_STORED} WHERE seq IN (SELECT seq FROM ({places}) WHERE place <= ?) ORDER BY seq DESC",  # noqa: S608 - ours
        (repo_id, number, limit),
    )
    return _readable(found)


def is_live(rows: sqlite3.Connection, repo_id: int, number: int) -> bool:
    """Whether any work of a thread has not ended."""
    found = rows.execute(
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE repo_id = ? AND thread = ? AND lane = 'work'"
        " AND state IN ('queued', 'running', 'waiting'))",
        (repo_id, number),
    ).fetchone()
    return bool(found[0])


def live_of(rows: sqlite3.Connection, installation: int, repo_ids: Collection[int]) -> tuple[Stored, ...]:
    """The work of an installation that has not ended, oldest first; of some repositories when any are named."""
    found = rows.execute(
        f"{_STORED} WHERE state IN ('queued', 'running', 'waiting') AND lane = 'work' AND installation = ?"
        f" AND (? OR repo_id IN ({', '.join('?' * len(repo_ids))})) ORDER BY seq",
        (installation, not repo_ids, *repo_ids),
    )
    return _readable(found)


def live_ids(rows: sqlite3.Connection) -> frozenset[str]:
    """The ids of all work that has not ended."""
    found = rows.execute("SELECT id FROM jobs WHERE state IN ('queued', 'running', 'waiting') AND lane = 'work'")
    return frozenset(job_id for (job_id,) in found)


def counts(rows: sqlite3.Connection) -> dict[JobState, int]:
    """How many jobs stand in each state, the empty ones too."""
    found = dict(rows.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
    return {state: found.get(state, 0) for state in JobState}


def check(rows: sqlite3.Connection, now: float) -> None:
    """Write a row and commit it; it means nothing, and goes with what is over by then."""
    with exclusive(rows):
        rows.execute("INSERT OR REPLACE INTO told VALUES (0, 0, 'the file can be written', ?)", (now,))


def record(rows: sqlite3.Connection, job_id: str) -> JobRecord:
    """The record of a job; an empty one where nothing is recorded."""
    found = rows.execute("SELECT body FROM records WHERE job_id = ?", (job_id,)).fetchone()
    return decode_record(found[0]) if found else JobRecord()


def put_record(rows: sqlite3.Connection, job_id: str, record: JobRecord) -> None:
    """Write the record of a job, in place of an older one."""
    rows.execute("INSERT OR REPLACE INTO records (job_id, body) VALUES (?, ?)", (job_id, encode_record(record)))


def put_signal(rows: sqlite3.Connection, job_id: str, sent: Signal) -> None:
    """Keep a signal under the next number, unless it is known."""
    rows.execute(
        "INSERT INTO signals (job_id, number, id, kind, text, sender) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (job_id, last_signal(rows, job_id) + 1, sent.id, sent.kind, sent.text, sent.by),
    )


def last_signal(rows: sqlite3.Connection, job_id: str) -> int:
    """The number of a job's last signal, or 0."""
    found = rows.execute("SELECT coalesce(max(number), 0) FROM signals WHERE job_id = ?", (job_id,)).fetchone()
    return int(found[0])


def signals(rows: sqlite3.Connection, job_id: str, after: int) -> tuple[tuple[int, Signal], ...]:
    """A job's signals with numbers above `after`, in their order."""
    found = rows.execute(
        "SELECT number, kind, text, sender, id FROM signals WHERE job_id = ? AND number > ? ORDER BY number",
        (job_id, after),
    )
    return tuple((number, Signal(kind=kind, text=text, by=by, id=id_)) for number, kind, text, by, id_ in found)


def sweep(rows: sqlite3.Connection, before: float) -> int:
    """Forget all but the ids of the jobs that ended before some time; give back how many they were."""
    with exclusive(rows):
        old = rows.execute(
            "SELECT id FROM jobs WHERE body IS NOT NULL AND finished_at < ? AND id NOT IN (SELECT job_id FROM owed)",
            (before,),
        ).fetchall()
        rows.executemany("DELETE FROM records WHERE job_id = ?", old)
        rows.executemany("DELETE FROM signals WHERE job_id = ?", old)
        rows.executemany("UPDATE jobs SET body = NULL WHERE id = ?", old)
    return len(old)


def _readable(found: Iterable[_Row]) -> tuple[Stored, ...]:
    """Those that this version can read: one that it cannot must not keep a thread's other jobs from being steered."""
    readable: list[Stored] = []
    for row in found:
        try:
            readable.append(_stored(row))
        except ValidationError:
            log.warning("the stored job %s cannot be read by this version and is skipped", row[0])
    return tuple(readable)


def _stored(row: _Row) -> Stored:
    _, body, state, reason, attempts, enqueued_at, finished_at, waits_until = row
    return Stored(
        job=loaded(body),
        state=JobState(state),
        reason=reason,
        attempts=attempts,
        enqueued_at=enqueued_at,
        finished_at=finished_at,
        until=waits_until,
    )
