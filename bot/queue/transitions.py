"""Functions that move jobs through their states, each within its caller's transaction.

A job is in a queue of DBOS when it may run: as the oldest one of its thread, and within the bound of its repository.
Each time it is given to a queue is a leg, with a workflow of its own; a request of an earlier leg is refused. A job
whose worker died is a suspect until it makes progress: it is charged with the death, and given up after too many.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from bot.domain.errors import LeaseLostError, OtherVersionError, QueueError, TransitionError
from bot.domain.job import TRANSITIONS, Job, JobState, Lane
from bot.queue.protocols import (
    ALONE_SECONDS,
    EXCUSING_SECONDS,
    HOPELESS_DEATHS,
    MOST_DEATHS,
    MOST_EXCUSED,
    Owed,
    death_retry_delay,
    report_retry_delay,
)
from bot.queue.records import (
    JobRecord,
    RecordedEnding,
    Signal,
    decode_job,
    decode_record,
    encode_job,
    encode_record,
    has_progress,
)
from bot.queue.store import (
    APPLICATION,
    DEATHS,
    JOBS,
    OWED,
    RECORDS,
    SIGNALS,
    SUSPECTS,
    JobStore,
    Transaction,
    insert,
)

log = logging.getLogger(__name__)

RUN = "codepilot-run"
"""The workflow that runs a job. Its name is in the database: what is enqueued by one version is run by the next."""

WAKE, TELL = "codepilot-wake", "codepilot-tell"
"""The names of workflows, as `RUN`."""

TIMERS, ENDINGS = "codepilot-timers", "codepilot-endings"
"""The queues of what waits for a time, and of endings that are still to be told."""

_SUSPECT_SECONDS = 5.0
"""For how long a suspect leaves a worker alone that has another one under way."""

_FOR_OTHERS_SECONDS = 30.0

_OTHERS_SECONDS = 24 * 3600.0
"""How long a job that this version cannot read is left to workers of another one, and how often one is given it."""

_LAST = tuple(state for state in JobState if not TRANSITIONS[state])


def accept(tx: Transaction, job: Job, held_seconds: float, state: JobState = JobState.QUEUED) -> bool:
    """Store a job, and have it run when it is its turn; False when its id or its delivery's is known."""
    lock(tx, job.lane, job.repo.id, job.thread.key)
    values: dict[str, Any] = row_of(job, tx.now, held_seconds) | {"state": state}
    storing = _storing(tx.rows.dialect.name, state == JobState.QUEUED and not is_bounded(tx, job.lane))
    thread = _thread_parameters(job.lane, job.repo.id, job.thread.key)
    stored = tx.rows.execute(storing, values | thread).one_or_none()
    if stored is None:
        return False
    if stored.released:
        share, queue = share_of(job.lane, job.installation, job.actor.id), queue_name(job.lane)
        tx.enqueue(RUN, workflow_id(job.id, 1), queue, share, held_seconds, job.id, 1)
    else:
        release_next(tx, job.lane, job.repo.id, job.thread.key)
    return True


def row_of(job: Job, now: float, held_seconds: float) -> dict[str, str | int | float | None]:
    """What is stored of a new job."""
    held_until = now + held_seconds if held_seconds else 0.0
    return {
        "id": job.id,
        "delivery_id": job.delivery_id,
        "repo_id": job.repo.id,
        "thread": job.thread.key,
        "installation": job.installation,
        "actor_id": job.actor.id,
        "lane": job.lane,
        "state": JobState.QUEUED.value,
        "held_until": held_until,
        "enqueued_at": now,
        "body": encode_job(job),
        "repository": job.repo.full_name.casefold(),
        "actor": job.actor.login.casefold(),
    }


def restore(tx: Transaction, job: Job, record: JobRecord, until: float) -> None:
    """Store a job that waits already, unless it is known."""
    if accept(tx, job, 0.0, JobState.WAITING):
        change(tx, job.id, begun_at=tx.now, waits_until=until, leg=1)
        _change_record(tx, job.id, lambda _: record)
        _wake_later(tx, job.id, 1, until)


def unhold(tx: Transaction, job_id: str) -> str | None:
    """Let a held job run; the workflow that is delayed until then, if there is one."""
    row = _locked(tx, job_id)
    change(tx, job_id, held_until=0.0)
    return workflow_id(job_id, row.leg) if row.released and row.held_until > tx.now else None


def begin(tx: Transaction, job_id: str, leg: int, worker: str) -> tuple[Job, int, int] | None:
    """Hand a job to the worker that its leg's workflow runs on, with the number of the attempt and of its deaths.

    None when it is not to be run: the leg is over, or it is put off.
    """
    row = _locked(tx, job_id)
    if row.leg != leg or row.state not in {JobState.QUEUED, JobState.RUNNING}:
        return None
    if row.state == JobState.RUNNING:
        # DBOS runs the workflow again, so the worker that had it is dead.
        charged = charge_death(tx, job_id, row.worker)
        if _given_up(tx, row, charged) or _put_off(tx, row, death_retry_delay(charged)):
            return None
        _move(tx, row, JobState.QUEUED)
    deaths = count_deaths(tx, job_id)
    beside_suspect = deaths is not None and has_running_suspect(tx, worker)
    if beside_suspect or is_beyond(tx, row):
        _requeue(tx, row, held_until=tx.now + _SUSPECT_SECONDS if beside_suspect else 0.0)
        return None
    try:
        job = decode_job(row.body)
    except OtherVersionError as error:
        if tx.now - row.enqueued_at < _OTHERS_SECONDS and _put_off(tx, row, _FOR_OTHERS_SECONDS):
            log.warning("job %s: left to workers of the version that stored it: %s", job_id, error)
            return None
        log.error("job %s: this version cannot read the stored job, and does not report its end", job_id)  # noqa: TRY400 - the reason has it
        _move(tx, row, JobState.RUNNING)
        _end(tx, _locked(tx, job_id), JobState.FAILED, str(error))
        return None
    attempt = row.attempts + 1
    begun_at = tx.now if row.begun_at is None else row.begun_at
    _move(tx, row, JobState.RUNNING, worker=worker, attempts=attempt, begun_at=begun_at, waits_until=None)
    if deaths is not None:
        claim_suspect(tx, job_id, tx.now)
    return job, attempt, deaths or 0


def check_ours(tx: Transaction, job_id: str, leg: int, worker: str) -> sa.Row[Any]:
    """The job's row, which nobody else changes until the transaction ends.

    Raises:
        LeaseLostError: the job is no longer this worker's.
    """
    row = _locked(tx, job_id)
    if (row.state, row.leg, row.worker) != (JobState.RUNNING, leg, worker):
        raise LeaseLostError(f"job {job_id} is no longer {worker}'s; another worker has it or has ended it")
    return row


def release(tx: Transaction, row: sa.Row[Any], held_seconds: float) -> None:
    """Queue a job again, as if this attempt had not been; `row` as `check_ours` gives it."""
    claim_suspect(tx, row.id, None)
    # Not held by a moment: to a transaction that began earlier and waited, it would be a pause.
    _requeue(tx, row, held_until=tx.now + held_seconds if held_seconds else 0.0, attempts=row.attempts - 1)


def park(tx: Transaction, row: sa.Row[Any], until: float, heard: int, request_id: str) -> bool:
    """Let a job wait for a person; False, and it runs on, when a signal came after `heard`, or there is an answer."""
    if last_signal(tx, row.id) > heard or request_id in record(tx, row.id).approvals.answers:
        return False
    # This attempt did not die; those after the answer count anew.
    clear_suspect(tx, row.id)
    _move(tx, row, JobState.WAITING, waits_until=until, attempts=0, worker=None, released=False)
    _wake_later(tx, row.id, row.leg, until)
    release_next(tx, row.lane, row.repo_id, row.thread)
    return True


def wake(tx: Transaction, job_id: str, leg: int | None = None) -> bool:
    """Queue a waiting job, of a leg if one is named; False when it does not wait."""
    row = _locked(tx, job_id)
    if row.state != JobState.WAITING or leg not in {None, row.leg}:
        return False
    _requeue(tx, row)
    return True


def finish(tx: Transaction, row: sa.Row[Any], state: JobState, reason: str, owed: float | None) -> None:
    """End a job that a worker has; `owed`: in how many seconds its ending is to be told, None when it is."""
    _end(tx, row, state, reason)
    if owed is not None:
        owe(tx, row.id, owed)


def cancel(tx: Transaction, job_id: str, state: JobState, reason: str, ending: RecordedEnding | None) -> bool:
    """End a job that no worker has; see `Inbox.cancel`."""
    _check_last(job_id, state)
    row = _locked(tx, job_id)
    if row.state not in {JobState.QUEUED, JobState.WAITING} or record(tx, job_id).ending is not None:
        return False
    _end(tx, row, state, reason)
    if ending is not None:
        _change_record(tx, job_id, lambda record: replace(record, ending=ending))
        owe(tx, job_id, 0.0)
    return True


def record(tx: Transaction, job_id: str) -> JobRecord:
    """Return the record of a job; an empty one where nothing is recorded."""
    stored = _stored_record(tx, job_id)
    return decode_record(stored) if stored is not None else JobRecord()


def update(tx: Transaction, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
    """Change the record of a job, no matter which worker runs it now: what was done stays done."""
    _locked(tx, job_id)
    before, after = _change_record(tx, job_id, change)
    if has_progress(before, after):
        clear_suspect(tx, job_id)
    return after


def record_steps(tx: Transaction, job_id: str, steps: int) -> None:
    """Record how many steps the agent of a job has made; more than ever before clear it of suspicion."""
    before, after = _change_record(tx, job_id, lambda record: replace(record, steps=max(record.steps, steps)))
    if after != before:
        clear_suspect(tx, job_id)


def send(tx: Transaction, job_id: str, sent: Signal) -> bool:
    """Keep a signal for a job, once; False when it has ended, and hears nothing any more."""
    if not TRANSITIONS[JobState(_locked(tx, job_id).state)]:
        return False
    number = last_signal(tx, job_id) + 1
    tx.rows.execute(
        insert(tx, SIGNALS)
        .values(job_id=job_id, number=number, id=sent.id, kind=sent.kind, text=sent.text, sender=sent.by)
        .on_conflict_do_nothing()
    )
    return True


def last_signal(tx: Transaction, job_id: str) -> int:
    """The number of a job's last signal, or 0."""
    newest = sa.select(sa.func.coalesce(sa.func.max(SIGNALS.c.number), 0)).where(SIGNALS.c.job_id == job_id)
    return int(tx.rows.execute(newest).scalar_one())


def signals(tx: Transaction, job_id: str, after: int) -> tuple[tuple[int, Signal], ...]:
    """A job's signals with numbers above `after`, in their order."""
    later = sa.select(SIGNALS).where(SIGNALS.c.job_id == job_id, SIGNALS.c.number > after).order_by(SIGNALS.c.number)
    return tuple(
        (each.number, Signal(kind=each.kind, text=each.text, by=each.sender, id=each.id))
        for each in tx.rows.execute(later)
    )


def owe(tx: Transaction, job_id: str, pause: float) -> None:
    """Keep that the ending of a job is to be told, from `pause` seconds on."""
    tx.rows.execute(insert(tx, OWED).values(job_id=job_id, since=tx.now, tries=0).on_conflict_do_nothing())
    tx.enqueue(TELL, f"{job_id}-told-0", ENDINGS, None, pause, job_id)


def take_owed(tx: Transaction, job_id: str) -> Owed | None:
    """The ending of a job, to be told by the caller; None when it is told, or never can be."""
    _locked(tx, job_id)
    row = tx.rows.execute(
        sa.select(OWED.c.since, OWED.c.tries, JOBS.c.body)
        .join(JOBS, JOBS.c.id == OWED.c.job_id)
        .where(OWED.c.job_id == job_id)
    ).one_or_none()
    if row is None:
        return None
    tx.rows.execute(OWED.update().where(OWED.c.job_id == job_id).values(tries=row.tries + 1))
    try:
        job = decode_job(row.body) if row.body is not None else None
    except OtherVersionError:
        job = None
    return Owed(job=job, job_id=job_id, since=row.since, tries=row.tries + 1)


def check_owed(tx: Transaction, owed: Owed) -> None:
    """See that an ending is still to be told, and that nobody has taken it after this.

    Raises:
        LeaseLostError: somebody has.
    """
    _locked(tx, owed.job_id)
    if tx.rows.execute(sa.select(OWED.c.tries).where(OWED.c.job_id == owed.job_id)).scalar() != owed.tries:
        raise LeaseLostError(f"the ending of job {owed.job_id} is no longer this worker's; another one tells it")


def settle(tx: Transaction, owed: Owed) -> None:
    """GitHub has the ending of a job, or never will."""
    check_owed(tx, owed)
    tx.rows.execute(OWED.delete().where(OWED.c.job_id == owed.job_id))


def postpone(tx: Transaction, owed: Owed) -> None:
    """Tell an ending again after a pause that grows."""
    check_owed(tx, owed)
    pause = report_retry_delay(owed.tries)
    tx.enqueue(TELL, f"{owed.job_id}-told-{owed.tries}", ENDINGS, None, pause, owed.job_id)


def executors(tx: Transaction) -> frozenset[str]:
    """The executors of DBOS that have workflows under way."""
    table = "dbos.workflow_status" if tx.rows.dialect.name == "postgresql" else "workflow_status"
    # Its client would read each workflow whole; and on SQLite all that ended, for it does not use its own index.
    having = f"SELECT DISTINCT executor_id FROM {table} WHERE status = 'PENDING' AND application_name = :ours"  # noqa: S608 - ours
    found = tx.rows.execute(sa.text(having), {"ours": APPLICATION}).scalars()
    return frozenset(each for each in found if each is not None)


def _given_up(tx: Transaction, row: sa.Row[Any], deaths: int) -> bool:
    """End a job without a word of which even those died who only told its end; False when it is another one."""
    if deaths < HOPELESS_DEATHS:
        return False
    reason = f"{deaths} workers died while running it, the last while only reporting that"
    log.error("job %s: given up without a report: %s", row.id, reason)
    _end(tx, row, JobState.FAILED, reason)
    return True


def _put_off(tx: Transaction, row: sa.Row[Any], seconds: float) -> bool:
    """Queue a job again that is not to be run for some seconds; False when they are none."""
    if seconds <= 0:
        return False
    _requeue(tx, row, held_until=tx.now + seconds)
    return True


def _wake_later(tx: Transaction, job_id: str, leg: int, until: float) -> None:
    tx.enqueue(WAKE, f"{job_id}-wake-{leg}", TIMERS, None, max(0.0, until - tx.now), job_id, leg)


def _requeue(tx: Transaction, row: sa.Row[Any], **values: float) -> None:
    _move(tx, row, JobState.QUEUED, worker=None, waits_until=None, released=False, **values)
    release_next(tx, row.lane, row.repo_id, row.thread)


def _end(tx: Transaction, row: sa.Row[Any], state: JobState, reason: str) -> None:
    _check_last(row.id, state)
    _move(tx, row, state, reason=reason, finished_at=tx.now, worker=None, waits_until=None, released=False)
    clear_suspect(tx, row.id)
    release_next(tx, row.lane, row.repo_id, row.thread)


def _check_last(job_id: str, state: JobState) -> None:
    if state not in _LAST:
        raise TransitionError(f"job {job_id} cannot end as {state}, which is not a last state")


def _move(tx: Transaction, row: sa.Row[Any], to: JobState, **values: object) -> None:
    if row.state != to and to not in TRANSITIONS[JobState(row.state)]:
        raise TransitionError(f"job {row.id} cannot go from {row.state} to {to}")
    change(tx, row.id, state=to, **values)


def _change_record(
    tx: Transaction, job_id: str, change: Callable[[JobRecord], JobRecord]
) -> tuple[JobRecord, JobRecord]:
    """Write the changed record of a job; fields that this version cannot read stay. Return the old and the new one."""
    stored = _stored_record(tx, job_id)
    before = decode_record(stored) if stored is not None else JobRecord()
    after = change(before)
    if after != before:
        body = encode_record(after, over=stored)
        row = insert(tx, RECORDS).values(job_id=job_id, body=body)
        tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id"], set_={"body": body}))
    return before, after


def _stored_record(tx: Transaction, job_id: str) -> str | None:
    return tx.rows.execute(sa.select(RECORDS.c.body).where(RECORDS.c.job_id == job_id)).scalar()


# Made once: to make a statement takes as long as to execute it.
_ROW = sa.select(JOBS).where(JOBS.c.id == sa.bindparam("of_job"))


def _locked(tx: Transaction, job_id: str) -> sa.Row[Any]:
    row = tx.rows.execute(_ROW, {"of_job": job_id}).one_or_none()
    if row is None:
        raise QueueError(f"there is no job {job_id} in the queue")
    waited = lock(tx, row.lane, row.repo_id, row.thread)
    return tx.rows.execute(_ROW, {"of_job": job_id}).one() if waited else row


def queue_name(lane: Lane) -> str:
    """Return the name of the queue that the jobs of a lane are run from."""
    return f"codepilot-{lane}"


def workflow_id(job_id: str, leg: int) -> str:
    """Return the id of the workflow of one leg of a job; of the first leg, it is the job's own."""
    return job_id if leg == 1 else f"{job_id}-{leg}"


def share_of(lane: Lane, installation: int | None, actor_id: int) -> str:
    """Return the partition of a lane's queue that a job is in. Partitions take turns."""
    return str(installation or 0) if lane == "work" else str(actor_id)


def is_bounded(known: Transaction | JobStore, lane: Lane) -> bool:
    """Return whether the number of jobs of a repository that run at once is bounded in a lane.

    DBOS bounds only the partitions of a queue, which are installations. So the jobs beyond a repository's bound stay in
    the table, where no other job waits for them.
    """
    return lane == "work" and known.jobs_of_repository is not None


def lock(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> bool:
    """Lock one thread's jobs of a lane, or a whole repository's; see `Transaction.lock`."""
    if is_bounded(tx, lane):
        # Before any thread's: who has several of these has this one. A process without the bound takes one thread's.
        tx.lock("repository", repo_id)
    return tx.lock(lock_of(lane, repo_id, thread))


def lock_of(lane: Lane, repo_id: int, thread: int) -> str:
    """Return the name of the lock on the jobs of a lane in a thread."""
    return f"jobs {lane} {repo_id} {thread}"


def change(tx: Transaction, job_id: str, **values: object) -> None:
    """Write columns of a job."""
    tx.rows.execute(_CHANGE, {**values, "of_job": job_id})


def release_next(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> None:
    """Give the oldest queued job of a thread to its queue, unless one of the thread is there or runs.

    Where the jobs of a repository are bounded, it may be another thread's turn. The caller has the `lock`.
    """
    if is_bounded(tx, lane):
        _fill(tx, repo_id)
    elif (row := tx.rows.execute(_NEXT, _thread_parameters(lane, repo_id, thread)).one_or_none()) is not None:
        _enqueue_leg(tx, row)


def is_beyond(tx: Transaction, row: sa.Row[Any]) -> bool:
    """Return whether other jobs have all places of a job's repository, so that it has to wait after all.

    So it is after a pause, which keeps no place, and when another process knows of no bound or of a higher one.
    """
    return is_bounded(tx, row.lane) and _room(tx, row.repo_id, besides=row.id) <= 0


def fill_repository(tx: Transaction, repo_id: int) -> None:
    """Give jobs of a repository to the queue until there is no room for more, the oldest first."""
    tx.lock("repository", repo_id)
    _fill(tx, repo_id)


def find_repositories_to_fill(tx: Transaction) -> tuple[int, ...]:
    """Return the repositories with work that may be in the queue and is not, without a change.

    The bound may be another one since it was stored, and a process that knows of none hands out only its own threads'.
    """
    repo_ids = tx.rows.execute(sa.select(JOBS.c.repo_id).distinct().where(*_WAITING)).scalars().all()
    return tuple(each for each in repo_ids if _room(tx, each) > 0)


def _fill(tx: Transaction, repo_id: int) -> None:
    room = _room(tx, repo_id)
    while room > 0 and (row := _oldest(tx, repo_id)) is not None:
        # After a pause it takes a place only when it begins.
        room -= _enqueue_leg(tx, row) == 1 or row.held_until <= tx.now


def _room(tx: Transaction, repo_id: int, *, besides: str = "") -> float:
    """Return the number of further jobs of a repository that may be in the queue or run."""
    if tx.jobs_of_repository is None:
        return math.inf
    taken = tx.rows.execute(_TAKEN, {"in_repo": repo_id, "besides": besides, "now": tx.now}).scalar_one()
    return tx.jobs_of_repository - int(taken)


def _oldest(tx: Transaction, repo_id: int) -> sa.Row[Any] | None:
    """Return the job of a repository whose turn it is, with the lock on its thread."""
    seen = ""
    while (row := tx.rows.execute(_OLDEST, {"in_repo": repo_id}).one_or_none()) is not None and row.id != seen:
        if not tx.lock(lock_of("work", repo_id, row.thread)):
            break
        seen = row.id
    return row


def _enqueue_leg(tx: Transaction, row: sa.Row[Any]) -> int:
    """Give a job to its queue; return the number of its leg."""
    leg: int = row.leg + 1
    change(tx, row.id, leg=leg, released=True)
    share, delay = share_of(row.lane, row.installation, row.actor_id), max(0.0, row.held_until - tx.now)
    tx.enqueue(RUN, workflow_id(row.id, leg), queue_name(row.lane), share, delay, row.id, leg)
    return leg


# Made once: to make a statement takes as long as to execute it.
_CHANGE = JOBS.update().where(JOBS.c.id == sa.bindparam("of_job"))

_IN_THREAD = (
    JOBS.c.lane == sa.bindparam("in_lane"),
    JOBS.c.repo_id == sa.bindparam("in_repo"),
    JOBS.c.thread == sa.bindparam("in_thread"),
)
"""The jobs of a thread."""


def _thread_parameters(lane: Lane, repo_id: int, thread: int) -> dict[str, str | int]:
    """Return the parameters of `_IN_THREAD`."""
    return {"in_lane": lane, "in_repo": repo_id, "in_thread": thread}


@cache
def _storing(dialect: str, may_run: bool) -> sa.Insert:  # noqa: FBT001 - of a cached function
    """Store a new job unless it is known; when it may run and is alone, as one that is released in its first leg."""
    put = insert(dialect, JOBS)
    if may_run:
        free = ~sa.exists().where(*_IN_THREAD, JOBS.c.state.in_((JobState.RUNNING, JobState.QUEUED)))
        put = put.values(released=free, leg=sa.case((free, 1), else_=0))
    return put.on_conflict_do_nothing().returning(JOBS.c.released)


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

# A new job keeps its place while it is acknowledged, which takes a second; a pause may last for an hour.
_TAKEN = sa.select(sa.func.count()).where(
    JOBS.c.lane == "work",
    JOBS.c.repo_id == sa.bindparam("in_repo"),
    JOBS.c.released,
    JOBS.c.finished_at.is_(None),
    JOBS.c.id != sa.bindparam("besides"),
    sa.or_(JOBS.c.held_until <= sa.bindparam("now"), JOBS.c.leg == 1),
)


def charge_death(tx: Transaction, job_id: str, worker: str) -> int:
    """Record that a worker died while it ran a job; return the number of deaths that the job is charged with now."""
    died = insert(tx, DEATHS).values(worker=worker, job_id=job_id, at=tx.now)
    tx.rows.execute(died.on_conflict_do_nothing())
    tx.rows.execute(DEATHS.delete().where(DEATHS.c.at < tx.now - EXCUSING_SECONDS))
    its_own = sa.select(DEATHS.c.worker).where(DEATHS.c.job_id == job_id)
    others = sa.select(sa.func.count(DEATHS.c.worker.distinct())).where(DEATHS.c.worker.not_in(its_own))
    excused = (SUSPECTS.c.excused < MOST_EXCUSED) & (SUSPECTS.c.excused < tx.rows.execute(others).scalar_one())
    another = {
        "deaths": SUSPECTS.c.deaths + sa.case((excused, 0), else_=1),
        "excused": SUSPECTS.c.excused + sa.case((excused, 1), else_=0),
        "claimed_at": sa.null(),
    }
    suspected = insert(tx, SUSPECTS).values(job_id=job_id, deaths=0)
    tx.rows.execute(suspected.on_conflict_do_update(index_elements=["job_id"], set_=another))
    charged = count_deaths(tx, job_id) or 0
    if charged >= MOST_DEATHS:
        tx.rows.execute(DEATHS.delete().where(DEATHS.c.worker.in_(its_own)))  # this job explains them
    return charged


def count_deaths(tx: Transaction, job_id: str) -> int | None:
    """Return the number of deaths that a job is charged with; None when it is no suspect."""
    return tx.rows.execute(_COUNT, {"of_job": job_id}).scalar()


def has_running_suspect(tx: Transaction, worker: str) -> bool:
    """Return whether a worker has begun a suspect within the last minute."""
    tx.lock("suspects", worker)  # or of two that begin at once neither would see the other
    under_way = (
        sa.select(JOBS.c.id)
        .join(SUSPECTS, SUSPECTS.c.job_id == JOBS.c.id)
        .where(
            JOBS.c.state == JobState.RUNNING, JOBS.c.worker == worker, SUSPECTS.c.claimed_at > tx.now - ALONE_SECONDS
        )
    )
    return tx.rows.execute(under_way.limit(1)).one_or_none() is not None


def claim_suspect(tx: Transaction, job_id: str, at: float | None) -> None:
    """Record the time at which a worker began a suspect; None when it gave the job back."""
    tx.rows.execute(_CLAIM, {"of_job": job_id, "claimed_at": at})


def clear_suspect(tx: Transaction, job_id: str) -> None:
    """Clear a job of suspicion."""
    tx.rows.execute(_CLEAR, {"of_job": job_id})


# Made once: to make a statement takes as long as to execute it.
_SUSPECT = SUSPECTS.c.job_id == sa.bindparam("of_job")
_COUNT = sa.select(SUSPECTS.c.deaths).where(_SUSPECT)
_CLAIM = SUSPECTS.update().where(_SUSPECT)
_CLEAR = SUSPECTS.delete().where(_SUSPECT)
