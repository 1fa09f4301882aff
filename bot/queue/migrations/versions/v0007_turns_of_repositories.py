"""Two indexes by which the turns of a repository are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add two indexes."""
    jobs = sa.table("jobs", sa.column("released", sa.Boolean), sa.column("finished_at", sa.Double))
    lives = jobs.c.finished_at.is_(None)
    for name, column, which in (
        ("waiting", "seq", ~jobs.c.released & lives),
        ("released", "thread", jobs.c.released & lives),
    ):
        op.create_index(
            f"jobs_{name}_in_repository",
            "jobs",
            ["lane", "repo_id", column],
            sqlite_where=which,
            postgresql_where=which,
        )
