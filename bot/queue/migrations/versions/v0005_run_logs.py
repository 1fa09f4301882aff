"""Columns that the dashboard searches by, and the logs of runs."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_AT_ONCE = 500


def upgrade() -> None:
    """Add a table, and two columns with what stands in the jobs that are kept."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "run_logs",
        sa.Column("job_id", sa.String(length=200), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("repo_id", number, nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("week", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("run_logs_week", "run_logs", ["week"])
    for name in ("repository", "actor"):
        op.add_column("jobs", sa.Column(name, sa.Text()))
        op.create_index(f"jobs_of_{name}", "jobs", [name, "seq"])
    columns = (sa.column("seq", number), sa.column("body", sa.Text()))
    jobs = sa.table("jobs", *columns, sa.column("repository", sa.Text()), sa.column("actor", sa.Text()))
    rows, last = op.get_bind(), 0
    kept = sa.select(jobs.c.seq, jobs.c.body).where(jobs.c.body.is_not(None)).order_by(jobs.c.seq).limit(_AT_ONCE)
    # The databases do not agree on functions for JSON, and PostgreSQL's refuse what may stand in a thread.
    while some := rows.execute(kept.where(jobs.c.seq > last)).all():
        for seq, body in some:
            job = json.loads(body)
            values = {"repository": job["repo"]["full_name"].casefold(), "actor": job["actor"]["login"].casefold()}
            rows.execute(jobs.update().where(jobs.c.seq == seq).values(**values))
        last = some[-1].seq
