"""Find work for the dashboard, and keep the logs of its runs: one function each, within the caller's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import sqlalchemy as sa

from bot.domain.job import Job
from bot.engine.durable.questions import readable
from bot.engine.durable.store import Transaction, insert
from bot.engine.durable.tables import JOBS, RUN_LOGS
from bot.engine.records import Backlog, RunQuery, Stored, WeekCost, week_of

# Written so that no index of lanes fits: nearly all jobs have this one, and the order must come from an index.
_IS_WORK = JOBS.c.lane.concat("") == "work"
_FEW = 1_000


def runs(tx: Transaction, query: RunQuery) -> tuple[Stored, ...]:
    """The work that a query selects, newest first: by when it ended where only ended work is asked for."""
    found, order = sa.select(JOBS).where(_IS_WORK, JOBS.c.body.is_not(None)), [JOBS.c.seq.desc()]
    live = query.states & frozenset(Backlog.STATES)
    if query.states and live == query.states:
        found = found.where(JOBS.c.seq.in_(sa.select(JOBS.c.seq).where(JOBS.c.state.in_(live))))
    elif query.states:
        found = found.where(JOBS.c.state.concat("").in_(query.states))
    if query.states and not live:
        found, order = found.where(JOBS.c.finished_at.is_not(None)), [JOBS.c.finished_at.desc(), *order]
    if query.repository:
        name = query.repository.casefold()
        found = found.where(JOBS.c.repository == name if "/" in name else JOBS.c.seq.in_(_with_half(name)))
    if query.person:
        found = found.where(JOBS.c.actor == query.person.casefold())
    if query.repo_ids is not None:
        found = found.where(_seen(tx, query.repo_ids))
    return readable(tx.rows.execute(found.order_by(*order).offset(query.offset).limit(query.limit)))


def _with_half(half: str) -> sa.Select[tuple[int]]:
    """The jobs of all repositories of this name or owner: looked for among the names in the index, which are few."""
    names = sa.select(sa.func.min(JOBS.c.repository).label("name")).cte("names", recursive=True)
    after = sa.select(sa.func.min(JOBS.c.repository)).where(JOBS.c.repository > names.c.name).scalar_subquery()
    names = names.union_all(sa.select(after).where(names.c.name.is_not(None)))
    fits = names.c.name.endswith(f"/{half}", autoescape=True) | names.c.name.startswith(f"{half}/", autoescape=True)
    return sa.select(JOBS.c.seq).where(JOBS.c.repository.in_(sa.select(names.c.name).where(fits)))


def _seen(tx: Transaction, repo_ids: Collection[int]) -> sa.ColumnElement[bool]:
    """The work in some repositories; where it is little, by its rows, since nearly all others would be read in vain."""
    there = JOBS.c.repo_id.in_(repo_ids)
    few = tx.rows.execute(sa.select(JOBS.c.seq).where(JOBS.c.lane == "work", there).limit(_FEW + 1)).scalars().all()
    return JOBS.c.seq.in_(few) if len(few) <= _FEW else there


def pulse(tx: Transaction) -> str:
    """A text that is another one after any work was stored, has changed its state, or has ended."""
    live = sa.select(JOBS.c.seq, JOBS.c.state, JOBS.c.leg, JOBS.c.attempts)
    live = live.where(_IS_WORK, JOBS.c.state.in_(Backlog.STATES))
    stored, ended = sa.select(sa.func.max(JOBS.c.seq)), sa.select(sa.func.max(JOBS.c.finished_at))
    ended = ended.where(JOBS.c.body.is_not(None))  # as its index has it
    seen = [sorted(map(tuple, tx.rows.execute(live))), *(tx.rows.execute(each).scalar() for each in (stored, ended))]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def keep_log(tx: Transaction, job: Job, body: bytes, cost_usd: float | None) -> None:
    """Keep the log of a job's run, in place of an earlier one."""
    values = {"week": week_of(tx.now), "cost_usd": cost_usd, "body": body}
    row = insert(tx, RUN_LOGS).values(job_id=job.id, repo_id=job.repo.id, repository=job.repo.full_name, **values)
    tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id"], set_=values))


def log_of(tx: Transaction, job_id: str) -> bytes | None:
    """The log that is kept of a job's run."""
    return tx.rows.execute(sa.select(RUN_LOGS.c.body).where(RUN_LOGS.c.job_id == job_id)).scalar()


def costs(tx: Transaction, since: int, repo_ids: Collection[int] | None) -> tuple[WeekCost, ...]:
    """The cost of runs by week and repository, the newest week first, then by name."""
    counted = (
        sa.select(
            sa.func.max(RUN_LOGS.c.repository).label("repository"),
            RUN_LOGS.c.week,
            sa.func.count().label("runs"),
            sa.func.coalesce(sa.func.sum(RUN_LOGS.c.cost_usd), 0.0).label("cost_usd"),
            (sa.func.count() - sa.func.count(RUN_LOGS.c.cost_usd)).label("unknown"),
        )
        .where(RUN_LOGS.c.week >= since)
        .group_by(RUN_LOGS.c.week, RUN_LOGS.c.repo_id)
        .order_by(RUN_LOGS.c.week.desc(), "repository")
    )
    if repo_ids is not None:
        counted = counted.where(RUN_LOGS.c.repo_id.in_(repo_ids))
    return tuple(WeekCost(**row) for row in tx.rows.execute(counted).mappings())
