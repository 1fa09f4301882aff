"""The spending of jobs, their reservations, and what is summed from them, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import cast

import pytest
import sqlalchemy as sa

from agent_runtime import Usage
from bot.domain.commands import RecipeBounds
from bot.domain.errors import LeaseLostError
from bot.domain.job import Actor, Job, JobState, Origin, Repo
from bot.domain.spend import Cap, day_of
from bot.queue.engine import CURRENT_WORK, DurableEngine, Lease
from bot.queue.ledger import DurableSchedules, DurableSpending
from bot.queue.protocols import BudgetRequest, Reservation
from bot.queue.records import Dimension, SpendQuery
from bot.queue.store import SPENDING, SPENDING_LABELS, JobStore, Transaction
from tests.builders import a_job
from tests.clocks import Clock
from tests.durable import begun

CALC, SITE = Repo(id=10, full_name="octo/calc", private=False), Repo(id=11, full_name="octo/site", private=True)
DAY = Cap(scope="repository", period="day", limit_usd=6.0)
MONTH = Cap(scope="repository", period="month", limit_usd=10.0)
PERSON = Cap(scope="person", period="month", limit_usd=8.0)
NOTHING = Usage()
_DAY_SECONDS = 86_400.0


def _job(job_id: str, repo: Repo = CALC, login: str = "mona", account: int = 0) -> Job:
    return replace(a_job(job_id), repo=repo, actor=Actor(id=account or len(login), login=login))


@dataclass(frozen=True)
class Books:
    spending: DurableSpending
    engine: DurableEngine
    store: JobStore
    clock: Clock

    async def reserve(
        self, job: Job, *caps: Cap, budget: float | None = 5.0, used: Usage = NOTHING, labels: tuple[str, ...] = ()
    ) -> Reservation:
        request = BudgetRequest(job=job, verb="fix", labels=labels, caps=caps, budget_usd=budget, used=used)
        return await self.spending.reserve(request)

    async def spend(self, job: Job, usage: Usage, *, labels: tuple[str, ...] = ()) -> None:
        """Run and end a job."""
        await self.engine.accept(replace(job, delivery_id=f"d-{job.id}"))
        await self.reserve(job, labels=labels)
        await self.spending.settle(job, usage)
        await self.engine.cancel(job.id, JobState.STOPPED, "over")

    async def rows(self) -> list[tuple[object, ...]]:
        columns = [SPENDING.c[name] for name in ("job_id", "day", "charged_usd", "reserved_usd")]
        query = sa.select(*columns).order_by(SPENDING.c.job_id, SPENDING.c.day)
        return await self.store.run(lambda tx: [tuple(row) for row in tx.rows.execute(query)])

    async def sums(self, name: Dimension, **equal: str) -> list[tuple[str, int, float]]:
        today = day_of(self.clock.now)
        query = SpendQuery(first=today - 31, end=today + 1, equal=cast("dict[Dimension, str]", equal))
        return [(row.name, row.runs, row.cost_usd) for row in (await self.spending.sums(query))[1][name]]


@pytest.fixture
async def books(database: str) -> AsyncIterator[Books]:
    clock = Clock()
    clock.now = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
    store = JobStore(database, clock=clock)
    yield Books(DurableSpending(store), DurableEngine(store), store, clock)
    await store.close()


async def test_parallel_runs_share_what_a_cap_leaves(books: Books) -> None:
    reservations = await asyncio.gather(*(books.reserve(_job(f"j{n}"), DAY) for n in range(3)))
    assert sorted(each.budget_usd or 0.0 for each in reservations) == [0.0, 1.0, 5.0]
    [refused] = [each for each in reservations if each.budget_usd == 0.0]
    assert [(use.spent_usd, use.reserved_usd) for use in refused.uses] == [(0.0, 6.0)]
    # Of another repository.
    assert (await books.reserve(_job("j9", SITE), DAY)).budget_usd == 5.0


async def test_a_run_that_ends_leaves_the_rest_to_others(books: Books) -> None:
    first, second = _job("a"), _job("b")
    await books.reserve(first, DAY)
    [use] = await books.spending.settle(first, Usage(output_tokens=9, cost_usd=2.0), (DAY,))
    assert (use.spent_usd, use.reserved_usd) == (2.0, 0.0)
    assert (await books.reserve(second, DAY)).budget_usd == 4.0
    # Another process that takes the job over has the same reservation, not one more.
    assert (await books.reserve(second, DAY)).budget_usd == 4.0
    again = await books.reserve(second, DAY, used=Usage(output_tokens=9, cost_usd=1.5))
    assert (again.budget_usd, again.uses[0].spent_usd) == (2.5, 3.5)


async def test_a_job_without_a_request_leaves_nothing(books: Books) -> None:
    await books.reserve(_job("a"), DAY)
    await books.spending.settle(_job("a"), NOTHING)
    assert await books.rows() == []
    await books.spending.settle(_job("never reserved"), Usage(output_tokens=9, cost_usd=1.0))
    assert await books.rows() == []


async def test_a_job_that_dies_counts_with_its_budget(books: Books) -> None:
    await books.reserve(_job("a"), DAY)
    assert (await books.reserve(_job("b"), DAY)).budget_usd == 1.0


async def test_a_later_attempt_that_knows_less_takes_nothing_back(books: Books) -> None:
    await books.reserve(_job("a"))
    await books.spending.settle(_job("a"), Usage(output_tokens=9, cost_usd=2.0))
    await books.spending.settle(_job("a"), NOTHING)
    assert [row[2:] for row in await books.rows()] == [(2.0, 0.0)]


async def test_each_day_counts_what_a_job_cost_on_it(books: Books) -> None:
    job, today = _job("a"), day_of(books.clock.now)
    await books.reserve(job, DAY, MONTH)
    await books.spending.settle(job, Usage(output_tokens=9, cost_usd=4.0))
    books.clock.now += _DAY_SECONDS
    # The next day has all of its cap, and the month what is left.
    resumed = await books.reserve(job, DAY, MONTH, used=Usage(output_tokens=9, cost_usd=4.0))
    assert [use.spent_usd for use in resumed.uses] == [0.0, 4.0]
    await books.spending.settle(job, Usage(output_tokens=12, cost_usd=4.5))
    assert await books.rows() == [("a", today, 4.0, 0.0), ("a", today + 1, 0.5, 0.0)]
    assert await books.sums("repository") == [("octo/calc", 1, 4.5)]


async def test_a_month_begins_anew(books: Books) -> None:
    await books.spend(_job("a"), Usage(output_tokens=9, cost_usd=10.0))
    assert (await books.reserve(_job("b"), MONTH)).budget_usd == 0.0
    books.clock.now = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()
    assert (await books.reserve(_job("b"), MONTH)).budget_usd == 0.0
    books.clock.now += 1
    assert (await books.reserve(_job("b"), MONTH)).budget_usd == 5.0


async def test_a_person_is_known_by_the_account_in_all_repositories(books: Books) -> None:
    await books.spend(_job("a", SITE, "mona", 7), Usage(output_tokens=9, cost_usd=6.0))
    renamed = await books.reserve(_job("b", CALC, "lisa", 7), PERSON)
    assert renamed.budget_usd == 2.0
    assert [(use.login, use.spent_usd) for use in renamed.uses] == [("lisa", 6.0)]
    # In lists the account has its newest name.
    assert [name for name, *_ in await books.sums("person")] == ["lisa"]
    other = await books.reserve(_job("c", CALC, "mona", 8), PERSON)
    assert other.budget_usd == 5.0


@pytest.mark.parametrize("kind", ["ci", "event", "recipe"])
async def test_nobody_pays_for_a_run_that_nobody_asked_for(books: Books, kind: str) -> None:
    origin = Origin(kind=kind, id=1)  # type: ignore[arg-type]  # one of its kinds
    automatic = await books.reserve(replace(_job("a", login="codepilot[bot]"), origin=origin), PERSON, MONTH)
    assert [use.cap for use in automatic.uses] == [MONTH]
    assert (await books.reserve(_job("b", login="codepilot[bot]"), PERSON)).uses[0].reserved_usd == 0.0


async def test_who_repeats_a_scheduled_recipe_pays_for_it_and_so_does_a_trusted_bot(books: Books) -> None:
    repeated = replace(_job("a"), origin=Origin(kind="recipe", id=1))
    assert [use.login for use in (await books.reserve(repeated, PERSON)).uses] == ["mona"]
    assert [use.login for use in (await books.reserve(_job("b", login="robot[bot]"), PERSON)).uses] == ["robot[bot]"]


async def test_a_model_without_a_price_is_charged_by_its_tokens_and_named(books: Books) -> None:
    await books.spend(_job("a"), Usage(output_tokens=400_000, cost_usd=None))
    assert (await books.reserve(_job("b"), DAY)).uses[0].spent_usd == 1.0
    await books.spending.settle(_job("b"), NOTHING)
    today = day_of(books.clock.now)
    total, by_dimension = await books.spending.sums(SpendQuery(first=today, end=today + 1))
    assert (total.runs, total.cost_usd, total.unknown, total.tokens) == (1, 0.0, 1, 400_000)
    assert by_dimension["repository"][0].unknown == 1


async def test_spending_is_summed_by_repository_person_label_recipe_and_verb(books: Books) -> None:
    recipe = RecipeBounds(name="tidy", level=None, tools=None, comment=None)
    await books.spend(_job("a"), Usage(output_tokens=9, cost_usd=1.0), labels=("bug", "<b>%' OR 1"))
    await books.spend(_job("b", SITE, "hubot"), Usage(output_tokens=9, cost_usd=2.0), labels=("bug",))
    await books.spend(replace(_job("c"), recipe=recipe), Usage(output_tokens=9, cost_usd=4.0))
    assert await books.sums("repository") == [("octo/calc", 2, 5.0), ("octo/site", 1, 2.0)]
    assert await books.sums("person") == [("mona", 2, 5.0), ("hubot", 1, 2.0)]
    assert await books.sums("label") == [("bug", 2, 3.0), ("<b>%' OR 1", 1, 1.0)]
    assert await books.sums("recipe") == [("tidy", 1, 4.0)]
    assert await books.sums("verb") == [("fix", 3, 7.0)]
    assert await books.sums("person", label="bug", repository="octo/site") == [("hubot", 1, 2.0)]
    assert await books.sums("person", label="<b>%' OR 1") == [("mona", 1, 1.0)]
    today = day_of(books.clock.now)
    mine = SpendQuery(first=today, end=today + 1, repo_ids=frozenset({11}))
    total, by_dimension = await books.spending.sums(mine)
    assert (total.runs, [row.name for row in by_dimension["person"]]) == (1, ["hubot"])
    nothing, _ = await books.spending.sums(SpendQuery(first=today, end=today + 1, repo_ids=frozenset()))
    assert nothing.runs == 0
    assert await books.spending.month_costs() == {10: 5.0, 11: 2.0}


async def test_the_last_runs_of_a_verb_and_of_a_recipe_have_their_costs(books: Books) -> None:
    recipe = RecipeBounds(name="tidy", level=None, tools=None, comment=None)
    for n in range(3):
        await books.spend(_job(f"v{n}"), Usage(output_tokens=9, cost_usd=1.0 + n))
    await books.spend(replace(_job("r"), recipe=recipe), Usage(output_tokens=9, cost_usd=9.0))
    await books.spend(_job("unknown"), Usage(output_tokens=9, cost_usd=None))
    await books.spend(_job("other", SITE), Usage(output_tokens=9, cost_usd=5.0))
    # One that still runs or waits has not cost all.
    await books.engine.accept(replace(_job("live"), delivery_id="d-live"))
    await books.reserve(_job("live"))
    assert sorted(await books.spending.recent_costs(CALC.id, verb="fix")) == [1.0, 2.0, 3.0]
    assert await books.spending.recent_costs(CALC.id, verb="ask") == ()
    assert await books.spending.recent_costs(CALC.id, recipe="tidy") == (9.0,)
    await DurableSchedules(books.store).save(CALC, 1, {"tidy": "17 6 * * 1"})
    [row] = await books.spending.scheduled(None)
    assert (row.repository, row.name, row.cron, row.costs) == ("octo/calc", "tidy", "17 6 * * 1", (9.0,))
    assert await books.spending.scheduled(frozenset({11})) == ()


async def test_spending_outlives_its_job_and_is_deleted_after_400_days(books: Books) -> None:
    await books.spend(_job("a"), Usage(output_tokens=9, cost_usd=6.0), labels=("bug",))
    books.clock.now += _DAY_SECONDS / 4
    assert await books.engine.sweep(0.1) == 1
    assert (await books.reserve(_job("b"), DAY)).budget_usd == 0.0
    books.clock.now += 400 * _DAY_SECONDS
    await books.spending.sweep()
    assert len(await books.rows()) == 1
    books.clock.now += _DAY_SECONDS
    await books.spending.sweep()
    assert await books.rows() == []
    count = sa.select(sa.func.count()).select_from(SPENDING_LABELS)
    assert await books.store.run(lambda tx: tx.rows.execute(count).scalar_one()) == 0


async def test_a_worker_that_lost_its_job_settles_nothing(books: Books) -> None:
    await books.engine.accept(_job("a"))
    for worker in ("w1", "w2"):
        assert await begun(books.engine, "a", worker) is not None
    await books.reserve(_job("a"), DAY)
    token = CURRENT_WORK.set(Lease(job_id="a", number=1, worker="w1"))
    with pytest.raises(LeaseLostError):
        await books.spending.settle(_job("a"), NOTHING)
    CURRENT_WORK.reset(token)
    assert [row[3] for row in await books.rows()] == [5.0]


async def test_a_database_of_before_starts_with_the_costs_of_its_logs(empty_database: str) -> None:
    store, job = JobStore(empty_database, clock=lambda: 10 * _DAY_SECONDS + 0.75 * _DAY_SECONDS), _job("a")
    engine, nobody = DurableEngine(store), replace(_job("b"), delivery_id="d-b", origin=Origin(kind="ci", id=1))
    for run, cost in ((job, 1.5), (nobody, None)):
        await engine.accept(run)
        await engine.save_log(run, b"a log", Usage(output_tokens=200_000, cost_usd=cost))
        await engine.cancel(run.id, JobState.STOPPED, "over")

    def go_back(tx: Transaction) -> None:
        for table in ("spending", "spending_labels"):
            tx.rows.execute(sa.text(f"DROP TABLE {table}"))
        tx.rows.execute(sa.text("UPDATE alembic_version SET version_num = '0002'"))

    await store.run(go_back)
    await store.close()
    store = JobStore(empty_database)
    columns = [SPENDING.c[name] for name in ("job_id", "day", "person_id", "person", "cost_usd", "charged_usd")]
    rows = await store.run(lambda tx: tx.rows.execute(sa.select(*columns).order_by(SPENDING.c.job_id)).all())
    await store.close()
    assert [tuple(row) for row in rows] == [("a", 10, 4, "mona", 1.5, 1.5), ("b", 10, 0, "", None, 0.5)]
