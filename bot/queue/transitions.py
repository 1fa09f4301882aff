"""State changes of jobs, each within the caller's transaction.

A job is enqueued in DBOS when it may run: the oldest of its thread, within its repository's limit. Each enqueueing is a
leg with its own workflow; those of earlier legs do nothing. A job whose worker died is a suspect until it makes
progress, and is given up after too many deaths.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import sqlalchemy as sa

from bot.domain.errors import LeaseLostError, OtherVersionError, QueueError, TransitionError
from bot.domain.job import ENDED_STATES, TRANSITIONS, Job, JobState, Lane
from bot.queue.protocols import (
    EXCUSE_SECONDS,
    ISOLATION_SECONDS,
    MAX_DEATHS,
    MAX_EXCUSED,
    MAX_REPORT_DEATHS,
    PendingReport,
    death_pause,
    report_pause,
)
from bot.queue.records import Signal, decode_job, encode_job
from bot.queue.store import (
    DEATHS,
    JOBS,
    RECORDS,
    REPORTS,
    SIGNALS,
    SUSPECTS,
    Transaction,
    insert,
)
from bot.queue.workflows import REPORT, REPORT_QUEUE, RUN, TIMERS, WAKE, queue_name

log = logging.getLogger(__name__)

_SUSPECT_SECONDS = 5.0
"""Delay of a suspect whose worker already runs one."""

_OTHER_VERSION_DELAY_SECONDS = 30.0

_OTHER_VERSION_SECONDS = 24 * 3600.0
"""Delay between attempts at an unreadable job, which is left to workers of another version."""


def accept(tx: Transaction, job: Job, held_seconds: float) -> bool:
    lock(tx, job.lane, job.repo.id, job.thread.key)
    values = {
        "id": job.id,
        "delivery_id": job.delivery_id,
        "repo_id": job.repo.id,
        "thread": job.thread.key,
        "installation": job.installation,
        "actor_id": job.actor.id,
        "lane": job.lane,
        "state": JobState.QUEUED,
        "held_until": tx.now + held_seconds if held_seconds else 0.0,
        "enqueued_at": tx.now,
        "body": encode_job(job),
        "repository": job.repo.full_name.casefold(),
        "actor": job.actor.login.casefold(),
    }
    statement = _insert_statement(tx.rows.dialect.name, not has_limit(tx, job.lane))
    thread = _thread_parameters(job.lane, job.repo.id, job.thread.key)
    stored = tx.rows.execute(statement, values | thread).one_or_none()
    if stored is None:
        return False
    if stored.released:
        share = partition_of(job.lane, job.installation, job.actor.id)
        run_id, queue = workflow_id(job.id, 1), queue_name(job.lane)
        tx.enqueue(RUN, run_id, queue, job.id, 1, partition=share, delay=held_seconds)
    else:
        release_next(tx, job.lane, job.repo.id, job.thread.key)
    return True


def release_hold(tx: Transaction, job_id: str) -> str | None:
    row = _lock_row(tx, job_id)
    change(tx, job_id, held_until=0.0)
    return workflow_id(job_id, row.leg) if row.released and row.held_until > tx.now else None


def begin(tx: Transaction, job_id: str, leg: int, worker: str) -> tuple[Job, int, int] | None:
    row = _lock_row(tx, job_id)
    if row.leg != leg or row.state not in {JobState.QUEUED, JobState.RUNNING}:
        return None
    if row.state == JobState.RUNNING:
        # DBOS runs a workflow again only after its worker died.
        charged_deaths = charge_death(tx, job_id, row.worker)
        if _give_up(tx, row, charged_deaths) or _postpone(tx, row, death_pause(charged_deaths)):
            return None
        _move(tx, row, JobState.QUEUED)
    deaths, stops = count_deaths(tx, job_id), is_stopping(tx, job_id)
    delay = _SUSPECT_SECONDS if deaths is not None and has_running_suspect(tx, worker) else 0.0
    is_thread_busy = tx.rows.execute(_RUNS_IN_THREAD, _thread_parameters(row.lane, row.repo_id, row.thread)).scalar()
    if is_thread_busy or delay or (is_over_limit(tx, row) and not stops):
        if is_thread_busy:
            change(tx, job_id, released=False)  # the end of the other job enqueues it
            release_next(tx, row.lane, row.repo_id, row.thread)
        else:
            _requeue(tx, row, held_until=tx.now + delay if delay else 0.0)
        return None
    try:
        job = decode_job(row.body)
    except OtherVersionError as error:
        if tx.now - row.enqueued_at < _OTHER_VERSION_SECONDS and _postpone(tx, row, _OTHER_VERSION_DELAY_SECONDS):
            log.warning("job %s: left to workers of the version that stored it: %s", job_id, error)
            return None
        log.error("job %s: this version cannot read the stored job, and does not report its end", job_id)  # noqa: TRY400 - the reason has it
        _move(tx, row, JobState.RUNNING)
        _end(tx, _lock_row(tx, job_id), JobState.FAILED, str(error))
        return None
    attempt = row.attempts + 1
    begun_at = tx.now if row.begun_at is None else row.begun_at
    _move(tx, row, JobState.RUNNING, worker=worker, attempts=attempt, begun_at=begun_at, waits_until=None)
    if deaths is not None:
        claim_suspect(tx, job_id, tx.now)
    return job, attempt, deaths or 0


def check_lease(tx: Transaction, job_id: str, leg: int, worker: str) -> sa.Row[Any]:
    """Return the job's row, locked until the transaction ends.

    Raises:
        LeaseLostError: another worker has the job.
    """
    row = _lock_row(tx, job_id)
    if (row.state, row.leg, row.worker) != (JobState.RUNNING, leg, worker):
        raise LeaseLostError(f"job {job_id} is no longer {worker}'s; another worker has it or has ended it")
    return row


def release(tx: Transaction, row: sa.Row[Any], held_seconds: float) -> None:
    """Requeue a job without counting this attempt."""
    claim_suspect(tx, row.id, None)
    # 0 rather than the current time, which would be a delay for a transaction that started earlier.
    _requeue(tx, row, held_until=tx.now + held_seconds if held_seconds else 0.0, attempts=row.attempts - 1)


def park(
    tx: Transaction, row: sa.Row[Any], until: float, delivered: int, has_answer: Callable[[str | None], bool]
) -> bool:
    """Let a job wait; return False if a signal came after `delivered`, or its record has the answer."""
    if last_signal_number(tx, row.id) > delivered or has_answer(record(tx, row.id)):
        return False
    # This attempt survived; deaths count anew after the answer.
    clear_suspect(tx, row.id)
    _move(tx, row, JobState.WAITING, waits_until=until, attempts=0, worker=None, released=False)
    tx.enqueue(WAKE, f"{row.id}-wake-{row.leg}", TIMERS, row.id, row.leg, delay=max(0.0, until - tx.now))
    _release_thread(tx, row)
    return True


def wake(tx: Transaction, job_id: str, leg: int | None = None) -> bool:
    """Queue a job if it waits, in the given leg if any."""
    row = _lock_row(tx, job_id)
    if row.state != JobState.WAITING or leg not in {None, row.leg}:
        return False
    _requeue(tx, row)
    return True


def finish(tx: Transaction, row: sa.Row[Any], state: JobState, reason: str, report_delay: float | None) -> None:
    _end(tx, row, state, reason)
    if report_delay is not None:
        schedule_report(tx, row.id, report_delay)


def cancel(
    tx: Transaction,
    job_id: str,
    state: JobState,
    reason: str,
    record_ending: Callable[[str | None], str | None] | None = None,
) -> bool:
    _check_final(job_id, state)
    row = _lock_row(tx, job_id)
    if row.state not in {JobState.QUEUED, JobState.WAITING}:
        return False
    if record_ending is not None:
        if (after := record_ending(record(tx, job_id))) is None:
            return False
        _save_record(tx, job_id, after)
        schedule_report(tx, job_id, 0.0)
    _end(tx, row, state, reason)
    return True


def record(tx: Transaction, job_id: str) -> str | None:
    return tx.rows.execute(sa.select(RECORDS.c.body).where(RECORDS.c.job_id == job_id)).scalar()


def update(
    tx: Transaction, job_id: str, change: Callable[[str | None], str], has_progress: Callable[[str | None, str], bool]
) -> None:
    """Update a job's record, even if another worker runs it now: completed actions stay recorded."""
    _lock_row(tx, job_id)
    before = record(tx, job_id)
    after = change(before)
    if after == before:
        return
    _save_record(tx, job_id, after)
    if count_deaths(tx, job_id) is not None and has_progress(before, after):
        clear_suspect(tx, job_id)


def _save_record(tx: Transaction, job_id: str, body: str) -> None:
    row = insert(tx, RECORDS).values(job_id=job_id, body=body)
    tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id"], set_={"body": body}))


def send(tx: Transaction, job_id: str, signal: Signal) -> bool:
    """Store a signal; a job to stop, unless it runs, is enqueued for steering, where it waits for no other job."""
    row = _lock_row(tx, job_id)
    if row.state in ENDED_STATES:
        return False
    was_stopping, number = is_stopping(tx, job_id), last_signal_number(tx, job_id) + 1
    tx.rows.execute(
        insert(tx, SIGNALS)
        .values(job_id=job_id, number=number, id=signal.id, kind=signal.kind, text=signal.text, sender=signal.by)
        .on_conflict_do_nothing()
    )
    tx.notify(job_id)
    if signal.kind == "stop" and (row.state == JobState.WAITING or (row.state == JobState.QUEUED and not was_stopping)):
        _requeue(tx, row, held_until=0.0)
    return True


def is_stopping(tx: Transaction, job_id: str, *, since: int = 0) -> bool:
    """Whether a signal after the one with the number `since` stops the job."""
    return bool(tx.rows.execute(_STOPS, {"of_job": job_id, "since": since}).scalar())


def last_signal_number(tx: Transaction, job_id: str) -> int:
    newest = sa.select(sa.func.coalesce(sa.func.max(SIGNALS.c.number), 0)).where(SIGNALS.c.job_id == job_id)
    return int(tx.rows.execute(newest).scalar_one())


def last_signal_numbers(tx: Transaction, job_ids: Collection[str]) -> dict[str, int]:
    """Return the number of the last signal of each job that has any."""
    newest = sa.select(SIGNALS.c.job_id, sa.func.max(SIGNALS.c.number).label("number"))
    newest = newest.where(SIGNALS.c.job_id.in_(job_ids)).group_by(SIGNALS.c.job_id)
    return {row.job_id: row.number for row in tx.rows.execute(newest)}


def signals(tx: Transaction, job_id: str, after: int) -> tuple[tuple[int, Signal], ...]:
    query = sa.select(SIGNALS).where(SIGNALS.c.job_id == job_id, SIGNALS.c.number > after).order_by(SIGNALS.c.number)
    return tuple(
        (row.number, Signal(kind=row.kind, text=row.text, by=row.sender, id=row.id)) for row in tx.rows.execute(query)
    )


def schedule_report(tx: Transaction, job_id: str, delay: float) -> None:
    tx.rows.execute(insert(tx, REPORTS).values(job_id=job_id, since=tx.now, tries=0).on_conflict_do_nothing())
    tx.enqueue(REPORT, f"{job_id}-told-0", REPORT_QUEUE, job_id, delay=delay)


def claim_report(tx: Transaction, job_id: str) -> PendingReport | None:
    _lock_row(tx, job_id)
    row = tx.rows.execute(
        sa.select(REPORTS.c.since, REPORTS.c.tries, JOBS.c.body)
        .join(JOBS, JOBS.c.id == REPORTS.c.job_id)
        .where(REPORTS.c.job_id == job_id)
    ).one_or_none()
    if row is None:
        return None
    tx.rows.execute(REPORTS.update().where(REPORTS.c.job_id == job_id).values(tries=row.tries + 1))
    try:
        job = decode_job(row.body) if row.body is not None else None
    except OtherVersionError:
        job = None
    return PendingReport(job=job, job_id=job_id, since=row.since, tries=row.tries + 1)


def check_report(tx: Transaction, report: PendingReport) -> None:
    _lock_row(tx, report.job_id)
    if tx.rows.execute(sa.select(REPORTS.c.tries).where(REPORTS.c.job_id == report.job_id)).scalar() != report.tries:
        raise LeaseLostError(f"the ending of job {report.job_id} is no longer this worker's; another one tells it")


def finish_report(tx: Transaction, report: PendingReport) -> None:
    """Remove a report that is posted, or never will be."""
    check_report(tx, report)
    tx.rows.execute(REPORTS.delete().where(REPORTS.c.job_id == report.job_id))


def postpone_report(tx: Transaction, report: PendingReport) -> None:
    check_report(tx, report)
    delay = report_pause(report.tries)
    tx.enqueue(REPORT, f"{report.job_id}-told-{report.tries}", REPORT_QUEUE, report.job_id, delay=delay)


def _give_up(tx: Transaction, row: sa.Row[Any], deaths: int) -> bool:
    if deaths < MAX_REPORT_DEATHS:
        return False
    reason = f"{deaths} workers died while running it, the last while only reporting that"
    log.error("job %s: given up without a report: %s", row.id, reason)
    _end(tx, row, JobState.FAILED, reason)
    return True


def _postpone(tx: Transaction, row: sa.Row[Any], seconds: float) -> bool:
    if seconds <= 0:
        return False
    _requeue(tx, row, held_until=tx.now + seconds)
    return True


def _requeue(tx: Transaction, row: sa.Row[Any], **values: float) -> None:
    _move(tx, row, JobState.QUEUED, worker=None, waits_until=None, released=False, **values)
    _release_thread(tx, row)


def _end(tx: Transaction, row: sa.Row[Any], state: JobState, reason: str) -> None:
    _check_final(row.id, state)
    _move(tx, row, state, reason=reason, finished_at=tx.now, worker=None, waits_until=None, released=False)
    clear_suspect(tx, row.id)
    _release_thread(tx, row)


def _check_final(job_id: str, state: JobState) -> None:
    if state not in ENDED_STATES:
        raise TransitionError(f"job {job_id} cannot end as {state}, which is not a last state")


def _move(tx: Transaction, row: sa.Row[Any], to: JobState, **values: object) -> None:
    if row.state != to and to not in TRANSITIONS[JobState(row.state)]:
        raise TransitionError(f"job {row.id} cannot go from {row.state} to {to}")
    change(tx, row.id, state=to, **values)


# Made once: to make a statement takes as long as to execute it.
_ROW = sa.select(JOBS).where(JOBS.c.id == sa.bindparam("of_job"))


def _lock_row(tx: Transaction, job_id: str) -> sa.Row[Any]:
    row = tx.rows.execute(_ROW, {"of_job": job_id}).one_or_none()
    if row is None:
        raise QueueError(f"there is no job {job_id} in the queue")
    has_waited = lock(tx, row.lane, row.repo_id, row.thread)
    return tx.rows.execute(_ROW, {"of_job": job_id}).one() if has_waited else row


def workflow_id(job_id: str, leg: int) -> str:
    return job_id if leg == 1 else f"{job_id}-{leg}"


def partition_of(lane: Lane, installation: int | None, actor_id: int) -> str:
    """Return a job's partition of its queue; partitions take turns."""
    return str(installation or 0) if lane == "work" else str(actor_id)


def has_limit(tx: Transaction, lane: Lane) -> bool:
    """Whether parallel jobs of a repository are limited.

    DBOS limits only partitions, which are installations; jobs beyond a repository's limit stay in the table.
    """
    return lane == "work" and tx.jobs_of_repository is not None


def lock(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> bool:
    """Lock a thread's jobs of a lane, or a whole repository's."""
    if has_limit(tx, lane):
        # Before the threads' locks, so that holders of several of them are serialized.
        tx.lock("repository", repo_id)
    return tx.lock(lock_name(lane, repo_id, thread))


def lock_name(lane: Lane, repo_id: int, thread: int) -> str:
    return f"jobs {lane} {repo_id} {thread}"


def change(tx: Transaction, job_id: str, **values: object) -> None:
    tx.rows.execute(_CHANGE, {**values, "of_job": job_id})


def release_next(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> None:
    """Enqueue the next job of a thread, or of the repository if its jobs are limited. The caller holds the `lock`."""
    if has_limit(tx, lane):
        _fill(tx, repo_id)
    elif (row := tx.rows.execute(_NEXT, _thread_parameters(lane, repo_id, thread)).one_or_none()) is not None:
        _enqueue_leg(tx, row, lane)


def _release_thread(tx: Transaction, row: sa.Row[Any]) -> None:
    """Enqueue the stopped jobs of a thread for steering, else its next job."""
    for stopped in tx.rows.execute(_STOPPED, _thread_parameters(row.lane, row.repo_id, row.thread)).all():
        _enqueue_leg(tx, stopped, "steer")
    release_next(tx, row.lane, row.repo_id, row.thread)


def is_over_limit(tx: Transaction, row: sa.Row[Any]) -> bool:
    """Whether other jobs use all places of the repository, after a delay or due to another process's limit."""
    return has_limit(tx, row.lane) and _free_places(tx, row.repo_id, excluded=row.id) <= 0


def fill_repository(tx: Transaction, repo_id: int) -> None:
    """Enqueue a repository's jobs up to its limit, oldest first."""
    tx.lock("repository", repo_id)
    _fill(tx, repo_id)


def find_repositories_to_fill(tx: Transaction) -> tuple[int, ...]:
    repo_ids = tx.rows.execute(sa.select(JOBS.c.repo_id).distinct().where(*_WAITING)).scalars().all()
    return tuple(repo_id for repo_id in repo_ids if _free_places(tx, repo_id) > 0)


def _fill(tx: Transaction, repo_id: int) -> None:
    room = _free_places(tx, repo_id)
    while room > 0 and (row := _lock_oldest(tx, repo_id)) is not None:
        # A delayed job takes a place only when it starts.
        room -= _enqueue_leg(tx, row, "work") == 1 or row.held_until <= tx.now


def _free_places(tx: Transaction, repo_id: int, *, excluded: str = "") -> float:
    if tx.jobs_of_repository is None:
        return math.inf
    used = tx.rows.execute(_TAKEN, {"in_repo": repo_id, "besides": excluded, "now": tx.now}).scalar_one()
    return tx.jobs_of_repository - int(used)


def _lock_oldest(tx: Transaction, repo_id: int) -> sa.Row[Any] | None:
    previous_id = ""
    while (row := tx.rows.execute(_OLDEST, {"in_repo": repo_id}).one_or_none()) is not None and row.id != previous_id:
        if not tx.lock(lock_name("work", repo_id, row.thread)):
            break
        previous_id = row.id
    return row


def _enqueue_leg(tx: Transaction, row: sa.Row[Any], lane: Lane) -> int:
    leg: int = row.leg + 1
    change(tx, row.id, leg=leg, released=True)
    # Stops take minutes: together they have a part of the places for steering, as one person has.
    share = partition_of(lane, row.installation, row.actor_id) if lane == row.lane else "stops"
    delay = max(0.0, row.held_until - tx.now)
    tx.enqueue(RUN, workflow_id(row.id, leg), queue_name(lane), row.id, leg, partition=share, delay=delay)
    return leg


# Made once: to make a statement takes as long as to execute it.
_CHANGE = JOBS.update().where(JOBS.c.id == sa.bindparam("of_job"))

_IN_THREAD = (
    JOBS.c.lane == sa.bindparam("in_lane"),
    JOBS.c.repo_id == sa.bindparam("in_repo"),
    JOBS.c.thread == sa.bindparam("in_thread"),
)


def _thread_parameters(lane: Lane, repo_id: int, thread: int) -> dict[str, str | int]:
    return {"in_lane": lane, "in_repo": repo_id, "in_thread": thread}


@cache
def _insert_statement(dialect: str, may_run: bool) -> sa.Insert:  # noqa: FBT001 - of a cached function
    put = insert(dialect, JOBS)
    if may_run:
        is_free = ~sa.exists().where(*_IN_THREAD, JOBS.c.state.in_((JobState.RUNNING, JobState.QUEUED)))
        put = put.values(released=is_free, leg=sa.case((is_free, 1), else_=0))
    return put.on_conflict_do_nothing().returning(JOBS.c.released)


_IS_LATER = SIGNALS.c.number > sa.bindparam("since")
_STOPS = sa.select(sa.exists().where(SIGNALS.c.job_id == sa.bindparam("of_job"), SIGNALS.c.kind == "stop", _IS_LATER))
_HAS_STOP = sa.exists().where(SIGNALS.c.job_id == JOBS.c.id, SIGNALS.c.kind == "stop")
_STOPPED = sa.select(JOBS).where(*_IN_THREAD, JOBS.c.state == JobState.QUEUED, ~JOBS.c.released, _HAS_STOP)
_RUNS_IN_THREAD = sa.select(sa.exists().where(*_IN_THREAD, JOBS.c.state == JobState.RUNNING))
_BUSY = sa.exists().where(
    *_IN_THREAD, sa.or_(JOBS.c.state == JobState.RUNNING, sa.and_(JOBS.c.state == JobState.QUEUED, JOBS.c.released))
)
_NEXT = sa.select(JOBS).where(*_IN_THREAD, JOBS.c.state == JobState.QUEUED, ~_BUSY).order_by(JOBS.c.seq).limit(1)
_OTHER = JOBS.alias("other")
_WAITING = (
    JOBS.c.lane == "work",
    JOBS.c.state == JobState.QUEUED,
    ~JOBS.c.released,
    JOBS.c.finished_at.is_(None),  # as the indexes have it
    ~sa.exists().where(
        _OTHER.c.lane == "work",
        _OTHER.c.repo_id == JOBS.c.repo_id,
        _OTHER.c.thread == JOBS.c.thread,
        _OTHER.c.released,
        _OTHER.c.finished_at.is_(None),
    ),
)
_OLDEST = sa.select(JOBS).where(JOBS.c.repo_id == sa.bindparam("in_repo"), *_WAITING).order_by(JOBS.c.seq).limit(1)

# A new job keeps its place during its acknowledgement (a second), but not during a delay (up to an hour).
_TAKEN = sa.select(sa.func.count()).where(
    JOBS.c.lane == "work",
    JOBS.c.repo_id == sa.bindparam("in_repo"),
    JOBS.c.released,
    JOBS.c.finished_at.is_(None),
    JOBS.c.id != sa.bindparam("besides"),
    sa.or_(JOBS.c.held_until <= sa.bindparam("now"), JOBS.c.leg == 1),
)


def charge_death(tx: Transaction, job_id: str, worker: str) -> int:
    """Record a worker's death during a job; return the number of deaths charged to it."""
    death = insert(tx, DEATHS).values(worker=worker, job_id=job_id, at=tx.now)
    tx.rows.execute(death.on_conflict_do_nothing())
    tx.rows.execute(DEATHS.delete().where(DEATHS.c.at < tx.now - EXCUSE_SECONDS))
    own_workers = sa.select(DEATHS.c.worker).where(DEATHS.c.job_id == job_id)
    other_deaths = sa.select(sa.func.count(DEATHS.c.worker.distinct())).where(DEATHS.c.worker.not_in(own_workers))
    is_excused = (SUSPECTS.c.excused < MAX_EXCUSED) & (SUSPECTS.c.excused < tx.rows.execute(other_deaths).scalar_one())
    charges = {
        "deaths": SUSPECTS.c.deaths + sa.case((is_excused, 0), else_=1),
        "excused": SUSPECTS.c.excused + sa.case((is_excused, 1), else_=0),
        "claimed_at": sa.null(),
    }
    suspect = insert(tx, SUSPECTS).values(job_id=job_id, deaths=0)
    tx.rows.execute(suspect.on_conflict_do_update(index_elements=["job_id"], set_=charges))
    charged = count_deaths(tx, job_id) or 0
    if charged >= MAX_DEATHS:
        tx.rows.execute(DEATHS.delete().where(DEATHS.c.worker.in_(own_workers)))  # caused by this job
    return charged


def count_deaths(tx: Transaction, job_id: str) -> int | None:
    return tx.rows.execute(_COUNT, {"of_job": job_id}).scalar()


def has_running_suspect(tx: Transaction, worker: str) -> bool:
    """Whether a worker has started a suspect within the last minute."""
    tx.lock("suspects", worker)  # so that two concurrent starts see each other
    under_way = (
        sa.select(JOBS.c.id)
        .join(SUSPECTS, SUSPECTS.c.job_id == JOBS.c.id)
        .where(
            JOBS.c.state == JobState.RUNNING,
            JOBS.c.worker == worker,
            SUSPECTS.c.claimed_at > tx.now - ISOLATION_SECONDS,
        )
    )
    return tx.rows.execute(under_way.limit(1)).one_or_none() is not None


def claim_suspect(tx: Transaction, job_id: str, at: float | None) -> None:
    """Record when a worker started a suspect; None if it was released."""
    tx.rows.execute(_CLAIM, {"of_job": job_id, "claimed_at": at})


def clear_suspect(tx: Transaction, job_id: str) -> None:
    tx.rows.execute(_CLEAR, {"of_job": job_id})


# Made once: to make a statement takes as long as to execute it.
_SUSPECT = SUSPECTS.c.job_id == sa.bindparam("of_job")
_COUNT = sa.select(SUSPECTS.c.deaths).where(_SUSPECT)
_CLAIM = SUSPECTS.update().where(_SUSPECT)
_CLEAR = SUSPECTS.delete().where(_SUSPECT)
