"""The tables of the engine, the same in SQLite and PostgreSQL; `migrations` makes them."""

from __future__ import annotations

import sqlalchemy as sa
from typing_extensions import override

METADATA = sa.MetaData()

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # which numbers rows by INTEGER alone
_SECONDS = sa.Double[float]()
_ID = sa.String(200)


class _Words(sa.TypeDecorator[str]):
    """Text of people and programs, in which what neither database takes is replaced: NUL, half a surrogate pair."""

    impl = sa.Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """See `TypeDecorator`."""
        return value and value.replace("\0", "\ufffd").encode(errors="replace").decode()


JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", _ID, nullable=False, unique=True),
    sa.Column("delivery_id", _ID, nullable=False, unique=True),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("thread", _NUMBER, nullable=False),
    sa.Column("installation", _NUMBER),
    sa.Column("actor_id", _NUMBER, nullable=False),
    sa.Column("lane", sa.String(10), nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("reason", _Words, nullable=False, server_default=""),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    # How often the job was given to a queue; the workflow of an earlier time does nothing any more.
    sa.Column("leg", sa.Integer, nullable=False, server_default="0"),
    # Whether its workflow is in a queue: one job of a thread is, or runs.
    sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("worker", _ID),
    sa.Column("held_until", _SECONDS, nullable=False, server_default="0"),
    sa.Column("waits_until", _SECONDS),
    sa.Column("enqueued_at", _SECONDS, nullable=False),
    sa.Column("begun_at", _SECONDS),
    sa.Column("finished_at", _SECONDS),
    sa.Column("body", sa.Text),
    # Folded, for searches; of jobs that an earlier version stores beside this one they are missing.
    sa.Column("repository", sa.Text),
    sa.Column("actor", sa.Text),
    sqlite_autoincrement=True,
)

# What the dashboard shows of runs that have ended.
RUN_LOGS = sa.Table(
    "run_logs",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("repo_id", _NUMBER, nullable=False),
    sa.Column("repository", sa.Text, nullable=False),
    sa.Column("week", sa.Integer, nullable=False),
    sa.Column("cost_usd", _SECONDS),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
sa.Index("run_logs_week", RUN_LOGS.c.week)

RECORDS = sa.Table(
    "records",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)

SIGNALS = sa.Table(
    "signals",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", _ID, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("text", _Words, nullable=False),
    sa.Column("sender", _Words, nullable=False),
    sa.UniqueConstraint("job_id", "id"),
)

SUSPECTS = sa.Table(
    "suspects",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("deaths", sa.Integer, nullable=False),
    sa.Column("claimed_at", _SECONDS),
    sa.Column("excused", sa.Integer, nullable=False, server_default="0"),
)

# The jobs that workers were running when they died, except deaths that a job which was given up explains.
DEATHS = sa.Table(
    "deaths",
    METADATA,
    sa.Column("worker", _ID, primary_key=True),
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("at", _SECONDS, nullable=False),
)

OWED = sa.Table(
    "owed",
    METADATA,
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("since", _SECONDS, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)

# Every question that is asked while somebody waits has an index of its own; those that the ledger counts by hold all it
# needs, so that an hour with very many jobs is counted without reading one of them.
sa.Index("jobs_state", JOBS.c.state)
sa.Index("jobs_of_repository", JOBS.c.repository, JOBS.c.seq)
sa.Index("jobs_of_actor", JOBS.c.actor, JOBS.c.seq)
sa.Index("jobs_thread", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread, JOBS.c.seq)
sa.Index("jobs_begun_in_thread", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.thread, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_in_repository", JOBS.c.lane, JOBS.c.repo_id, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_by_user", JOBS.c.lane, JOBS.c.actor_id, JOBS.c.begun_at, JOBS.c.state)
sa.Index("jobs_begun_in_installation", JOBS.c.lane, JOBS.c.installation, JOBS.c.begun_at, JOBS.c.state)
_WAITS, _IS_RELEASED = (released & JOBS.c.finished_at.is_(None) for released in (~JOBS.c.released, JOBS.c.released))
sa.Index(
    "jobs_waiting_in_repository",
    JOBS.c.lane,
    JOBS.c.repo_id,
    JOBS.c.seq,
    sqlite_where=_WAITS,
    postgresql_where=_WAITS,
)
sa.Index(
    "jobs_released_in_repository",
    JOBS.c.lane,
    JOBS.c.repo_id,
    JOBS.c.thread,
    sqlite_where=_IS_RELEASED,
    postgresql_where=_IS_RELEASED,
)
sa.Index(
    "jobs_kept",
    JOBS.c.finished_at,
    sqlite_where=JOBS.c.body.is_not(None),
    postgresql_where=JOBS.c.body.is_not(None),
)
sa.Index(
    "jobs_one_running_in_a_thread",
    JOBS.c.lane,
    JOBS.c.repo_id,
    JOBS.c.thread,
    unique=True,
    sqlite_where=JOBS.c.state == "running",
    postgresql_where=JOBS.c.state == "running",
)

LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    # GitHub takes two spellings of a label's name for the same label.
    sa.Column("folded", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("labeller_id", _NUMBER, nullable=False),
    sa.Column("labeller_login", sa.Text, nullable=False),
    sa.Column("bound_to", sa.Text, nullable=False),
    sa.Column("at", _SECONDS, nullable=False),
)

TOLD = sa.Table(
    "told",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("thread", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("cause", sa.Text, primary_key=True),
    sa.Column("until", _SECONDS, nullable=False),
)
sa.Index("told_until", TOLD.c.until)

SWEEPS = sa.Table(
    "sweeps",
    METADATA,
    sa.Column("name", sa.String(50), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)

# What files of repositories said when a worker last looked, so that receivers know what means nothing there.
CONFIGS = sa.Table(
    "configs",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("until", _SECONDS, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

# When recipes of repositories are due.
SCHEDULES = sa.Table(
    "schedules",
    METADATA,
    sa.Column("repo_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("recipe", _ID, primary_key=True),
    sa.Column("installation", _NUMBER, nullable=False),
    sa.Column("repo", sa.Text, nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("due_at", _SECONDS, nullable=False),
)
sa.Index("schedules_due", SCHEDULES.c.due_at)

# When the last write to GitHub begins that was reserved for an installation: all workers together keep its pace.
PACES = sa.Table(
    "paces",
    METADATA,
    sa.Column("installation", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("last_at", _SECONDS, nullable=False),
)
