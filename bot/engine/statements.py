"""The statements that move jobs through their states: one function an operation, each one transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pydantic import ValidationError

from bot.domain.errors import LeaseLostError, QueueError, TransitionError
from bot.domain.job import TRANSITIONS, Job, JobState, Lane
from bot.engine import deaths, job_rows
from bot.engine.database import exclusive
from bot.engine.job_record import JobRecord, RecordedEnding, got_on
from bot.engine.owed_rows import owe, taken_back
from bot.engine.records import Signal, dumped, loaded

log = logging.getLogger(__name__)

# Whoever has none of theirs under way comes first: nobody's words keep another's waiting, however many they are.
_AT_ONCE = """
SELECT id, attempts, body FROM jobs AS next WHERE state = 'queued' AND lane = '{lane}' AND held_until <= :now
AND NOT EXISTS (
    SELECT 1 FROM jobs AS busy WHERE busy.state = 'running' AND busy.lane = '{lane}'
    AND busy.repo_id = next.repo_id AND busy.thread = next.thread
) AND (next.id NOT IN (SELECT job_id FROM suspects) OR NOT EXISTS (
    SELECT 1 FROM suspects JOIN jobs AS held ON held.id = suspects.job_id
    WHERE held.state = 'running' AND held.worker = :worker AND suspects.claimed_at > :alone
)) ORDER BY EXISTS (
    SELECT 1 FROM jobs AS own WHERE own.state = 'running' AND own.lane = '{lane}' AND own.actor_id = next.actor_id
), seq LIMIT 1
"""

_CLAIMABLE: dict[Lane, str] = {
    "work": """
SELECT id, attempts, body FROM jobs AS next WHERE state = 'queued' AND lane = 'work' AND held_until <= :now
AND NOT EXISTS (
    SELECT 1 FROM jobs AS busy WHERE busy.state = 'running' AND busy.lane = 'work'
    AND busy.repo_id = next.repo_id AND busy.thread = next.thread
) AND NOT EXISTS (
    SELECT 1 FROM jobs AS older WHERE older.state = 'queued' AND older.lane = 'work' AND older.seq < next.seq
    AND older.repo_id = next.repo_id AND older.thread = next.thread
) AND (next.id NOT IN (SELECT job_id FROM suspects) OR NOT EXISTS (
    SELECT 1 FROM suspects JOIN jobs AS held ON held.id = suspects.job_id
    WHERE held.state = 'running' AND held.worker = :worker AND suspects.claimed_at > :alone
)) ORDER BY seq LIMIT 1
""",
    **{lane: _AT_ONCE.format(lane=lane) for lane in ("steer", "event")},
}

_RESTORING_SECONDS = 60.0
"""For so long nobody claims a job between its two transactions."""

_LEASE_OVER = "SELECT id FROM jobs WHERE state = 'running' AND lease_until < :now"
_WAIT_OVER = "SELECT id FROM jobs WHERE state = 'waiting' AND waits_until <= :now"


def insert(rows: sqlite3.Connection, job: Job, now: float, held_until: float) -> bool:
    """Store a job; False when its id or its delivery's is known."""
    values = (
        job.id,
        job.delivery_id,
        job.repo.id,
        job.thread.key,
        job.installation,
        job.actor.id,
        job.lane,
        JobState.QUEUED,
        held_until,
        now,
        dumped(job),
    )
    with exclusive(rows):
        done = rows.execute(
            "INSERT INTO jobs (id, delivery_id, repo_id, thread, installation, actor_id, lane, state,"
            " held_until, enqueued_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            values,
        )
    return done.rowcount == 1


def restore(rows: sqlite3.Connection, job: Job, record: JobRecord, now: float, until: float) -> None:
    """Store a job that waits already, unless it is known."""
    if not insert(rows, job, now, now + _RESTORING_SECONDS):
        return
    with exclusive(rows):
        _move(rows, job.id, JobState.RUNNING)
        _move(rows, job.id, JobState.WAITING)
        rows.execute("UPDATE jobs SET waits_until = ?, held_until = 0, begun_at = ? WHERE id = ?", (until, now, job.id))
        job_rows.put_record(rows, job.id, record)


def unhold(rows: sqlite3.Connection, job_id: str) -> None:
    """Let a held job be claimed."""
    with exclusive(rows):
        _state(rows, job_id)
        rows.execute("UPDATE jobs SET held_until = 0 WHERE id = ?", (job_id,))


def claim(
    rows: sqlite3.Connection, *, worker: str, lane: Lane, now: float, until: float
) -> tuple[Job, int, int] | None:
    """Hand the next job to a worker, with the number of the attempt and of its deaths; None when there is none."""
    names = {"now": now, "worker": worker, "alone": now - deaths.ALONE_SECONDS}
    if not _anything_to_claim(rows, lane, names):
        return None
    with exclusive(rows):
        for (job_id,) in rows.execute(_LEASE_OVER, names).fetchall():
            _requeue_orphan(rows, job_id, now)
        for (job_id,) in rows.execute(_WAIT_OVER, names).fetchall():
            _requeue(rows, job_id)
        while (row := rows.execute(_CLAIMABLE[lane], names).fetchone()) is not None:
            job_id, attempts, body = row
            _move(rows, job_id, JobState.RUNNING)
            rows.execute(
                "UPDATE jobs SET worker = ?, lease_until = ?, attempts = ?, begun_at = coalesce(begun_at, ?)"
                " WHERE id = ?",
                (worker, until, attempts + 1, now, job_id),
            )
            deaths.claimed(rows, job_id, now)
            try:
                return loaded(body), attempts + 1, deaths.deaths_of(rows, job_id)
            except ValidationError as error:
                log.error("job %s: the stored job cannot be read by this version; its end is not reported", job_id)  # noqa: TRY400 - the reason has it
                _end(rows, job_id, JobState.FAILED, f"the stored job cannot be read by this version: {error}", now)
    return None


def renew(rows: sqlite3.Connection, job_id: str, worker: str, until: float) -> None:
    """Move the end of a worker's lease."""
    with exclusive(rows):
        _check_lease(rows, job_id, worker)
        rows.execute("UPDATE jobs SET lease_until = ? WHERE id = ?", (until, job_id))


def release(rows: sqlite3.Connection, job_id: str, worker: str, held_until: float) -> None:
    """Queue a job again, as if this attempt had not been."""
    with exclusive(rows):
        _check_lease(rows, job_id, worker)
        _requeue(rows, job_id)
        deaths.claimed(rows, job_id, None)
        rows.execute("UPDATE jobs SET attempts = attempts - 1, held_until = ? WHERE id = ?", (held_until, job_id))


def park(rows: sqlite3.Connection, job_id: str, worker: str, until: float, heard: int | None, request_id: str) -> bool:  # noqa: PLR0917 - see Queue.park
    """Let a job wait for a person; False, and it runs on, when a signal came after `heard`, or there is an answer."""
    with exclusive(rows):
        _check_lease(rows, job_id, worker)
        if heard is not None and job_rows.last_signal(rows, job_id) > heard:
            return False
        if request_id in job_rows.record(rows, job_id).approvals.answers:
            return False
        _move(rows, job_id, JobState.WAITING)
        # This attempt did not die; those after the answer are counted from zero.
        deaths.clear(rows, job_id)
        rows.execute(
            "UPDATE jobs SET waits_until = ?, attempts = 0, worker = NULL, lease_until = NULL WHERE id = ?",
            (until, job_id),
        )
    return True


def wake(rows: sqlite3.Connection, job_id: str) -> bool:
    """Queue a waiting job; False when it does not wait."""
    with exclusive(rows):
        if _state(rows, job_id) is not JobState.WAITING:
            return False
        _requeue(rows, job_id)
    return True


def finish(  # noqa: PLR0917 - one column each
    rows: sqlite3.Connection, job_id: str, worker: str, state: JobState, reason: str, now: float, owed: float | None
) -> None:
    """End a job that a worker has; `owed`: in how many seconds its ending is to be told, None when it is."""
    _check_last(job_id, state)
    with exclusive(rows):
        _check_lease(rows, job_id, worker)
        _end(rows, job_id, state, reason, now)
        if owed is not None:
            owe(rows, job_id, now, owed)


def end(  # noqa: PLR0917 - one column each
    rows: sqlite3.Connection, job_id: str, state: JobState, reason: str, now: float, ending: RecordedEnding | None
) -> bool:
    """End a job that no worker has, with its report, if any; False when one has it, or it has ended."""
    _check_last(job_id, state)
    with exclusive(rows):
        if _state(rows, job_id) not in {JobState.QUEUED, JobState.WAITING}:
            return False
        _end(rows, job_id, state, reason, now)
        if ending is not None:
            job_rows.put_record(rows, job_id, replace(job_rows.record(rows, job_id), ending=ending))
            owe(rows, job_id, now, 0.0)
    return True


def requeue_orphans(rows: sqlite3.Connection, workers: Collection[str], now: float) -> None:
    """Queue the jobs of dead workers again, and let others tell what they were telling."""
    with exclusive(rows):
        running = rows.execute("SELECT id, worker FROM jobs WHERE state = 'running'").fetchall()
        for job_id in (job_id for job_id, worker in running if worker in workers):
            _requeue_orphan(rows, job_id, now)
        taken_back(rows, workers, now)


def get_on(rows: sqlite3.Connection, job_id: str, steps: int) -> None:
    """Keep how many steps the agent of a job has made; more than ever before clear it of suspicion."""
    with exclusive(rows):
        record = job_rows.record(rows, job_id)
        if steps > record.steps:
            job_rows.put_record(rows, job_id, replace(record, steps=steps))
            deaths.clear(rows, job_id)


def update(rows: sqlite3.Connection, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
    """Change the record of a job, whoever runs it now: what was done stays done."""
    with exclusive(rows):
        _state(rows, job_id)
        before = job_rows.record(rows, job_id)
        after = change(before)
        if got_on(before, after):
            deaths.clear(rows, job_id)
        if after != before:
            job_rows.put_record(rows, job_id, after)
        return after


def signal(rows: sqlite3.Connection, job_id: str, sent: Signal) -> bool:
    """Keep a signal for a job, once; False when it has ended, and hears nothing any more."""
    with exclusive(rows):
        if not TRANSITIONS[_state(rows, job_id)]:
            return False
        job_rows.put_signal(rows, job_id, sent)
    return True


def _anything_to_claim(rows: sqlite3.Connection, lane: Lane, names: Mapping[str, object]) -> bool:
    """Look without the write lock: idle workers ask often, and must not delay the webhook."""
    questions = (f"{_LEASE_OVER} LIMIT 1", f"{_WAIT_OVER} LIMIT 1", _CLAIMABLE[lane])
    return any(rows.execute(question, names).fetchone() is not None for question in questions)


def _requeue_orphan(rows: sqlite3.Connection, job_id: str, now: float) -> None:
    """Queue a job again whose worker died."""
    charged = deaths.charge(rows, job_id)
    if charged >= deaths.HOPELESS_DEATHS:
        log.error(
            "job %s: given up without a report: %d workers died while running it, the last while reporting",
            job_id,
            charged,
        )
        _end(
            rows,
            job_id,
            JobState.FAILED,
            f"{charged} workers died while running it, the last while reporting that",
            now,
        )
        return
    _requeue(rows, job_id)
    rows.execute("UPDATE jobs SET held_until = ? WHERE id = ?", (now + deaths.pause_after(charged), job_id))


def _requeue(rows: sqlite3.Connection, job_id: str) -> None:
    _move(rows, job_id, JobState.QUEUED)
    rows.execute("UPDATE jobs SET worker = NULL, lease_until = NULL, waits_until = NULL WHERE id = ?", (job_id,))


def _end(rows: sqlite3.Connection, job_id: str, state: JobState, reason: str, now: float) -> None:
    _move(rows, job_id, state)
    deaths.clear(rows, job_id)
    rows.execute(
        "UPDATE jobs SET reason = ?, finished_at = ?, worker = NULL, lease_until = NULL, waits_until = NULL"
        " WHERE id = ?",
        (reason, now, job_id),
    )


def _move(rows: sqlite3.Connection, job_id: str, to: JobState) -> None:
    state = _state(rows, job_id)
    if to not in TRANSITIONS[state]:
        raise TransitionError(f"job {job_id} cannot go from {state} to {to}")
    rows.execute("UPDATE jobs SET state = ? WHERE id = ?", (to, job_id))


def _check_last(job_id: str, state: JobState) -> None:
    if TRANSITIONS[state]:
        raise TransitionError(f"job {job_id} cannot end as {state}, which is not a final state")


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
