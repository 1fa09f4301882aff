"""Facts shared by all processes on a database: labels, notices, job counts, schedules, the pace of writes, spending."""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import takewhile

import sqlalchemy as sa
from croniter import croniter

from agent_runtime import Usage
from bot.domain.access import LabelGrant, Tally, TrustedBots, is_unattended
from bot.domain.commands import RecipeDue
from bot.domain.errors import OtherVersionError, QueueError
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from bot.domain.spend import Cap, CapUse, day_of, fit_budget, period_days
from bot.events.delivery import job_id
from bot.queue import transitions
from bot.queue.engine import CURRENT_WORK, check_lease
from bot.queue.protocols import BudgetRequest, Reservation
from bot.queue.records import DIMENSIONS, ScheduledRecipe, SpendQuery, SpendSum, SpendSums, decode_job
from bot.queue.store import (
    CONFIGS,
    JOBS,
    LABELS,
    NOTICES,
    PACES,
    SCHEDULES,
    SPENDING,
    SPENDING_LABELS,
    JobStore,
    Transaction,
    insert,
)

log = logging.getLogger(__name__)
_HOUR = 3600.0
_READ_AT_ONCE = 20
_STARTED_AT_ONCE = 100

_LONGEST_PACE_SECONDS = 60.0
"""Limit of a wait, since a process may have died after its reservation, or a clock was set back."""


class DurableLedger:
    def __init__(self, store: JobStore, *, trusted_bots: TrustedBots | None = None) -> None:
        self._run = store.run
        self._trusted_bots = trusted_bots or TrustedBots()

    async def save_label(self, label: LabelGrant) -> None:
        key = {"repo_id": label.repo_id, "thread": label.number, "folded": label.name.casefold()}
        values = {
            "name": label.name,
            "labeller_id": label.labeller.id,
            "labeller_login": label.labeller.login,
            "bound_to": label.bound_to,
            "at": label.at,
        }
        await self._run(
            lambda tx: tx.rows.execute(
                insert(tx, LABELS)
                .values(**key, **values)
                .on_conflict_do_update(index_elements=list(key), set_=values, where=LABELS.c.at <= label.at)
            )
        )

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        query = sa.select(LABELS).where(*_in_thread(repo_id, number)).order_by(LABELS.c.folded)
        rows = await self._run(lambda tx: tx.rows.execute(query).all())
        return tuple(
            LabelGrant(
                repo_id=repo_id,
                number=number,
                name=row.name,
                labeller=Actor(id=row.labeller_id, login=row.labeller_login),
                bound_to=row.bound_to,
                at=row.at,
            )
            for row in rows
        )

    async def delete_label(self, repo_id: int, number: int, name: str) -> None:
        statement = LABELS.delete().where(*_in_thread(repo_id, number), LABELS.c.folded == name.casefold())
        await self._run(lambda tx: tx.rows.execute(statement))

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        statement = LABELS.update().where(*_in_thread(repo_id, number), LABELS.c.bound_to == old_sha)
        await self._run(lambda tx: tx.rows.execute(statement.values(bound_to=new_sha)))

    async def claim_notice(
        self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR, by: str = ""
    ) -> bool:
        def claim(tx: Transaction) -> bool:
            tx.rows.execute(NOTICES.delete().where(NOTICES.c.until <= tx.now))
            values = {"repo_id": repo_id, "thread": number, "until": tx.now + seconds}
            insertion = insert(tx, NOTICES).on_conflict_do_nothing().returning(NOTICES.c.until)
            is_first = tx.rows.execute(insertion.values(cause=cause, **values)).scalar() is not None
            own = f"{cause} by {by}"  # an additional row, since the table has no column for jobs
            if is_first and by:
                tx.rows.execute(insertion.values(cause=own, **values))
            is_own = (NOTICES.c.repo_id == repo_id, NOTICES.c.thread == number, NOTICES.c.cause == own)
            return is_first or tx.rows.execute(sa.select(NOTICES.c.until).where(*is_own)).scalar() is not None

        return await self._run(claim)

    async def suppress_notice(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        def suppress(tx: Transaction) -> None:
            values = {"repo_id": repo_id, "thread": number, "cause": cause, "until": tx.now + seconds}
            row = insert(tx, NOTICES).values(**values)
            tx.rows.execute(
                row.on_conflict_do_update(
                    index_elements=["repo_id", "thread", "cause"], set_={"until": values["until"]}
                )
            )

        await self._run(suppress)

    async def save_config(self, repo_id: int, config: str, *, seconds: float) -> None:
        def save(tx: Transaction) -> None:
            tx.rows.execute(CONFIGS.delete().where(CONFIGS.c.until <= tx.now))
            values = {"until": tx.now + seconds, "body": config}
            row = insert(tx, CONFIGS).values(repo_id=repo_id, **values)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["repo_id"], set_=values))

        await self._run(save)

    async def config(self, repo_id: int) -> str | None:
        def load(tx: Transaction) -> str | None:
            query = sa.select(CONFIGS.c.body).where(CONFIGS.c.repo_id == repo_id, CONFIGS.c.until > tx.now)
            return tx.rows.execute(query).scalar()

        return await self._run(load)

    async def tally(self, job: Job, *, seconds: float = _HOUR) -> Tally:
        return await self._run(lambda tx: _tally(tx, job, seconds, self._trusted_bots))


def _in_thread(repo_id: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return LABELS.c.repo_id == repo_id, LABELS.c.thread == number


def _tally(tx: Transaction, job: Job, seconds: float, trusted_bots: TrustedBots) -> Tally:
    # `seq` is in every index, unlike `id`.
    own_row = tx.rows.execute(sa.select(JOBS.c.seq, JOBS.c.begun_at).where(JOBS.c.id == job.id)).one_or_none()
    seq = 0 if own_row is None else own_row.seq
    work = (JOBS.c.lane == "work", JOBS.c.state != JobState.REFUSED, JOBS.c.seq != seq)
    is_recent = JOBS.c.begun_at > tx.now - seconds
    if own_row is not None and own_row.begun_at is not None:
        # Of two that start at the same time, only one counts for the other.
        at = own_row.begun_at
        is_recent &= (JOBS.c.begun_at < at) | ((JOBS.c.begun_at == at) & (JOBS.c.seq < seq))

    def count(*conditions: sa.ColumnElement[bool]) -> int:
        return tx.rows.execute(sa.select(sa.func.count()).where(*work, is_recent, *conditions)).scalar_one()

    in_thread = (JOBS.c.repo_id == job.repo.id, JOBS.c.thread == job.thread.key)
    unattended = 0
    if is_unattended(job, trusted_bots):
        query = sa.select(JOBS.c.body).where(*work, *in_thread, JOBS.c.begun_at.is_not(None), JOBS.c.body.is_not(None))
        # In small batches: a thread may have thousands, and a few usually suffice.
        newest = query.order_by(JOBS.c.seq.desc()).execution_options(yield_per=_READ_AT_ONCE)
        with tx.rows.execute(newest).scalars() as bodies:
            unattended = sum(1 for _ in takewhile(lambda body: _is_unattended_body(body, trusted_bots), bodies))
    return Tally(
        thread=count(*in_thread),
        user=count(JOBS.c.actor_id == job.actor.id),
        repository=count(JOBS.c.repo_id == job.repo.id),
        installation=0 if job.installation is None else count(JOBS.c.installation == job.installation),
        unattended=unattended,
    )


def _is_unattended_body(body: str, trusted_bots: TrustedBots) -> bool:
    try:
        return is_unattended(decode_job(body), trusted_bots)
    except OtherVersionError:
        return True


class DurableSchedules:
    def __init__(self, store: JobStore) -> None:
        self._run = store.run

    async def save(self, repo: Repo, installation: int, crons: Mapping[str, str]) -> None:
        def save(tx: Transaction) -> None:
            tx.lock("schedules")
            in_repo = SCHEDULES.c.repo_id == repo.id
            rows = tx.rows.execute(sa.select(SCHEDULES.c.recipe, SCHEDULES.c.cron).where(in_repo))
            stored = {schedule.recipe: schedule.cron for schedule in rows}
            for removed in stored.keys() - crons.keys():
                tx.rows.execute(SCHEDULES.delete().where(in_repo, SCHEDULES.c.recipe == removed))
            for name, cron in crons.items():
                values = {"installation": installation, "repo": repo.full_name}
                if stored.get(name) != cron:
                    values |= {"cron": cron, "due_at": next_due(cron, tx.now, delay_key=f"{repo.id}:{name}")}
                    row = insert(tx, SCHEDULES).values(repo_id=repo.id, recipe=name, **values)
                    tx.rows.execute(row.on_conflict_do_update(index_elements=["repo_id", "recipe"], set_=values))
                else:
                    tx.rows.execute(SCHEDULES.update().where(in_repo, SCHEDULES.c.recipe == name).values(**values))

        await self._run(save)

    async def prune(self, installation: int, repo_ids: Collection[int]) -> None:
        in_installation = SCHEDULES.c.installation == installation

        def prune(tx: Transaction) -> None:
            stored = set(tx.rows.execute(sa.select(SCHEDULES.c.repo_id).where(in_installation)).scalars())
            for repo_id in stored.difference(repo_ids):
                tx.rows.execute(SCHEDULES.delete().where(in_installation, SCHEDULES.c.repo_id == repo_id))

        await self._run(prune)

    async def installations(self) -> frozenset[int]:
        query = sa.select(SCHEDULES.c.installation).distinct()
        return frozenset(await self._run(lambda tx: list(tx.rows.execute(query).scalars())))

    async def start_due(self) -> int:
        def start(tx: Transaction) -> int:
            tx.lock("schedules")
            due = sa.select(SCHEDULES).where(SCHEDULES.c.due_at <= tx.now).order_by(SCHEDULES.c.due_at)
            rows = tx.rows.execute(due.limit(_STARTED_AT_ONCE)).all()
            for row in rows:
                name, at = row.recipe, int(row.due_at)
                job = Job(
                    id=job_id("schedule", row.repo_id, f"{name}:{at}"),
                    delivery_id=f"schedule-{row.repo_id}-{name}-{at}",
                    # The job asks GitHub for the visibility when it starts.
                    repo=Repo(id=row.repo_id, full_name=row.repo, private=True),
                    thread=Thread.from_number("issue", 0),
                    actor=Actor(id=0, login=""),
                    origin=Origin(kind="event", id=0),
                    command=RecipeDue(name=name),
                    installation=row.installation,
                )
                transitions.accept(tx, job, 0.0)
                # From now, so that missed times are skipped.
                is_schedule = (SCHEDULES.c.repo_id == row.repo_id, SCHEDULES.c.recipe == name)
                try:
                    following = next_due(row.cron, tx.now, delay_key=f"{row.repo_id}:{name}")
                except ValueError as error:  # accepted by another version; the next refresh reports it
                    log.warning("the schedule of recipe %s of %s is invalid: %r: %s", name, row.repo, row.cron, error)
                    tx.rows.execute(SCHEDULES.delete().where(*is_schedule))
                else:
                    tx.rows.execute(SCHEDULES.update().where(*is_schedule).values(due_at=following))
            return len(rows)

        return await self._run(start)


MAX_DELAY_SECONDS = 600


def next_due(cron: str, after: float, *, delay_key: str) -> float:
    """Return the next time of a UTC schedule, in seconds since the epoch.

    A hash of `delay_key` delays it, so that repositories with the same schedule do not start at once.
    """
    delay = int.from_bytes(hashlib.sha256(delay_key.encode()).digest()[:4], "big") % MAX_DELAY_SECONDS
    return float(croniter(cron, after - delay).get_next(float)) + delay


def reserve_write(store: JobStore, installation: int) -> Callable[[float], Awaitable[float]]:
    """Return a function that reserves writes to GitHub, which limits them per installation."""

    async def reserve(seconds: float) -> float:
        def next_write(tx: Transaction) -> float:
            tx.lock("pace", installation)
            query = sa.select(PACES.c.last_at).where(PACES.c.installation == installation)
            last = tx.rows.execute(query).scalar()
            at = max(tx.now, 0.0 if last is None else last + seconds)
            if at > tx.now + _LONGEST_PACE_SECONDS:
                at = tx.now
            row = insert(tx, PACES).values(installation=installation, last_at=at)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["installation"], set_={"last_at": at}))
            return at - tx.now

        try:
            return await store.run(next_write)
        except QueueError as error:
            # Writers still keep this process's own pace.
            log.warning("the pace of writes is not shared: %s", error)
            return 0.0

    return reserve


KEPT_DAYS = 400
"""Days that spending is kept, however long jobs are."""

_MAX_LABELS = 20
_MAX_NAMES = 100
_RECENT_RUNS = 50


class DurableSpending:
    """Implements `Spending` on a database, and the queries of the dashboard and of the metrics."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def reserve(self, request: BudgetRequest) -> Reservation:
        work = CURRENT_WORK.get()

        def reserve(tx: Transaction) -> Reservation:
            if work is not None:
                check_lease(tx, work)
            tx.lock("spending")  # two runs must not both take the same remainder
            _settle(tx, request.job.id, request.used)
            uses = _read_uses(tx, request.job, request.caps)
            budget = fit_budget(request.budget_usd, uses)
            if budget != 0.0:
                _insert_reservation(tx, request, budget or 0.0)
            return Reservation(budget_usd=budget, uses=uses)

        return await self._store.run(reserve)

    async def settle(self, job: Job, used: Usage, caps: Sequence[Cap] = ()) -> tuple[CapUse, ...]:
        work = CURRENT_WORK.get()

        def settle(tx: Transaction) -> tuple[CapUse, ...]:
            if work is not None:
                check_lease(tx, work)
            _settle(tx, job.id, used)
            return _read_uses(tx, job, caps)

        return await self._store.run(settle)

    async def recent_costs(self, repo_id: int, *, verb: str = "", recipe: str = "") -> tuple[float, ...]:
        return await self._store.read(lambda tx: _recent_costs(tx, repo_id, verb, recipe))

    async def scheduled(self, repo_ids: frozenset[int] | None) -> tuple[ScheduledRecipe, ...]:
        """Return the recipes with schedules that are due next, at most 100."""
        query = sa.select(SCHEDULES).order_by(SCHEDULES.c.due_at).limit(_MAX_NAMES)
        query = query if repo_ids is None else query.where(SCHEDULES.c.repo_id.in_(repo_ids))

        def read(tx: Transaction) -> tuple[ScheduledRecipe, ...]:
            return tuple(
                ScheduledRecipe(repository=row.repo, name=row.recipe, cron=row.cron, costs=costs)
                for row in tx.rows.execute(query).all()
                for costs in [_recent_costs(tx, row.repo_id, recipe=row.recipe)]
            )

        return await self._store.read(read)

    async def sums(self, query: SpendQuery) -> SpendSums:
        def read(tx: Transaction) -> SpendSums:
            columns = [(name, SPENDING_LABELS.c.label if name == "label" else SPENDING.c[name]) for name in DIMENSIONS]
            [total] = _sums(tx, query, sa.literal(""))
            return total, {name: _sums(tx, query, column) for name, column in columns}

        return await self._store.read(read)

    async def month_costs(self) -> Mapping[int, float]:
        """Return the known cost in this month of the 100 repositories with the highest."""
        key, cost = SPENDING.c.repo_id, sa.func.coalesce(sa.func.sum(SPENDING.c.cost_usd), 0.0)
        query = sa.select(key, cost).group_by(key).order_by(cost.desc(), key).limit(_MAX_NAMES)

        def read(tx: Transaction) -> Mapping[int, float]:
            first, _ = period_days(day_of(tx.now), "month")
            return {row[0]: row[1] for row in tx.rows.execute(query.where(SPENDING.c.day >= first))}

        return await self._store.read(read)

    async def sweep(self) -> None:
        """Delete spending of more than 400 days ago."""

        def sweep(tx: Transaction) -> None:
            tx.rows.execute(SPENDING.delete().where(SPENDING.c.day < day_of(tx.now) - KEPT_DAYS))
            is_orphan = SPENDING_LABELS.c.job_id.not_in(sa.select(SPENDING.c.job_id))
            tx.rows.execute(SPENDING_LABELS.delete().where(is_orphan))

        await self._store.run(sweep)


def _settle(tx: Transaction, job_id: str, used: Usage) -> None:
    """Store what a job has used since its last settlement in the day of its last reservation, and end that."""
    of_job = SPENDING.c.job_id == job_id
    rows = tx.rows.execute(sa.select(SPENDING).where(of_job).order_by(SPENDING.c.day)).all()
    if not rows:
        return
    *earlier, last = rows
    # An attempt that could not read the job's session knows of less than is stored.
    tokens = max(last.tokens, used.total_tokens - sum(row.tokens for row in earlier))
    charged = max(last.charged_usd, used.estimated_cost_usd - sum(row.charged_usd for row in earlier))
    is_last = of_job & (SPENDING.c.day == last.day)
    if not tokens and not charged:  # it ended before its first request
        tx.rows.execute(SPENDING.delete().where(is_last))
        return
    cost = None if used.cost_usd is None or last.cost_usd is None else charged
    values = {"tokens": tokens, "charged_usd": charged, "cost_usd": cost, "reserved_usd": 0.0}
    tx.rows.execute(SPENDING.update().where(is_last).values(**values))


def _insert_reservation(tx: Transaction, request: BudgetRequest, budget: float) -> None:
    job, payer = request.job, request.job.payer
    values = {
        "repo_id": job.repo.id,
        "repository": job.repo.full_name,
        "person_id": payer.id if payer else 0,
        "person": payer.login if payer else "",
        "verb": request.verb,
        "recipe": job.recipe.name if job.recipe else "",
        "reserved_usd": budget,
    }
    # Rename the rows of a renamed repository or account, so that a list has it once.
    for key, name in (("repo_id", "repository"), ("person_id", "person")):
        of_key = SPENDING.c[key] == values[key]
        newest = sa.select(SPENDING.c[name]).where(of_key).order_by(SPENDING.c.day.desc()).limit(1)
        if tx.rows.execute(newest).scalar() not in {None, values[name]}:
            tx.rows.execute(SPENDING.update().where(of_key).values({name: values[name]}))
    empty = {"day": day_of(tx.now), "cost_usd": 0.0, "tokens": 0, "charged_usd": 0.0}
    row = insert(tx, SPENDING).values(job_id=job.id, **empty, **values)
    tx.rows.execute(row.on_conflict_do_update(index_elements=["job_id", "day"], set_={"reserved_usd": budget}))
    if tx.rows.execute(sa.select(SPENDING_LABELS.c.label).where(SPENDING_LABELS.c.job_id == job.id)).first() is None:
        for label in sorted(set(request.labels))[:_MAX_LABELS]:
            tx.rows.execute(SPENDING_LABELS.insert().values(job_id=job.id, label=label))


def _read_uses(tx: Transaction, job: Job, caps: Sequence[Cap]) -> tuple[CapUse, ...]:
    uses, payer = list[CapUse](), job.payer
    for cap in caps:
        if cap.scope == "person" and payer is None:
            continue
        first, end = period_days(day_of(tx.now), cap.period)
        is_payer = SPENDING.c.person_id == (payer.id if payer else 0)
        of_scope = SPENDING.c.repo_id == job.repo.id if cap.scope == "repository" else is_payer
        sums = (sa.func.coalesce(sa.func.sum(SPENDING.c[name]), 0.0) for name in ("charged_usd", "reserved_usd"))
        spent, reserved = tx.rows.execute(sa.select(*sums).where(of_scope, SPENDING.c.day >= first)).one()
        login = payer.login if payer and cap.scope == "person" else ""
        uses.append(CapUse(cap=cap, spent_usd=spent, reserved_usd=reserved, ends=end, login=login))
    return tuple(uses)


def _recent_costs(tx: Transaction, repo_id: int, verb: str = "", recipe: str = "") -> tuple[float, ...]:
    of_recipe = (SPENDING.c.recipe == recipe, *([] if recipe else [SPENDING.c.verb == verb]))
    query = (
        sa.select(SPENDING.c.job_id, SPENDING.c.cost_usd)
        .join(JOBS, JOBS.c.id == SPENDING.c.job_id)
        .where(SPENDING.c.repo_id == repo_id, *of_recipe, JOBS.c.finished_at.is_not(None))
        .order_by(SPENDING.c.day.desc())
        .limit(_RECENT_RUNS)
    )
    costs = defaultdict[str, list[float | None]](list)
    for run, cost in tx.rows.execute(query):
        costs[run].append(cost)
    return tuple(sum(filter(None, parts)) for parts in costs.values() if None not in parts)


def _sums(tx: Transaction, query: SpendQuery, column: sa.ColumnElement[str]) -> tuple[SpendSum, ...]:
    is_unknown = SPENDING.c.cost_usd.is_(None)
    cost = sa.func.coalesce(sa.func.sum(SPENDING.c.cost_usd), 0.0)
    rows = sa.select(
        column.label("name"),
        sa.func.count(SPENDING.c.job_id.distinct()).label("runs"),
        cost.label("cost_usd"),
        sa.func.count(sa.case((is_unknown, SPENDING.c.job_id)).distinct()).label("unknown"),
        sa.func.coalesce(sa.func.sum(sa.case((is_unknown, SPENDING.c.tokens), else_=0)), 0).label("tokens"),
    ).where(SPENDING.c.day >= query.first, SPENDING.c.day < query.end)
    if query.repo_ids is not None:
        rows = rows.where(SPENDING.c.repo_id.in_(query.repo_ids))
    for name, value in query.equal.items():
        labelled = sa.select(SPENDING_LABELS.c.job_id).where(SPENDING_LABELS.c.label == value)
        rows = rows.where(SPENDING.c.job_id.in_(labelled) if name == "label" else SPENDING.c[name] == value)
    if column is SPENDING_LABELS.c.label:
        rows = rows.join(SPENDING_LABELS, SPENDING_LABELS.c.job_id == SPENDING.c.job_id)
    elif column is SPENDING.c.recipe:
        rows = rows.where(SPENDING.c.recipe != "")
    if not isinstance(column, sa.BindParameter):
        rows = rows.group_by(column).order_by(cost.desc(), column).limit(_MAX_NAMES)
    return tuple(SpendSum(**row) for row in tx.rows.execute(rows).mappings())
