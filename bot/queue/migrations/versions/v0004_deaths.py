"""The deaths of workers, so that a job is not charged with them where others die, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a table, and how many deaths a suspect was excused."""
    op.add_column("suspects", sa.Column("excused", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "deaths",
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=200), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("worker", "job_id"),
    )
