"""Give jobs to the queues of DBOS when it is their turn.

Of a thread and lane one job at a time is in a queue or runs. A repository's work may be bounded, too: DBOS bounds the
partitions of a queue, and those are the installations. All others stay in the table, where they keep nobody waiting.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from bot.domain.job import JobState, Lane
from bot.engine.durable.store import JobStore, Transaction
from bot.engine.durable.tables import JOBS

RUN = "codepilot-run"
"""The workflow that runs a job. Its name is in the database: what is enqueued by one version is run by the next."""


def queue_of(lane: Lane) -> str:
    """The queue that the jobs of a lane are run from."""
    return f"codepilot-{lane}"


def workflow_id(job_id: str, leg: int) -> str:
    """The id of the workflow of one leg of a job; of its first, the job's own."""
    return job_id if leg == 1 else f"{job_id}-{leg}"


def is_bounded(known: Transaction | JobStore, lane: Lane) -> bool:
    """Whether only some jobs of a repository may run at once in a lane."""
    return lane == "work" and known.jobs_of_repository is not None


def lock(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> bool:
    """Have one thread's jobs of a lane change one after another, or a whole repository's; see `Transaction.lock`."""
    if is_bounded(tx, lane):
        # Before any thread's: who has several of these has this one. A process without the bound takes one thread's.
        tx.lock("repository", repo_id)
    return tx.lock(lock_of(lane, repo_id, thread))


def lock_of(lane: Lane, repo_id: int, thread: int) -> str:
    """What is locked while the jobs of a lane in a thread change."""
    return f"jobs {lane} {repo_id} {thread}"


def here(lane: Lane, repo_id: int, thread: int) -> dict[str, str | int]:
    """The parameters of `HERE`."""
    return {"in_lane": lane, "in_repo": repo_id, "in_thread": thread}


def change(tx: Transaction, job_id: str, **values: object) -> None:
    """Write columns of a job."""
    tx.rows.execute(_CHANGE, {**values, "of_job": job_id})


def share_of(lane: Lane, installation: int | None, actor_id: int) -> str:
    """Whose share of a lane's queue a job is in; they take turns, so that nobody's many jobs keep another's waiting."""
    return str(installation or 0) if lane == "work" else str(actor_id)


def release_next(tx: Transaction, lane: Lane, repo_id: int, thread: int) -> None:
    """Give the oldest queued job of a thread to its queue, unless one of the thread is there or runs.

    Where the jobs of a repository are bounded, it may be another thread's turn. The caller has the `lock`.
    """
    if is_bounded(tx, lane):
        _fill(tx, repo_id)
    elif (row := tx.rows.execute(_NEXT, here(lane, repo_id, thread)).one_or_none()) is not None:
        _release(tx, row)


def is_beyond(tx: Transaction, row: sa.Row[Any]) -> bool:
    """Whether other jobs have all places of a job's repository, so that it has to wait after all.

    So it is after a pause, which keeps no place, and when another process knows of no bound or of a higher one.
    """
    return is_bounded(tx, row.lane) and _room(tx, row.repo_id, besides=row.id) <= 0


def fill(tx: Transaction, repo_id: int) -> None:
    """Give jobs of a repository to the queue until there is no room for more, the oldest first."""
    tx.lock("repository", repo_id)
    _fill(tx, repo_id)


def left_out(tx: Transaction) -> tuple[int, ...]:
    """The repositories with work that may be in the queue and is not; it only reads.

    The bound may be another one since it was stored, and a process that knows of none hands out only its own threads'.
    """
    found = tx.rows.execute(sa.select(JOBS.c.repo_id).distinct().where(*_WAITING)).scalars().all()
    return tuple(each for each in found if _room(tx, each) > 0)


def _fill(tx: Transaction, repo_id: int) -> None:
    room = _room(tx, repo_id)
    while room > 0 and (row := _oldest(tx, repo_id)) is not None:
        # After a pause it takes a place only when it begins.
        room -= _release(tx, row) == 1 or row.held_until <= tx.now


def _room(tx: Transaction, repo_id: int, *, besides: str = "") -> float:
    """How many more jobs of a repository may be in the queue or run."""
    if tx.jobs_of_repository is None:
        return math.inf
    taken = tx.rows.execute(_TAKEN, {"in_repo": repo_id, "besides": besides, "now": tx.now}).scalar_one()
    return tx.jobs_of_repository - int(taken)


def _oldest(tx: Transaction, repo_id: int) -> sa.Row[Any] | None:
    """The job of a repository whose turn it is, with the lock on its thread."""
    seen = ""
    while (row := tx.rows.execute(_OLDEST, {"in_repo": repo_id}).one_or_none()) is not None and row.id != seen:
        if not tx.lock(lock_of("work", repo_id, row.thread)):
            break
        seen = row.id
    return row


def _release(tx: Transaction, row: sa.Row[Any]) -> int:
    """Give a job to its queue; the number of its leg."""
    leg: int = row.leg + 1
    change(tx, row.id, leg=leg, released=True)
    share, delay = share_of(row.lane, row.installation, row.actor_id), max(0.0, row.held_until - tx.now)
    tx.enqueue(RUN, workflow_id(row.id, leg), queue_of(row.lane), share, delay, row.id, leg)
    return leg


# Made once: to make a statement takes as long as to execute it.
_CHANGE = JOBS.update().where(JOBS.c.id == sa.bindparam("of_job"))
HERE = (
    JOBS.c.lane == sa.bindparam("in_lane"),
    JOBS.c.repo_id == sa.bindparam("in_repo"),
    JOBS.c.thread == sa.bindparam("in_thread"),
)
"""The jobs of a thread."""
_BUSY = sa.exists().where(
    *HERE, sa.or_(JOBS.c.state == JobState.RUNNING, sa.and_(JOBS.c.state == JobState.QUEUED, JOBS.c.released))
)
_NEXT = sa.select(JOBS).where(*HERE, JOBS.c.state == JobState.QUEUED, ~_BUSY).order_by(JOBS.c.seq).limit(1)

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
