"""Tables that machines share: the turn to look for failed deliveries, what repositories ask for, the pace of writes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add three tables."""
    op.create_table(
        "sweeps",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "configs",
        sa.Column("repo_id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("repo_id"),
    )
    op.create_table(
        "paces",
        sa.Column("installation", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("installation"),
    )
