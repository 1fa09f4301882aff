"""The first version of the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make all tables."""
    _make_jobs()
    _make_what_belongs_to_a_job()
    _make_what_is_known_of_threads()


def _make_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("delivery_id", sa.String(length=200), nullable=False),
        sa.Column("repo_id", _NUMBER, nullable=False),
        sa.Column("thread", _NUMBER, nullable=False),
        sa.Column("installation", _NUMBER, nullable=True),
        sa.Column("actor_id", _NUMBER, nullable=False),
        sa.Column("lane", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("leg", sa.Integer(), server_default="0", nullable=False),
        sa.Column("released", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("held_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("waits_until", sa.Double(), nullable=True),
        sa.Column("enqueued_at", sa.Double(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("delivery_id"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("jobs_begun_by_user", "jobs", ["lane", "actor_id", "begun_at", "state"])
    op.create_index("jobs_begun_in_installation", "jobs", ["lane", "installation", "begun_at", "state"])
    op.create_index("jobs_begun_in_repository", "jobs", ["lane", "repo_id", "begun_at", "state"])
    op.create_index("jobs_begun_in_thread", "jobs", ["lane", "repo_id", "thread", "begun_at", "state"])
    op.create_index("jobs_finished", "jobs", ["finished_at"])
    op.create_index(
        "jobs_one_running_in_a_thread",
        "jobs",
        ["lane", "repo_id", "thread"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index("jobs_state", "jobs", ["state"])
    op.create_index("jobs_thread", "jobs", ["lane", "repo_id", "thread", "seq"])


def _make_what_belongs_to_a_job() -> None:
    op.create_table(
        "owed",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "records",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "signals",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "number"),
        sa.UniqueConstraint("job_id", "id"),
    )
    op.create_table(
        "suspects",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )


def _make_what_is_known_of_threads() -> None:
    op.create_table(
        "labels",
        sa.Column("repo_id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("thread", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("folded", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labeller_id", _NUMBER, nullable=False),
        sa.Column("labeller_login", sa.Text(), nullable=False),
        sa.Column("bound_to", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("repo_id", "thread", "folded"),
    )
    op.create_table(
        "told",
        sa.Column("repo_id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("thread", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("repo_id", "thread", "cause"),
    )
    op.create_index("told_until", "told", ["until"])
