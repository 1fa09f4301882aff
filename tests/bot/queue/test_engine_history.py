"""Work is found for the dashboard, and the logs of its runs are kept, on both databases."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.commands import Stop
from bot.domain.job import Actor, Job, JobState, Repo
from bot.queue import engine as engine_module
from bot.queue.engine import DurableEngine
from bot.queue.records import RunQuery, WeekCost, week_of, week_start
from bot.queue.store import JOBS, RUN_LOGS, JobStore, Transaction
from tests.builders import a_job
from tests.clocks import Clock

_DAY = 24 * 3600.0


@dataclass(frozen=True)
class Kept:
    engine: DurableEngine
    store: JobStore
    clock: Clock

    async def found(self, query: RunQuery) -> list[str]:
        return [each.job.id for each in await self.engine.find_runs(query)]


@pytest.fixture
async def kept(database: str) -> AsyncIterator[Kept]:
    clock = Clock()
    store = JobStore(database, clock=clock)
    yield Kept(DurableEngine(store), store, clock)
    await store.close()


def _of(job_id: str, number: int, repo: Repo, login: str) -> Job:
    return replace(a_job(job_id, number=number), repo=repo, actor=Actor(id=len(login), login=login))


CALC, SITE = (Repo(id=10, full_name="Octo/calc", private=False), Repo(id=11, full_name="octo_x/site", private=True))


async def _filled(kept: Kept) -> None:
    await kept.engine.accept(_of("a", 1, CALC, "Mona"))
    await kept.engine.accept(_of("b", 2, CALC, "hubot"))
    await kept.engine.accept(_of("c", 3, SITE, "mona"))
    await kept.engine.accept(a_job("steers", command=Stop()))
    await kept.engine.cancel("b", JobState.STOPPED, "stopped")


async def test_runs_are_found_by_repository_person_and_state(kept: Kept) -> None:
    await _filled(kept)
    assert await kept.found(RunQuery()) == ["c", "b", "a"]
    assert await kept.found(RunQuery(limit=1, offset=1)) == ["b"]
    assert await kept.found(RunQuery(repository="octo/CALC")) == ["b", "a"]
    assert await kept.found(RunQuery(repository="calc")) == ["b", "a"]
    assert await kept.found(RunQuery(repository="octo")) == ["b", "a"]
    assert await kept.found(RunQuery(repository="oct%")) == []
    assert await kept.found(RunQuery(person="MONA")) == ["c", "a"]
    assert await kept.found(RunQuery(states=frozenset({JobState.STOPPED}))) == ["b"]


async def test_what_has_ended_is_found_by_when_it_ended(kept: Kept) -> None:
    await _filled(kept)
    kept.clock.now += 1
    await kept.engine.cancel("c", JobState.STOPPED, "stopped")
    kept.clock.now += 1
    await kept.engine.cancel("a", JobState.STOPPED, "stopped")
    assert await kept.found(RunQuery(states=frozenset({JobState.STOPPED, JobState.DONE}))) == ["a", "c", "b"]
    assert await kept.found(RunQuery(states=frozenset({JobState.STOPPED, JobState.QUEUED}))) == ["c", "b", "a"]
    assert await kept.found(RunQuery(states=frozenset({JobState.QUEUED}))) == []


async def test_only_runs_of_the_given_repositories_are_found(kept: Kept) -> None:
    await _filled(kept)
    assert await kept.found(RunQuery(repo_ids=frozenset({11}))) == ["c"]
    assert await kept.found(RunQuery(repository="calc", repo_ids=frozenset({11}))) == []
    assert await kept.found(RunQuery(repo_ids=frozenset())) == []


_FEW = frozenset({10, 11})


@pytest.mark.parametrize(
    "query",
    [
        RunQuery(repo_ids=_FEW),
        RunQuery(repo_ids=_FEW, states=frozenset({JobState.DONE, JobState.STOPPED})),
        RunQuery(repository="calc"),
        RunQuery(repository="octo"),
    ],
)
async def test_who_sees_little_or_searches_for_little_has_little_read(tmp_path: Path, query: RunQuery) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'queue.sqlite'}")
    engine, read = DurableEngine(store), [0]
    await engine.accept(_of("a", 1, CALC, "mona"))
    await engine.cancel("a", JobState.STOPPED, "stopped")

    def filled(tx: Transaction) -> None:
        row = dict(tx.rows.execute(sa.select(JOBS)).mappings().one())
        del row["seq"]
        others = ({"id": f"j{n}", "delivery_id": f"d{n}", "thread": n, "repo_id": 100 + n % 7} for n in range(20_000))
        tx.rows.execute(sa.insert(JOBS), [{**row, **each, "repository": f"x/{each['repo_id']}"} for each in others])

    def counted(tx: Transaction) -> list[str]:
        def count() -> None:
            read[0] += 1

        connection = tx.rows.connection.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        connection.set_progress_handler(count, 1_000)
        try:
            return [each.job.id for each in engine_module._find_runs(tx, query)]
        finally:
            connection.set_progress_handler(None, 0)

    await store.run(filled)
    assert await store.run(counted) == ["a"]
    assert read[0] < 10  # thousands of steps; it takes several for each row
    await store.close()


async def test_the_pulse_changes_with_every_job(kept: Kept) -> None:
    seen = [await kept.engine.pulse()]
    await _filled(kept)
    seen.append(await kept.engine.pulse())
    await kept.engine.cancel("a", JobState.STOPPED, "stopped")
    seen.append(await kept.engine.pulse())
    assert len(set(seen)) == 3
    assert await kept.engine.pulse() == seen[-1]


async def test_costs_are_summed_by_week_and_repository(kept: Kept) -> None:
    await _filled(kept)
    first = week_of(kept.clock.now)
    for job_id, repo, cost in (("a", CALC, 1.5), ("b", CALC, None), ("c", SITE, 0.25)):
        await kept.engine.save_log(_of(job_id, 1, repo, "mona"), b"a log", cost_usd=cost)
    assert await kept.engine.costs(first) == (
        WeekCost(repository="Octo/calc", week=first, runs=2, cost_usd=1.5, unknown=1),
        WeekCost(repository="octo_x/site", week=first, runs=1, cost_usd=0.25, unknown=0),
    )
    kept.clock.now += 7 * _DAY
    await kept.engine.save_log(_of("c", 1, SITE, "mona"), b"another log", cost_usd=0.5)
    assert [each.week - first for each in await kept.engine.costs(first)] == [1, 0]
    assert await kept.engine.costs(first + 2) == ()
    assert [each.repository for each in await kept.engine.costs(first, {11})] == ["octo_x/site"]
    assert await kept.engine.load_log("c") == b"another log"


async def test_a_log_is_forgotten_with_its_job(kept: Kept) -> None:
    await _filled(kept)
    await kept.engine.save_log(_of("b", 2, CALC, "hubot"), b"a log", cost_usd=1.0)
    kept.clock.now += 15 * _DAY
    assert await kept.engine.sweep(14) == 1
    assert await kept.engine.load_log("b") is None
    assert await kept.found(RunQuery(person="hubot")) == []
    left = sa.select(JOBS.c.repository, JOBS.c.actor).where(JOBS.c.id == "b")
    assert await kept.store.run(lambda tx: tx.rows.execute(left).one()) == (None, None)
    count = sa.select(sa.func.count()).select_from(RUN_LOGS)
    assert await kept.store.run(lambda tx: tx.rows.execute(count).scalar_one()) == 0


def test_weeks_begin_on_mondays() -> None:
    monday = 1_795_392_000.0  # 2026-11-23
    assert week_start(week_of(monday)) == monday
    assert week_start(week_of(monday - 1)) == monday - 7 * _DAY
