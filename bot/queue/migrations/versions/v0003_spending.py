"""Store the spending of jobs by day, and start with the costs that the logs of runs have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ID = sa.String(length=200)


def upgrade() -> None:
    op.create_table(
        "spending",
        sa.Column("job_id", _ID, primary_key=True),
        sa.Column("day", sa.Integer(), autoincrement=False, primary_key=True),
        sa.Column("repo_id", _NUMBER, nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("person_id", _NUMBER, nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("verb", sa.String(length=20), nullable=False),
        sa.Column("recipe", _ID, nullable=False),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("tokens", _NUMBER, nullable=False),
        sa.Column("charged_usd", sa.Double(), nullable=False),
        sa.Column("reserved_usd", sa.Double(), nullable=False),
    )
    op.create_table(
        "spending_labels",
        sa.Column("job_id", _ID, primary_key=True),
        sa.Column("label", _ID, primary_key=True),
    )
    for name, columns in (
        ("spending_of_repository", ["repo_id", "day", "charged_usd", "reserved_usd"]),
        ("spending_of_person", ["person_id", "day", "charged_usd", "reserved_usd"]),
        ("spending_of_verb", ["repo_id", "recipe", "verb", "day"]),
        ("spending_of_day", ["day", "repo_id", "cost_usd"]),
    ):
        op.create_index(name, "spending", columns)
    # The verb is only in the job's text; these runs have none, and no labels.
    op.execute(
        "INSERT INTO spending (job_id, day, repo_id, repository, person_id, person, verb, recipe, cost_usd, tokens, "
        "charged_usd, reserved_usd) SELECT l.job_id, CAST(j.finished_at AS BIGINT) / 86400, l.repo_id, l.repository, "
        "CASE WHEN l.person = '' THEN 0 ELSE j.actor_id END, l.person, '', '', l.cost_usd, l.tokens, "
        "COALESCE(l.cost_usd, l.tokens / 400000.0), 0 FROM run_logs l JOIN jobs j ON j.id = l.job_id "
        "WHERE j.finished_at IS NOT NULL"
    )
