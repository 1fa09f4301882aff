"""Workers die: which job is to blame is found out without taking its neighbours along, and none ends in silence."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.commands import Stop
from bot.domain.job import JobState
from bot.jobs.record import StoredRecord, has_progress, stored_steps
from bot.queue import transitions
from bot.queue.engine import DurableEngine
from bot.queue.protocols import ISOLATION_SECONDS, MAX_DEATHS, MAX_REPORT_DEATHS, death_pause
from bot.queue.store import JOBS, SUSPECTS, JobStore, Transaction
from tests.builders import a_job
from tests.clocks import Clock
from tests.durable import begun

_PUT_OFF = 6
"""More than the seconds for which a suspect leaves a worker alone that has another one."""


class Lives:
    """Workers, one after another: each takes what it can get."""

    def __init__(self, store: JobStore, clock: Clock) -> None:
        self.store, self.clock, self.engine = store, clock, DurableEngine(store, has_progress=has_progress)

    async def stored(self, *job_ids: str) -> None:
        for number, job_id in enumerate(job_ids):
            await self.engine.accept(a_job(job_id, number=number))

    async def claim_queued(self, worker: str) -> dict[str, int]:
        """Every queued job that a worker gets now, and the deaths that it is charged with."""
        ready = sa.select(JOBS.c.id).where(
            JOBS.c.released, JOBS.c.state == JobState.QUEUED, JOBS.c.held_until <= self.clock.now
        )
        return await self._claim(ready, worker)

    async def take_over(self, dead: str, worker: str) -> dict[str, int]:
        """The same of what a worker had that has died, as DBOS runs its workflows again."""
        return await self._claim(sa.select(JOBS.c.id).where(JOBS.c.worker == dead), worker)

    async def _claim(self, query: sa.Select[Any], worker: str) -> dict[str, int]:
        ordered = query.order_by(JOBS.c.seq)
        ids: list[str] = await self.store.run(lambda tx: list(tx.rows.execute(ordered).scalars()))
        claims = {job_id: await begun(self.engine, job_id, worker) for job_id in ids}
        return {job_id: got[2] for job_id, got in claims.items() if got is not None}

    async def give_back(self, job_id: str, worker: str) -> None:
        await self._ours(job_id, worker, release=True)

    async def finish(self, job_id: str, worker: str) -> None:
        await self._ours(job_id, worker, release=False)

    async def _ours(self, job_id: str, worker: str, *, release: bool) -> None:
        def change(tx: Transaction) -> None:
            leg = tx.rows.execute(sa.select(JOBS.c.leg).where(JOBS.c.id == job_id)).scalar_one()
            row = transitions.check_lease(tx, job_id, leg, worker)
            if release:
                transitions.release(tx, row, 0.0)
            else:
                transitions.finish(tx, row, JobState.DONE, "", None)

        await self.store.run(change)


@pytest.fixture
async def lives(database: str) -> AsyncIterator[Lives]:
    clock = Clock()
    store = JobStore(database, clock=clock)
    yield Lives(store, clock)
    await store.close()


async def test_a_death_with_several_in_hand_is_charged_to_none_of_them(lives: Lives) -> None:
    await lives.stored("a", "b", "c")
    assert await lives.claim_queued("w1") == {"a": 0, "b": 0, "c": 0}
    # From now on they are in hand one at a time.
    assert await lives.take_over("w1", "w2") == {"a": 0}
    lives.clock.now += _PUT_OFF
    assert await lives.claim_queued("w2") == {}


async def test_the_poisonous_one_is_given_up_and_its_neighbours_are_not(lives: Lives) -> None:
    await lives.stored("a", "poison", "b")
    life, finished, charged = 0, set[str](), list[int]()
    assert len(await lives.claim_queued("w0")) == 3
    while len(finished) < 3 and life < 10:
        life += 1
        worker = f"w{life}"
        had = await lives.take_over(f"w{life - 1}", worker)
        had |= await lives.claim_queued(worker)
        while had:
            for job_id, deaths in had.items():
                assert deaths == 0 or job_id == "poison"
                charged += [deaths] if job_id == "poison" else []
                if deaths >= MAX_DEATHS or job_id != "poison":
                    await lives.finish(job_id, worker)
                    finished.add(job_id)
            lives.clock.now += _PUT_OFF
            had = await lives.claim_queued(worker)
        lives.clock.now += ISOLATION_SECONDS + 1
    assert finished == {"a", "poison", "b"}
    assert charged == list(range(MAX_DEATHS + 1))


async def test_a_worker_takes_the_next_suspect_when_the_last_one_got_on_or_is_slow(lives: Lives) -> None:
    await lives.stored("a", "b", "c", "d")
    assert len(await lives.claim_queued("w1")) == 4
    assert await lives.take_over("w1", "w2") == {"a": 0}
    await StoredRecord(lives.engine, "a").update(lambda record: replace(record, steps=1))
    lives.clock.now += _PUT_OFF
    assert await lives.claim_queued("w2") == {"b": 0}
    await StoredRecord(lives.engine, "b").update(lambda record: replace(record, base_sha="1234"))
    lives.clock.now += _PUT_OFF
    assert await lives.claim_queued("w2") == {"c": 0}
    lives.clock.now += ISOLATION_SECONDS + 1
    assert await lives.claim_queued("w2") == {"d": 0}


async def test_new_jobs_do_not_wait_for_suspects(lives: Lives) -> None:
    await lives.stored("a", "b")
    assert len(await lives.claim_queued("w1")) == 2
    assert await lives.take_over("w1", "w2") == {"a": 0}
    await lives.engine.accept(a_job("new", number=9))
    assert await lives.claim_queued("w2") == {"new": 0}


async def test_another_worker_takes_the_other_suspects(lives: Lives) -> None:
    await lives.stored("a", "b")
    assert len(await lives.claim_queued("w1")) == 2
    assert await lives.take_over("w1", "w2") == {"a": 0}
    lives.clock.now += _PUT_OFF
    assert await lives.claim_queued("w3") == {"b": 0}


async def test_steps_count_as_progress_only_when_they_are_new(lives: Lives) -> None:
    await lives.stored("a")
    assert await lives.claim_queued("w1") == {"a": 0}
    for steps, deaths in ((3, 0), (2, 1), (3, 2)):
        async with stored_steps(StoredRecord(lives.engine, "a"), partial(int, steps)):
            pass
        await lives.take_over("w1", "w1")
        lives.clock.now += ISOLATION_SECONDS + 1
        await lives.claim_queued("w1")
        assert await lives.store.run(lambda tx: transitions.count_deaths(tx, "a")) == deaths


async def test_three_restarts_in_a_bad_minute_take_nobody(lives: Lives) -> None:
    await lives.stored("a")
    assert await lives.claim_queued("w1") == {"a": 0}
    for deaths in (0, 1):
        assert await lives.take_over("w1", "w1") == {"a": deaths}
        lives.clock.now += 5
    assert await lives.take_over("w1", "w1") == {}
    assert await lives.claim_queued("w1") == {}
    lives.clock.now += 60
    assert await lives.claim_queued("w1") == {"a": 2}


@dataclass
class _Chaos:
    """A worker that is killed at random, as in `make chaos`: jobs make their first step and end, if they are let."""

    lives: Lives
    chance: random.Random
    accepted: int = 0
    given_up: set[str] = field(default_factory=set)

    async def run(self, kills: int, poison: str = "") -> None:
        for life in range(kills):
            while len(await self.lives.engine.live_ids()) < 4:
                self.accepted += 1
                await self.lives.engine.accept(a_job(f"j{self.accepted}", number=self.accepted))
            had = await self.lives.take_over(f"w{life - 1}", f"w{life}") | await self.lives.claim_queued(f"w{life}")
            for job_id, deaths in had.items():
                if deaths >= MAX_DEATHS:
                    self.given_up.add(job_id)
                elif job_id == poison or self.chance.random() < _CUT:
                    continue
                await self.lives.finish(job_id, f"w{life}")
            self.lives.clock.now += _PUT_OFF


_CUT = 0.4
"""The share of the attempts that are cut before the first step."""


@pytest.mark.parametrize("poison", ["", "j9"])
async def test_workers_that_somebody_kills_condemn_no_job_but_the_poisonous_one(tmp_path: Path, poison: str) -> None:
    clock = Clock()
    store = JobStore(f"sqlite:///{tmp_path / 'queue.sqlite'}", clock=clock)
    chaos = _Chaos(Lives(store, clock), random.Random(1))  # noqa: S311 - to be the same every time
    await chaos.run(60, poison)
    await store.close()
    assert chaos.given_up == {poison} - {""}
    assert chaos.accepted > 20


async def test_deaths_that_a_poisonous_job_explains_excuse_no_other(lives: Lives) -> None:
    for job_id, life in (("poison", 0), ("another", 10)):
        await lives.engine.accept(a_job(job_id, number=life))
        had = await lives.claim_queued(f"w{life}")
        for number in range(life + 1, life + 2 + MAX_DEATHS):
            assert had == {job_id: max(0, number - life - 2)}
            had = await lives.take_over(f"w{number - 1}", f"w{number}")
            lives.clock.now += 61
            had |= await lives.claim_queued(f"w{number}")
        assert had == {job_id: MAX_DEATHS}
        await lives.finish(job_id, f"w{life + 1 + MAX_DEATHS}")


async def test_a_job_that_is_given_back_is_charged_with_nothing(lives: Lives) -> None:
    await lives.stored("a")
    for _ in range(6):
        assert await lives.claim_queued("w1") == {"a": 0}
        await lives.give_back("a", "w1")


@pytest.mark.parametrize("lane", ["work", "steer"])
async def test_a_job_is_handed_out_to_be_given_up_however_often_that_is_cut(lives: Lives, lane: str) -> None:
    await lives.engine.accept(a_job("a", command=Stop() if lane == "steer" else None))
    seen = list((await lives.claim_queued("w1")).values())
    for _ in range(MAX_DEATHS + 5):
        found = await lives.take_over("w1", "w1")
        lives.clock.now += 3600
        seen += (found or await lives.claim_queued("w1")).values()
    assert [deaths >= MAX_DEATHS for deaths in seen] == [False] * (MAX_DEATHS + 1) + [True] * 5


async def test_a_job_that_kills_even_those_who_only_report_that_ends(lives: Lives) -> None:
    await lives.stored("a", "b")
    assert await lives.claim_queued("w1") == {"a": 0, "b": 0}
    await lives.take_over("w1", "w1")
    charged = SUSPECTS.update().where(SUSPECTS.c.job_id == "a").values(deaths=MAX_REPORT_DEATHS - 1)
    await lives.store.run(lambda tx: tx.rows.execute(charged))
    await lives.take_over("w1", "w2")
    stored = await lives.engine.get("a")
    assert stored is not None
    assert stored.state is JobState.FAILED
    assert str(MAX_REPORT_DEATHS) in stored.reason


def test_the_pauses_grow_and_the_end_is_days_away() -> None:
    assert sum(map(death_pause, range(MAX_REPORT_DEATHS))) > 3 * 24 * 3600
    assert death_pause(MAX_REPORT_DEATHS) == 3600
