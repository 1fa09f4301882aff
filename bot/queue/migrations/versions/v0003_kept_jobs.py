"""An index of the jobs whose words are kept, so that a sweep does not read all that were forgotten before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEPT = sa.text("body IS NOT NULL")


def upgrade() -> None:
    """Replace the index of all jobs that have ended."""
    op.drop_index("jobs_finished", "jobs")
    op.create_index("jobs_kept", "jobs", ["finished_at"], sqlite_where=_KEPT, postgresql_where=_KEPT)
