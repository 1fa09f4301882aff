"""Facts beside the jobs: labels, notices, counts, configurations, due recipes and the pace of writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.access import LabelGrant, Tally, TrustedBots
from bot.domain.commands import LabelEvent, RecipeDue, Review, Stop
from bot.domain.job import Actor, Job, JobState, Lane, Origin, Repo
from bot.github.rate_limit import RequestPace
from bot.jobs.context import ConfigCache
from bot.jobs.repo_events import EventFilter
from bot.permissions.repo_config import LabelNames, RepoConfig
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableLedger, DurableSchedules, next_due, reserve_write
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import JobEnded, JobEngine, JobParked, Ledger
from bot.queue.records import decode_job
from bot.queue.store import JOBS, SCHEDULES, JobStore, Transaction
from tests.builders import a_job
from tests.clocks import Clock
from tests.durable import Legs, job_tables, jobs_url
from tests.held_jobs import HeldJobs, Runner
from tests.postgres import postgres_server

__all__ = ["job_tables", "jobs_url", "postgres_server"]

_BOT = 77
_TRUSTED = TrustedBots(ids=frozenset({_BOT}))


class Books:
    """A ledger, with an engine whose jobs begin when they are told to."""

    def __init__(self, clock: Clock, queue: JobEngine, ledger: Ledger, runner: Runner) -> None:
        self.clock, self.queue, self.ledger = clock, queue, ledger
        self._jobs = HeldJobs(runner)

    async def begin(self, lane: Lane = "work") -> str | None:
        """Have the next job of a lane run; its id."""
        return await self._jobs.begin(lane)

    async def finish(self, job_id: str, state: JobState) -> None:
        """End a job that runs."""
        await self._jobs.end(job_id, JobEnded(state=state))

    async def park(self, job_id: str) -> None:
        """Let a job that runs wait."""
        await self._jobs.end(job_id, JobParked(until=10.0**12))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def books(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Books]:
    clock = Clock()
    if request.param == "memory":
        engine = InMemoryEngine(clock=clock)
        yield Books(clock, engine, InMemoryLedger(engine, trusted_bots=_TRUSTED, clock=clock), engine)
        return
    file = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    store = JobStore(request.getfixturevalue("jobs_url") if request.param == "postgresql" else file, clock=clock)
    yield Books(clock, DurableEngine(store), DurableLedger(store, trusted_bots=_TRUSTED), Legs(store))
    await store.close()


async def run_job(books: Books, job: Job, state: JobState | None = JobState.DONE) -> None:
    """Have a job run now, and end as `state`."""
    await books.queue.accept(job)
    assert await books.begin() == job.id
    if state is not None:
        await books.finish(job.id, state)


def a_label(name: str = "codepilot:auto", bound_to: str = "a" * 40, at: float = 1.0, number: int = 7) -> LabelGrant:
    return LabelGrant(
        repo_id=10, number=number, name=name, labeller=Actor(id=20, login="octo"), bound_to=bound_to, at=at
    )


def from_ci(job: Job) -> Job:
    return replace(job, origin=Origin(kind="ci", id=5))


def from_bot(job: Job) -> Job:
    return replace(job, actor=Actor(id=_BOT, login="helper[bot]"))


async def test_labels_are_kept_by_thread_and_name_and_dropped_however_they_are_written(books: Books) -> None:
    ledger = books.ledger
    auto, ask, other = a_label(), a_label("codepilot:ask"), a_label(number=8)
    for each in (auto, ask, other):
        await ledger.save_label(each)
    assert await ledger.labels(10, 7) == (ask, auto)
    assert await ledger.labels(11, 7) == ()
    await ledger.delete_label(10, 7, "Codepilot:AUTO")
    await ledger.delete_label(10, 7, "never there")
    assert await ledger.labels(10, 7) == (ask,)
    assert await ledger.labels(10, 8) == (other,)


async def test_the_newest_setting_of_a_label_counts_in_whatever_order_they_arrive(books: Books) -> None:
    newer, older = a_label("Codepilot:auto", bound_to="b" * 40, at=2), a_label(at=1)
    for order in ((older, newer), (newer, older)):
        for each in order:
            await books.ledger.save_label(each)
        assert await books.ledger.labels(10, 7) == (newer,)
        await books.ledger.delete_label(10, 7, newer.name)


async def test_the_bots_own_push_takes_along_the_labels_of_the_old_head_alone(books: Books) -> None:
    stale, held, elsewhere = a_label("stale", "0" * 40), a_label("held"), a_label("held", number=8)
    for each in (stale, held, elsewhere):
        await books.ledger.save_label(each)
    await books.ledger.rebind_labels(10, 7, "a" * 40, "c" * 40)
    assert await books.ledger.labels(10, 7) == (replace(held, bound_to="c" * 40), stale)
    assert await books.ledger.labels(10, 8) == (elsewhere,)


async def test_a_thread_is_told_the_same_thing_once_an_hour(books: Books) -> None:
    ledger, clock = books.ledger, books.clock
    assert await ledger.claim_notice(10, 7, "locked")
    assert not await ledger.claim_notice(10, 7, "locked")
    assert await ledger.claim_notice(10, 8, "locked")
    assert await ledger.claim_notice(11, 7, "locked")
    assert await ledger.claim_notice(10, 7, "archived")
    assert await ledger.claim_notice(10, 7, "brief", seconds=60)
    clock.now += 60
    assert await ledger.claim_notice(10, 7, "brief", seconds=60)
    clock.now += 3539
    assert not await ledger.claim_notice(10, 7, "locked")
    clock.now += 1
    assert await ledger.claim_notice(10, 7, "locked")


async def test_a_job_that_may_have_died_before_it_told_a_thread_something_may_still_tell_it(books: Books) -> None:
    ledger, clock = books.ledger, books.clock
    for _ in range(2):
        assert await ledger.claim_notice(10, 7, "locked", by="a")
        assert not await ledger.claim_notice(10, 7, "locked", by="b")
        assert not await ledger.claim_notice(10, 7, "locked")
    assert await ledger.claim_notice(10, 8, "locked", by="b")
    clock.now += 3600
    assert await ledger.claim_notice(10, 7, "locked", by="b")
    assert not await ledger.claim_notice(10, 7, "locked", by="a")


async def test_what_is_held_back_is_not_told_for_that_time_though_it_was_told_for_less(books: Books) -> None:
    ledger, clock = books.ledger, books.clock
    assert await ledger.claim_notice(10, 7, "brief", seconds=60)
    await ledger.suppress_notice(10, 7, "brief", seconds=3600)
    await ledger.suppress_notice(10, 8, "new", seconds=3600)
    clock.now += 3599
    assert not await ledger.claim_notice(10, 7, "brief", seconds=60)
    assert not await ledger.claim_notice(10, 8, "new")
    clock.now += 1
    assert await ledger.claim_notice(10, 7, "brief", seconds=60)


async def test_what_was_begun_within_the_hour_is_counted_where_it_belongs(books: Books) -> None:
    here = a_job("here", number=1)
    other, elsewhere = Actor(id=21, login="b"), Repo(id=11, full_name="octo/b", private=False)
    jobs = [
        a_job("thread", number=1),
        replace(a_job("user", number=2), repo=elsewhere, installation=31),
        replace(a_job("repository", number=3), actor=other, installation=None),
        replace(a_job("installation", number=4), actor=other, repo=elsewhere),
    ]
    for job in jobs:
        await run_job(books, job)
    await run_job(books, here, None)
    assert await books.ledger.tally(here) == Tally(thread=1, user=2, repository=2, installation=2, unattended=0)
    assert (await books.ledger.tally(jobs[2])).installation == 0
    books.clock.now += 3599
    assert (await books.ledger.tally(here)).thread == 1
    books.clock.now += 1
    assert await books.ledger.tally(here) == Tally()
    assert (await books.ledger.tally(here, seconds=7200)).thread == 1


async def test_of_two_jobs_that_begin_at_once_only_the_second_counts_the_first(books: Books) -> None:
    first, second = a_job("first", number=1), a_job("second", number=2)
    for job in (first, second):
        await run_job(books, job, None)
    counted = [(await books.ledger.tally(job)).repository for job in (first, second)]
    assert counted == [0, 1]
    assert (await books.ledger.tally(a_job("not stored"))).repository == 2


async def test_neither_refused_nor_queued_jobs_nor_steering_count(books: Books) -> None:
    await run_job(books, a_job("refused"), JobState.REFUSED)
    await books.queue.accept(a_job("steer", command=Stop()))
    assert await books.begin("steer") == "steer"
    await run_job(books, a_job("this"), None)
    await books.queue.accept(a_job("queued"))
    assert await books.ledger.tally(a_job("this")) == Tally()


async def test_a_job_that_is_run_again_counts_once_from_its_first_beginning(books: Books) -> None:
    await books.queue.accept(a_job("j1"))
    for _ in range(3):
        assert await books.begin() == "j1"
        await books.park("j1")
        await books.queue.wake("j1")
        books.clock.now += 1000
    assert (await books.ledger.tally(a_job("other"))).thread == 1
    books.clock.now += 600
    assert (await books.ledger.tally(a_job("other"))).thread == 0


@pytest.mark.parametrize("make", [from_ci, from_bot])
async def test_work_that_no_person_asked_for_adds_up_until_one_does(books: Books, make: Callable[[Job], Job]) -> None:
    for name in ("a", "b", "c"):
        job = make(a_job(name))
        await run_job(books, job)
        books.clock.now += 5000
    assert (await books.ledger.tally(make(a_job("d")))).unattended == 3
    assert (await books.ledger.tally(a_job("person"))).unattended == 0
    assert (await books.ledger.tally(make(a_job("e", number=8)))).unattended == 0
    await run_job(books, a_job("person"))
    assert (await books.ledger.tally(make(a_job("f")))).unattended == 0
    await run_job(books, make(a_job("f")))
    assert (await books.ledger.tally(make(a_job("g")))).unattended == 1


async def test_a_stranger_whose_job_is_refused_does_not_count_as_a_person_who_looks(books: Books) -> None:
    await run_job(books, from_ci(a_job("a")))
    await run_job(books, a_job("stranger"), JobState.REFUSED)
    assert (await books.ledger.tally(from_ci(a_job("b")))).unattended == 1


async def test_no_count_reads_a_table_or_an_index_from_end_to_end(tmp_path: Path) -> None:
    """However many jobs there are, only those of the hour and the place are looked at."""
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    statements: list[tuple[str, Any]] = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda *args: statements.append(args[2:4]))
    await DurableLedger(store).tally(from_ci(a_job()))
    counts = [each for each in statements if each[0].startswith("SELECT")]

    def plans(tx: Transaction) -> list[str]:
        explained = (tx.rows.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", values) for each, values in counts)
        return [str(step[3]) for each in explained for step in each]

    steps = await store.run(plans)
    await store.close()
    assert all(step.startswith("SEARCH") for step in steps), steps
    assert sum("COVERING INDEX jobs_begun_" in step for step in steps) == 4, steps


BODY = RepoConfig(labels=LabelNames(start="bot: go"), fix_ci=("pull-requests",)).model_dump_json(exclude_unset=True)


async def _is_kept_for_its_time(ledger: Ledger, clock: Clock) -> None:
    assert await ledger.config(10) is None
    await ledger.save_config(10, "earlier", seconds=60)
    await ledger.save_config(10, BODY, seconds=60)
    clock.now += 59
    assert await ledger.config(10) == BODY
    assert await ledger.config(11) is None
    clock.now += 1
    assert await ledger.config(10) is None


async def test_what_a_repository_asks_for_is_kept_for_its_time(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    await _is_kept_for_its_time(DurableLedger(store), clock)
    await store.close()


async def test_in_memory_too() -> None:
    clock = Clock()
    await _is_kept_for_its_time(InMemoryLedger(InMemoryEngine(clock=clock), clock=clock), clock)


async def test_a_receiver_without_a_worker_drops_what_means_nothing(database: str) -> None:
    worker, receiver = JobStore(database), JobStore(database)
    receipt = EventFilter(DurableEngine(receiver), DurableLedger(receiver), ConfigCache())
    noise = a_job(command=LabelEvent(label="noise", bound_to=""))
    assert await receipt.drop_reason(noise) == ""
    await DurableLedger(worker).save_config(noise.repo.id, BODY, seconds=60)
    assert await receipt.drop_reason(noise)
    assert await receipt.drop_reason(a_job(command=LabelEvent(label="bot: go", bound_to=""))) == ""
    for store in (worker, receiver):
        await store.close()


async def test_a_receiver_without_a_worker_keeps_the_review_that_the_operator_wants_where_the_file_is_silent(
    database: str,
) -> None:
    worker, receiver = JobStore(database), JobStore(database)
    ledger = DurableLedger(receiver)
    receipt = EventFilter(DurableEngine(receiver), ledger, ConfigCache(), review_on=frozenset({"opened"}))
    opened = a_job(kind="pull", command=Review(on="opened"))
    await DurableLedger(worker).save_config(opened.repo.id, BODY, seconds=60)
    assert await receipt.drop_reason(opened) == ""
    await DurableLedger(worker).save_config(
        opened.repo.id, RepoConfig(review_on=()).model_dump_json(exclude_unset=True), seconds=60
    )
    assert await receipt.drop_reason(opened)
    for store in (worker, receiver):
        await store.close()


REPO = Repo(id=10, full_name="octo/calc", private=False)
HOURLY, DAILY = "0 * * * *", "30 4 * * *"
HOUR, DAY = 3600.0, 86_400.0


async def started(store: JobStore) -> list[Job]:
    """The jobs of schedules, oldest first."""
    bodies = await store.run(lambda tx: list(tx.rows.execute(sa.select(JOBS.c.body).order_by(JOBS.c.seq)).scalars()))
    return [decode_job(body) for body in bodies if body]


async def due_times(store: JobStore) -> dict[str, float]:
    """Return the due time of each recipe."""
    rows = await store.run(lambda tx: tx.rows.execute(sa.select(SCHEDULES.c.recipe, SCHEDULES.c.due_at)).all())
    return {each.recipe: each.due_at for each in rows}


async def test_a_due_recipe_is_started_once_by_processes_that_look_at_the_same_time(database: str) -> None:
    clock = Clock()
    one, other = JobStore(database, clock=clock), JobStore(database, clock=clock)
    first, second = DurableSchedules(one), DurableSchedules(other)
    await first.save(REPO, 30, {"tidy": HOURLY})
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
    await DurableSchedules(store).save(REPO, 30, {"tidy": HOURLY, "daily": DAILY})
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
    await schedules.save(REPO, 30, {"tidy": DAILY, "same": DAILY, "gone": DAILY})
    before = await due_times(store)
    clock.now = before["same"] + 1
    moved = Repo(id=10, full_name="octo/sum", private=True)
    await schedules.save(moved, 31, {"tidy": HOURLY, "same": DAILY})
    assert await due_times(store) == {
        "tidy": next_due(HOURLY, clock.now, delay_key="10:tidy"),
        "same": before["same"],
    }
    await schedules.start_due()
    assert {(each.repo.full_name, each.installation) for each in await started(store)} == {("octo/sum", 31)}
    await store.close()


async def test_places_that_the_app_is_not_in_any_more_are_forgotten(database: str) -> None:
    store = JobStore(database, clock=Clock())
    schedules = DurableSchedules(store)
    await schedules.save(REPO, 30, {"tidy": DAILY})
    await schedules.save(Repo(id=11, full_name="octo/other", private=False), 30, {"other": DAILY})
    await schedules.save(Repo(id=12, full_name="mona/own", private=False), 31, {"own": DAILY})
    assert await schedules.installations() == {30, 31}
    await schedules.prune(30, [11])
    assert (await due_times(store)).keys() == {"other", "own"}
    await schedules.prune(31, ())
    assert await schedules.installations() == {30}
    await store.close()


async def test_a_schedule_that_cannot_be_read_any_more_stops_no_other(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    schedules = DurableSchedules(store)
    await schedules.save(REPO, 30, {"odd": HOURLY, "tidy": HOURLY})
    await store.run(lambda tx: tx.rows.execute(SCHEDULES.update().where(SCHEDULES.c.recipe == "odd").values(cron="x")))
    clock.now += HOUR * 2
    assert await schedules.start_due() == 2
    assert set(await due_times(store)) == {"tidy"}
    await store.close()


SECONDS = 1.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database: str, clock: Clock) -> AsyncIterator[tuple[JobStore, JobStore]]:
    """Those of two workers."""
    both = JobStore(database, clock=clock), JobStore(database, clock=clock)
    yield both
    for store in both:
        await store.close()


async def test_writes_of_two_workers_are_spread_and_those_of_installations_are_apart(
    stores: tuple[JobStore, JobStore], clock: Clock
) -> None:
    ours, theirs = (reserve_write(store, 30) for store in stores)
    waits = await asyncio.gather(*(reserve(SECONDS) for reserve in (ours, theirs) * 3))
    assert sorted(waits) == [0, 1, 2, 3, 4, 5]
    assert await reserve_write(stores[0], 31)(SECONDS) == 0
    clock.now += 100
    assert await theirs(SECONDS) == 0


async def test_a_clock_that_was_set_back_stops_nobody(stores: tuple[JobStore, JobStore], clock: Clock) -> None:
    reserve = reserve_write(stores[0], 30)
    await reserve(SECONDS)
    clock.now -= 3600
    assert await reserve(SECONDS) == 0
    assert await reserve(SECONDS) == SECONDS


async def test_a_turn_to_write_waits_for_the_writes_of_others(stores: tuple[JobStore, JobStore]) -> None:
    delays = []

    async def reserve(seconds: float) -> float:
        delays.append(seconds)
        return 0.0

    pace = RequestPace(0.5, reserve)
    async with pace.turn():
        assert delays == [0.5]


async def test_a_database_that_is_gone_stops_no_write(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    reserve = reserve_write(store, 30)
    await reserve(SECONDS)
    (tmp_path / "jobs.sqlite").unlink()
    assert await reserve(SECONDS) == 0
    await store.close()
