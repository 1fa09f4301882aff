"""Create the tables of `bot.queue.store` and their indexes; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ID = sa.String(length=200)


def upgrade() -> None:
    _create_jobs()
    _create_job_details()
    _create_thread_facts()
    _create_repository_facts()


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", _NUMBER, autoincrement=True, primary_key=True),
        sa.Column("id", _ID, nullable=False, unique=True),
        sa.Column("delivery_id", _ID, nullable=False, unique=True),
        sa.Column("repo_id", _NUMBER, nullable=False),
        sa.Column("thread", _NUMBER, nullable=False),
        sa.Column("installation", _NUMBER),
        sa.Column("actor_id", _NUMBER, nullable=False),
        sa.Column("lane", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("leg", sa.Integer(), server_default="0", nullable=False),
        sa.Column("released", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("worker", _ID),
        sa.Column("held_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("waits_until", sa.Double()),
        sa.Column("enqueued_at", sa.Double(), nullable=False),
        sa.Column("begun_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("body", sa.Text()),
        sa.Column("repository", sa.Text()),
        sa.Column("actor", sa.Text()),
        sqlite_autoincrement=True,
    )
    for name, columns in (
        ("jobs_begun_by_user", ["lane", "actor_id", "begun_at", "state"]),
        ("jobs_begun_in_installation", ["lane", "installation", "begun_at", "state"]),
        ("jobs_begun_in_repository", ["lane", "repo_id", "begun_at", "state"]),
        ("jobs_begun_in_thread", ["lane", "repo_id", "thread", "begun_at", "state"]),
        ("jobs_of_actor", ["actor", "seq"]),
        ("jobs_of_repository", ["repository", "seq"]),
        ("jobs_state", ["state"]),
        ("jobs_thread", ["lane", "repo_id", "thread", "seq"]),
    ):
        op.create_index(name, "jobs", columns)
    released = sa.column("released", sa.Boolean())
    is_live = sa.column("finished_at").is_(None)
    _create_partial_index("jobs_waiting_in_repository", ["lane", "repo_id", "seq"], ~released & is_live)
    _create_partial_index("jobs_released_in_repository", ["lane", "repo_id", "thread"], released & is_live)
    _create_partial_index("jobs_kept", ["finished_at"], sa.column("body").is_not(None))
    is_running = sa.text("state = 'running'")
    _create_partial_index("jobs_one_running_in_a_thread", ["lane", "repo_id", "thread"], is_running, unique=True)


def _create_partial_index(
    name: str, columns: list[str], where: sa.ColumnElement[bool] | sa.TextClause, *, unique: bool = False
) -> None:
    op.create_index(name, "jobs", columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _create_job_details() -> None:
    op.create_table(
        "owed",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
    )
    op.create_table(
        "records",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "signals",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("number", sa.Integer(), autoincrement=False, primary_key=True),
        sa.Column("id", _ID, nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.UniqueConstraint("job_id", "id"),
    )
    op.create_table(
        "suspects",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.Double()),
        sa.Column("excused", sa.Integer(), server_default="0", nullable=False),
    )
    op.create_table(
        "deaths",
        sa.Column("worker", _ID, primary_key=True),
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_table(
        "run_logs",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("repo_id", _NUMBER, nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("week", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_index("run_logs_week", "run_logs", ["week"])


def _create_thread_facts() -> None:
    op.create_table(
        "labels",
        sa.Column("repo_id", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("thread", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("folded", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labeller_id", _NUMBER, nullable=False),
        sa.Column("labeller_login", sa.Text(), nullable=False),
        sa.Column("bound_to", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_table(
        "told",
        sa.Column("repo_id", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("thread", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("cause", sa.Text(), primary_key=True),
        sa.Column("until", sa.Double(), nullable=False),
    )
    op.create_index("told_until", "told", ["until"])


def _create_repository_facts() -> None:
    op.create_table(
        "configs",
        sa.Column("repo_id", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "schedules",
        sa.Column("repo_id", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("recipe", _ID, primary_key=True),
        sa.Column("installation", _NUMBER, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
    )
    op.create_index("schedules_due", "schedules", ["due_at"])
    op.create_table(
        "paces",
        sa.Column("installation", _NUMBER, autoincrement=False, primary_key=True),
        sa.Column("last_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "sweeps",
        sa.Column("name", sa.String(length=50), primary_key=True),
        sa.Column("body", sa.Text(), nullable=False),
    )
