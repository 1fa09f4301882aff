"""Work is found for the dashboard, and the logs of its runs are kept, on both databases."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import Usage
from bot.domain.commands import Stop
from bot.domain.job import Actor, Job, JobState, Repo
from bot.queue import engine as engine_module
from bot.queue.engine import DurableEngine
from bot.queue.records import RunQuery
from bot.queue.store import JOBS, RUN_LOGS, JobStore, Transaction
from tests.builders import a_job
from tests.clocks import Clock

_DAY = 24 * 3600.0


@dataclass(frozen=True)
class History:
    engine: DurableEngine
    store: JobStore
    clock: Clock

    async def find_job_ids(self, query: RunQuery) -> list[str]:
        return [each.job.id for each in await self.engine.find_runs(query)]


@pytest.fixture
async def history(database: str) -> AsyncIterator[History]:
    clock = Clock()
    store = JobStore(database, clock=clock)
    yield History(DurableEngine(store), store, clock)
    await store.close()


def _of(job_id: str, number: int, repo: Repo, login: str) -> Job:
    return replace(a_job(job_id, number=number), repo=repo, actor=Actor(id=len(login), login=login))


CALC, SITE = (Repo(id=10, full_name="Octo/calc", private=False), Repo(id=11, full_name="octo_x/site", private=True))


async def _filled(history: History) -> None:
    await history.engine.accept(_of("a", 1, CALC, "Mona"))
    await history.engine.accept(_of("b", 2, CALC, "hubot"))
    await history.engine.accept(_of("c", 3, SITE, "mona"))
    await history.engine.accept(a_job("steers", command=Stop()))
    await history.engine.cancel("b", JobState.STOPPED, "stopped")


async def test_runs_are_found_by_repository_person_and_state(history: History) -> None:
    await _filled(history)
    assert await history.find_job_ids(RunQuery()) == ["c", "b", "a"]
    assert await history.find_job_ids(RunQuery(limit=1, offset=1)) == ["b"]
    assert await history.find_job_ids(RunQuery(repository="octo/CALC")) == ["b", "a"]
    assert await history.find_job_ids(RunQuery(repository="calc")) == ["b", "a"]
    assert await history.find_job_ids(RunQuery(repository="octo")) == ["b", "a"]
    assert await history.find_job_ids(RunQuery(repository="oct%")) == []
    assert await history.find_job_ids(RunQuery(person="MONA")) == ["c", "a"]
    assert await history.find_job_ids(RunQuery(states=frozenset({JobState.STOPPED}))) == ["b"]


async def test_what_has_ended_is_found_by_when_it_ended(history: History) -> None:
    await _filled(history)
    history.clock.now += 1
    await history.engine.cancel("c", JobState.STOPPED, "stopped")
    history.clock.now += 1
    await history.engine.cancel("a", JobState.STOPPED, "stopped")
    assert await history.find_job_ids(RunQuery(states=frozenset({JobState.STOPPED, JobState.DONE}))) == ["a", "c", "b"]
    assert await history.find_job_ids(RunQuery(states=frozenset({JobState.STOPPED, JobState.QUEUED}))) == [
        "c",
        "b",
        "a",
    ]
    assert await history.find_job_ids(RunQuery(states=frozenset({JobState.QUEUED}))) == []


async def test_only_runs_of_the_given_repositories_are_found(history: History) -> None:
    await _filled(history)
    assert await history.find_job_ids(RunQuery(repo_ids=frozenset({11}))) == ["c"]
    assert await history.find_job_ids(RunQuery(repository="calc", repo_ids=frozenset({11}))) == []
    assert await history.find_job_ids(RunQuery(repo_ids=frozenset())) == []


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


async def test_the_pulse_changes_with_every_job(history: History) -> None:
    seen = [await history.engine.pulse()]
    await _filled(history)
    seen.append(await history.engine.pulse())
    await history.engine.cancel("a", JobState.STOPPED, "stopped")
    seen.append(await history.engine.pulse())
    assert len(set(seen)) == 3
    assert await history.engine.pulse() == seen[-1]


async def test_a_later_log_replaces_that_of_an_earlier_attempt(history: History) -> None:
    await _filled(history)
    for body in (b"a log", b"another log"):
        await history.engine.save_log(_of("c", 1, SITE, "mona"), body, Usage(cost_usd=0.5))
    assert await history.engine.load_log("c") == b"another log"


async def test_a_log_is_forgotten_with_its_job(history: History) -> None:
    await _filled(history)
    await history.engine.save_log(_of("b", 2, CALC, "hubot"), b"a log", Usage(cost_usd=1.0))
    history.clock.now += 15 * _DAY
    assert await history.engine.sweep(14) == 1
    assert await history.engine.load_log("b") is None
    assert await history.find_job_ids(RunQuery(person="hubot")) == []
    left = sa.select(JOBS.c.repository, JOBS.c.actor).where(JOBS.c.id == "b")
    assert await history.store.run(lambda tx: tx.rows.execute(left).one()) == (None, None)
    count = sa.select(sa.func.count()).select_from(RUN_LOGS)
    assert await history.store.run(lambda tx: tx.rows.execute(count).scalar_one()) == 0
