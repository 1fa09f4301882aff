"""The statements behind `SqliteQueue`: one function an operation, each one transaction; synchronous."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bot.errors import LeaseLostError, QueueError, TransitionError
from bot.jobs.job import TRANSITIONS, Job, JobState

SCHEMA_VERSION = 1
"""Kept in the file as `PRAGMA user_version`; a file with a higher one is refused."""

_BUSY_SECONDS = 15.0

_SCHEMA = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    delivery_id TEXT NOT NULL UNIQUE,
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease_until REAL,
    enqueued_at REAL NOT NULL,
    finished_at REAL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX states ON jobs (state);
CREATE INDEX waiting ON jobs (seq) WHERE state = 'queued';
CREATE UNIQUE INDEX one_running_job_a_thread ON jobs (repo_id, thread) WHERE state = 'running';
CREATE TABLE facts (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job_id, key)
) STRICT, WITHOUT ROWID;
"""

_CLAIMABLE = """
SELECT id, attempts, body FROM jobs AS waiting WHERE state = 'queued' AND NOT EXISTS (
    SELECT 1 FROM jobs AS busy
    WHERE busy.state = 'running' AND busy.repo_id = waiting.repo_id AND busy.thread = waiting.thread
) ORDER BY seq LIMIT 1
"""

# Each kind of command has its own literal `verb`, by which pydantic tells them apart.
_JOB = TypeAdapter(Job)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, make its tables when it is new, and check its version.

    Raises:
        QueueError: a newer version wrote the file.
        OSError: the file cannot be made.
        sqlite3.Error: the file cannot be opened or is no database.
    """
    # The jobs hold the words of private repositories; SQLite gives its other files the mode of this one.
    path.touch(mode=0o600, exist_ok=True)
    rows = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        with _exclusive(rows):
            _make_tables(rows, path)
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute("PRAGMA synchronous = FULL")
        rows.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        rows.close()
        raise
    return rows


def _make_tables(rows: sqlite3.Connection, path: Path) -> None:
    version = int(rows.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise QueueError(
            f"the job queue {path} was written by a newer Codepilot (its format is {version}, this one knows "
            f"{SCHEMA_VERSION}); update this one, or give it a CODEPILOT_DATA_DIR of its own"
        )
    if version == 0:
        for statement in _SCHEMA.split(";"):
            rows.execute(statement)
        rows.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def insert(rows: sqlite3.Connection, job: Job, now: float) -> bool:
    """Store a job; False when its id or its delivery's is known."""
    with _exclusive(rows):
        done = rows.execute(
            "INSERT INTO jobs (id, delivery_id, repo_id, thread, state, enqueued_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (
                job.id,
                job.delivery_id,
                job.repo.id,
                job.thread.number,
                JobState.QUEUED,
                now,
                _JOB.dump_json(job).decode(),
            ),
        )
    return done.rowcount == 1


def claim(
    rows: sqlite3.Connection, *, worker: str, now: float, until: float, max_attempts: int
) -> tuple[Job, int] | None:
    """Hand the next job to a worker, with the number of the attempt; None when there is none."""
    if not _anything_to_claim(rows, now):
        return None
    with _exclusive(rows):
        _take_back_expired(rows, now, max_attempts)
        while (row := rows.execute(_CLAIMABLE).fetchone()) is not None:
            job_id, attempts, body = row
            _move(rows, job_id, JobState.RUNNING)
            rows.execute(
                "UPDATE jobs SET worker = ?, lease_until = ?, attempts = ? WHERE id = ?",
                (worker, until, attempts + 1, job_id),
            )
            try:
                return _JOB.validate_json(body), attempts + 1
            except ValidationError as error:
                _end(rows, job_id, JobState.FAILED, f"the stored job cannot be read by this version: {error}", now)
    return None


def renew(rows: sqlite3.Connection, job_id: str, worker: str, until: float) -> None:
    """Move the end of a worker's lease."""
    with _exclusive(rows):
        _check_lease(rows, job_id, worker)
        rows.execute("UPDATE jobs SET lease_until = ? WHERE id = ?", (until, job_id))


def release(rows: sqlite3.Connection, job_id: str, worker: str) -> None:
    """Let a job wait again, as if this attempt had not been."""
    with _exclusive(rows):
        _check_lease(rows, job_id, worker)
        _requeue(rows, job_id)
        rows.execute("UPDATE jobs SET attempts = attempts - 1 WHERE id = ?", (job_id,))


def finish(rows: sqlite3.Connection, job_id: str, worker: str, state: JobState, reason: str, now: float) -> None:  # noqa: PLR0917 - one column each
    """End a job."""
    if TRANSITIONS[state]:
        raise TransitionError(f"job {job_id} cannot end as {state}, which is not a last state")
    with _exclusive(rows):
        _check_lease(rows, job_id, worker)
        _end(rows, job_id, state, reason, now)


def take_back(rows: sqlite3.Connection, workers: Collection[str], now: float, max_attempts: int) -> None:
    """Let the jobs of dead workers wait again, or give them up."""
    with _exclusive(rows):
        running = rows.execute("SELECT id, attempts, worker FROM jobs WHERE state = 'running'").fetchall()
        held = [(job_id, attempts) for job_id, attempts, worker in running if worker in workers]
        _requeue_or_give_up(rows, held, now, max_attempts)


def remember(rows: sqlite3.Connection, job_id: str, key: str, value: str) -> None:
    """Keep a fact about a job, whoever runs it now: what was done stays done."""
    with _exclusive(rows):
        _state(rows, job_id)
        rows.execute("INSERT OR REPLACE INTO facts (job_id, key, value) VALUES (?, ?, ?)", (job_id, key, value))


def recall(rows: sqlite3.Connection, job_id: str) -> dict[str, str]:
    """Every fact kept about a job."""
    return dict(rows.execute("SELECT key, value FROM facts WHERE job_id = ? ORDER BY key", (job_id,)).fetchall())


def get(rows: sqlite3.Connection, job_id: str) -> tuple[Job, JobState, str, int] | None:
    """A job, its state, the reason for it, and how often it was handed out."""
    row = rows.execute("SELECT body, state, reason, attempts FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        return None
    body, state, reason, attempts = row
    try:
        return _JOB.validate_json(body), JobState(state), reason, attempts
    except ValidationError as error:
        raise QueueError(f"the stored job {job_id} cannot be read by this version: {error}") from error


def counts(rows: sqlite3.Connection) -> dict[JobState, int]:
    """How many jobs stand in each state, the empty ones too."""
    found = dict(rows.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
    return {state: found.get(state, 0) for state in JobState}


@contextmanager
def _exclusive(rows: sqlite3.Connection) -> Iterator[None]:
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


def _anything_to_claim(rows: sqlite3.Connection, now: float) -> bool:
    """Look without the write lock: idle workers ask often, and must not hold up the door."""
    expired = rows.execute("SELECT 1 FROM jobs WHERE state = 'running' AND lease_until < ? LIMIT 1", (now,)).fetchone()
    return expired is not None or rows.execute(_CLAIMABLE).fetchone() is not None


def _take_back_expired(rows: sqlite3.Connection, now: float, max_attempts: int) -> None:
    expired = rows.execute(
        "SELECT id, attempts FROM jobs WHERE state = 'running' AND lease_until < ?", (now,)
    ).fetchall()
    _requeue_or_give_up(rows, expired, now, max_attempts)


def _requeue_or_give_up(rows: sqlite3.Connection, held: list[tuple[str, int]], now: float, max_attempts: int) -> None:
    for job_id, attempts in held:
        if attempts > max_attempts:
            reason = f"its worker died {attempts} times; the last time while only reporting that"
            _end(rows, job_id, JobState.FAILED, reason, now)
        else:
            _requeue(rows, job_id)


def _requeue(rows: sqlite3.Connection, job_id: str) -> None:
    _move(rows, job_id, JobState.QUEUED)
    rows.execute("UPDATE jobs SET worker = NULL, lease_until = NULL WHERE id = ?", (job_id,))


def _end(rows: sqlite3.Connection, job_id: str, state: JobState, reason: str, now: float) -> None:
    _move(rows, job_id, state)
    rows.execute(
        "UPDATE jobs SET reason = ?, finished_at = ?, worker = NULL, lease_until = NULL WHERE id = ?",
        (reason, now, job_id),
    )


def _move(rows: sqlite3.Connection, job_id: str, to: JobState) -> None:
    state = _state(rows, job_id)
    if to not in TRANSITIONS[state]:
        raise TransitionError(f"job {job_id} cannot go from {state} to {to}")
    rows.execute("UPDATE jobs SET state = ? WHERE id = ?", (to, job_id))


def _state(rows: sqlite3.Connection, job_id: str) -> JobState:
    row = rows.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise QueueError(f"there is no job {job_id} in the queue")
    return JobState(row[0])


def _check_lease(rows: sqlite3.Connection, job_id: str, worker: str) -> None:
    """A worker may end a job whose lease ran out, as long as nobody else has taken it."""
    row = rows.execute("SELECT worker FROM jobs WHERE id = ? AND state = 'running'", (job_id,)).fetchone()
    if row is None or row[0] != worker:
        raise LeaseLostError(f"job {job_id} is not {worker}'s any more; another worker has it or has ended it")
