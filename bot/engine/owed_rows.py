"""The statements that keep the endings that GitHub has not taken yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from pydantic import ValidationError

from bot.domain.job import Job
from bot.engine.database import exclusive
from bot.engine.owed_endings import TELLING_SECONDS, Owed, pause_after
from bot.engine.records import loaded


def owe(rows: sqlite3.Connection, job_id: str, now: float, pause: float) -> None:
    """Keep that the ending of a job is to be told; within the transaction that ends the job."""
    rows.execute(
        "INSERT INTO owed (job_id, since, next_at, tries) VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING",
        (job_id, now, now + pause),
    )


def claim(rows: sqlite3.Connection, worker: str, now: float) -> Owed | None:
    """Hand the ending that is due longest to a worker; None when none is due."""
    due = "SELECT job_id, since, tries, body FROM owed JOIN jobs ON jobs.id = owed.job_id WHERE next_at <= ?"
    if rows.execute(f"{due} LIMIT 1", (now,)).fetchone() is None:  # without the write lock: this is asked often
        return None
    with exclusive(rows):
        row = rows.execute(f"{due} ORDER BY next_at LIMIT 1", (now,)).fetchone()
        if row is None:
            return None
        job_id, since, tries, body = row
        rows.execute(
            "UPDATE owed SET worker = ?, tries = ?, next_at = ? WHERE job_id = ?",
            (worker, tries + 1, now + TELLING_SECONDS, job_id),
        )
    return Owed(job=_job(body), job_id=job_id, since=since, tries=tries + 1)


def settle(rows: sqlite3.Connection, job_id: str) -> None:
    """GitHub has it, or never will."""
    with exclusive(rows):
        rows.execute("DELETE FROM owed WHERE job_id = ?", (job_id,))


def postpone(rows: sqlite3.Connection, job_id: str, now: float) -> None:
    """Try again after a pause that grows."""
    with exclusive(rows):
        row = rows.execute("SELECT tries FROM owed WHERE job_id = ?", (job_id,)).fetchone()
        if row is not None:
            rows.execute(
                "UPDATE owed SET worker = NULL, next_at = ? WHERE job_id = ?", (now + pause_after(row[0]), job_id)
            )


def taken_back(rows: sqlite3.Connection, workers: Collection[str], now: float) -> None:
    """Let others tell what dead workers were telling; after its pause, for the telling may be what killed them."""
    for job_id, worker, tries in rows.execute("SELECT job_id, worker, tries FROM owed").fetchall():
        if worker in workers:
            pause = pause_after(tries - 1)
            rows.execute("UPDATE owed SET worker = NULL, next_at = ? WHERE job_id = ?", (now + pause, job_id))


def due_at(rows: sqlite3.Connection, job_id: str) -> float | None:
    """When the ending of a job is tried next; None when it is told."""
    found = rows.execute("SELECT next_at FROM owed WHERE job_id = ?", (job_id,)).fetchone()
    return float(found[0]) if found else None


def _job(body: str | None) -> Job | None:
    try:
        return loaded(body) if body is not None else None
    except ValidationError:
        return None
