"""The times at which recipes of repositories are due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "schedules",
        sa.Column("repo_id", _NUMBER, nullable=False, autoincrement=False),
        sa.Column("recipe", sa.String(length=200), nullable=False),
        sa.Column("installation", _NUMBER, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("repo_id", "recipe"),
    )
    op.create_index("schedules_due", "schedules", ["due_at"])
