"""Add the person and the tokens of a run to its log, for the costs by person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # With defaults, because processes of the older version go on storing logs.
    op.add_column("run_logs", sa.Column("person", sa.Text(), server_default="", nullable=False))
    tokens = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.add_column("run_logs", sa.Column("tokens", tokens, server_default="0", nullable=False))
