"""Recipes that are due: each due time becomes one job, however many processes look, and whatever they missed."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa

from bot.domain.commands import RecipeDue
from bot.domain.job import Job, Repo
from bot.permissions.repo_config import next_due
from bot.queue.ledger import DurableSchedules
from bot.queue.records import decode_job
from bot.queue.store import JOBS, SCHEDULES, JobStore
from tests.clocks import Clock

REPO = Repo(id=10, full_name="octo/calc", private=False)
HOURLY, DAILY = "0 * * * *", "30 4 * * *"
HOUR, DAY = 3600.0, 86_400.0


async def started(store: JobStore) -> list[Job]:
    """The jobs of schedules, oldest first."""
    bodies = await store.run(lambda tx: list(tx.rows.execute(sa.select(JOBS.c.body).order_by(JOBS.c.seq)).scalars()))
    return [decode_job(body) for body in bodies if body]


async def due_times(store: JobStore) -> dict[str, float]:
    """When each recipe is due."""
    rows = await store.run(lambda tx: tx.rows.execute(sa.select(SCHEDULES.c.recipe, SCHEDULES.c.due_at)).all())
    return {each.recipe: each.due_at for each in rows}


async def test_a_due_recipe_is_started_once_by_processes_that_look_at_the_same_time(database: str) -> None:
    clock = Clock()
    one, other = JobStore(database, clock=clock), JobStore(database, clock=clock)
    first, second = DurableSchedules(one), DurableSchedules(other)
    await first.keep(REPO, 30, {"tidy": HOURLY})
    assert await first.start_due() == 0
    clock.now = (await due_times(one))["tidy"]
    assert sum(await asyncio.gather(first.start_due(), second.start_due())) == 1
    [job] = await started(other)
    assert job.command == RecipeDue(name="tidy")
    assert (job.repo.full_name, job.installation, job.lane) == ("octo/calc", 30, "event")
    assert await second.start_due() == 0
    await one.close()
    await other.close()


async def test_what_was_due_while_no_process_ran_is_started_once_after_a_restart(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    await DurableSchedules(store).keep(REPO, 30, {"tidy": HOURLY, "daily": DAILY})
    await store.close()
    clock.now += 3 * DAY
    store = JobStore(database, clock=clock)
    schedules = DurableSchedules(store)
    assert await schedules.start_due() == 2
    assert await schedules.start_due() == 0
    assert clock.now < (await due_times(store))["tidy"] <= clock.now + HOUR
    clock.now += DAY
    assert await schedules.start_due() == 2
    assert len(await started(store)) == 4
    await store.close()


async def test_a_changed_schedule_is_due_anew_and_an_unchanged_one_as_before(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    schedules = DurableSchedules(store)
    await schedules.keep(REPO, 30, {"tidy": DAILY, "same": DAILY, "gone": DAILY})
    before = await due_times(store)
    clock.now = before["same"] + 1
    moved = Repo(id=10, full_name="octo/sum", private=True)
    await schedules.keep(moved, 31, {"tidy": HOURLY, "same": DAILY})
    assert await due_times(store) == {
        "tidy": next_due(HOURLY, clock.now, spread_by="10:tidy"),
        "same": before["same"],
    }
    await schedules.start_due()
    assert {(each.repo.full_name, each.installation) for each in await started(store)} == {("octo/sum", 31)}
    await store.close()


async def test_places_that_the_app_is_not_in_any_more_are_forgotten(database: str) -> None:
    store = JobStore(database, clock=Clock())
    schedules = DurableSchedules(store)
    await schedules.keep(REPO, 30, {"tidy": DAILY})
    await schedules.keep(Repo(id=11, full_name="octo/other", private=False), 30, {"other": DAILY})
    await schedules.keep(Repo(id=12, full_name="mona/own", private=False), 31, {"own": DAILY})
    assert await schedules.installations() == {30, 31}
    await schedules.keep_only(30, [11])
    assert (await due_times(store)).keys() == {"other", "own"}
    await schedules.keep_only(31, ())
    assert await schedules.installations() == {30}
    await store.close()


async def test_a_schedule_that_cannot_be_read_any_more_stops_no_other(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    schedules = DurableSchedules(store)
    await schedules.keep(REPO, 30, {"odd": HOURLY, "tidy": HOURLY})
    await store.run(lambda tx: tx.rows.execute(SCHEDULES.update().where(SCHEDULES.c.recipe == "odd").values(cron="x")))
    clock.now += HOUR * 2
    assert await schedules.start_due() == 2
    assert set(await due_times(store)) == {"tidy"}
    await store.close()
