"""Jobs that wait for a person, words to jobs under way, and what is found of the jobs of a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.domain.commands import CloseEvent, Stop
from bot.domain.errors import QueueError, TransitionError
from bot.domain.job import JobState
from bot.jobs.record import JobRecord, StoredRecord
from bot.queue.engine import DurableEngine
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import JobEnded, JobEngine, JobParked, JobReleased
from bot.queue.records import Signal, StoredJob
from bot.queue.store import JobStore
from tests.builders import a_job
from tests.clocks import Clock
from tests.durable import Legs, job_tables, jobs_url
from tests.held_jobs import HeldJobs
from tests.postgres import postgres_server

__all__ = ["job_tables", "jobs_url", "postgres_server"]

FOREVER = JobParked(until=10.0**12)
DONE = JobEnded(state=JobState.DONE)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An engine whose jobs begin and end when they are told to."""

    clock: Clock
    engine: JobEngine
    jobs: HeldJobs

    async def parked(self, job_id: str = "j1", *, number: int = 7, disposition: JobParked = FOREVER) -> None:
        """A job that has come to wait."""
        await self.engine.accept(a_job(job_id, number=number))
        assert await self.jobs.begin() == job_id
        await self.jobs.end(job_id, disposition)

    async def at(self, job_id: str = "j1") -> StoredJob:
        """Return the state of a job."""
        stored = await self.engine.get(job_id)
        assert stored is not None
        return stored


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    if request.param == "memory":
        engine = InMemoryEngine(clock=clock)
        yield Bench(clock=clock, engine=engine, jobs=HeldJobs(engine))
        return
    file = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    store = JobStore(request.getfixturevalue("jobs_url") if request.param == "postgresql" else file, clock=clock)
    yield Bench(clock=clock, engine=DurableEngine(store), jobs=HeldJobs(Legs(store)))
    await store.close()


async def test_a_waiting_job_is_nobodys_and_holds_up_no_other(bench: Bench) -> None:
    await bench.parked(disposition=JobParked(until=5000))
    stored = await bench.at()
    assert (stored.state, stored.until, stored.enqueued_at, stored.finished_at) == (JobState.WAITING, 5000, 1000, None)
    await bench.engine.accept(a_job("j2"))
    assert await bench.jobs.begin() == "j2"


async def test_an_answer_queues_the_job_again_behind_what_runs_in_its_thread(bench: Bench) -> None:
    await bench.parked()
    await bench.engine.accept(a_job("j2"))
    assert await bench.jobs.begin() == "j2"
    assert await bench.engine.wake("j1")
    assert await bench.jobs.begin() is None
    await bench.jobs.end("j2", DONE)
    assert await bench.jobs.begin() == "j1"
    assert (await bench.at()).until is None


async def test_a_job_that_nobody_answers_is_run_when_its_time_is_over(bench: Bench) -> None:
    await bench.parked(disposition=JobParked(until=2000))
    bench.clock.now = 1999
    assert await bench.jobs.begin() is None
    bench.clock.now = 2000
    assert await bench.jobs.begin() == "j1"
    assert not await bench.engine.wake("j1")
    await bench.jobs.end("j1", FOREVER)
    assert (await bench.at()).state is JobState.WAITING


async def test_attempts_are_counted_anew_after_a_wait(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    for _ in range(5):
        assert await bench.jobs.begin() == "j1"
        assert (await bench.at()).attempts == 1
        await bench.jobs.end("j1", FOREVER)
        assert await bench.engine.wake("j1")


@pytest.mark.parametrize("parked", [True, False])
async def test_a_job_that_nobody_runs_can_be_ended_once(bench: Bench, parked: bool) -> None:  # noqa: FBT001 - a parameter
    if parked:
        await bench.parked()
    else:
        await bench.engine.accept(a_job())
    assert await bench.engine.cancel("j1", JobState.STOPPED, "octo said so")
    assert not await bench.engine.cancel("j1", JobState.STOPPED, "again")
    assert not await bench.engine.wake("j1")
    stored = await bench.at()
    assert (stored.state, stored.reason, stored.finished_at) == (JobState.STOPPED, "octo said so", 1000)
    assert await bench.jobs.begin() is None


async def test_a_job_that_runs_is_ended_by_its_worker_alone(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    assert await bench.jobs.begin() == "j1"
    assert not await bench.engine.cancel("j1", JobState.STOPPED, "octo said so")
    assert (await bench.at()).state is JobState.RUNNING
    with pytest.raises(QueueError, match="no job unknown"):
        await bench.engine.cancel("unknown", JobState.STOPPED, "")


@pytest.mark.parametrize("state", [JobState.DONE, JobState.WAITING])
async def test_a_job_that_never_ran_can_only_be_stopped(bench: Bench, state: JobState) -> None:
    await bench.engine.accept(a_job())
    with pytest.raises(TransitionError, match=state):
        await bench.engine.cancel("j1", state, "")


STOP = Signal(kind="stop", text="Stopped.", by="mona", id="s1")


async def test_a_waiting_job_that_is_stopped_waits_for_no_work(bench: Bench) -> None:
    await bench.parked()
    assert await bench.engine.send("j1", STOP)
    assert await bench.engine.send("j1", STOP)
    assert (await bench.at()).state is JobState.QUEUED
    assert await bench.jobs.begin() is None
    assert await bench.jobs.begin("steer") == "j1"
    assert await bench.jobs.begin("steer") is None


async def test_a_job_between_two_attempts_that_is_stopped_does_not_wait_for_its_time(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    assert await bench.jobs.begin() == "j1"
    await bench.jobs.end("j1", JobReleased(held_seconds=600.0))
    assert await bench.engine.send("j1", STOP)
    assert await bench.jobs.begin("steer") == "j1"
    await bench.jobs.end("j1", JobReleased())
    assert await bench.jobs.begin("steer") == "j1"


async def test_the_end_of_a_job_starts_a_stopped_one_of_its_thread_before_older_jobs(bench: Bench) -> None:
    for name in ("older", "stopped"):
        await bench.parked(name)
    await bench.engine.accept(a_job("j1"))
    assert await bench.jobs.begin() == "j1"
    assert await bench.engine.wake("older")
    assert await bench.engine.send("stopped", STOP)
    assert await bench.jobs.begin("steer") is None
    await bench.jobs.end("j1", DONE)
    assert await bench.jobs.begin("steer") == "stopped"
    assert await bench.jobs.begin() is None
    await bench.jobs.end("stopped", JobEnded(state=JobState.STOPPED))
    assert await bench.jobs.begin() == "older"


async def test_a_job_to_stop_and_another_of_its_thread_never_run_together(bench: Bench) -> None:
    await bench.parked()
    for name in ("j2", "j3"):
        await bench.engine.accept(a_job(name))
    assert await bench.jobs.begin() == "j2"
    assert await bench.engine.send("j1", STOP)
    assert await bench.jobs.begin("steer") is None
    await bench.jobs.end("j2", DONE)
    assert await bench.jobs.begin("steer") == "j1"
    assert await bench.jobs.begin() is None
    await bench.jobs.end("j1", JobEnded(state=JobState.STOPPED))
    assert await bench.jobs.begin() == "j3"


async def test_what_steers_runs_whatever_runs_in_its_thread_and_work_never_in_its_place(bench: Bench) -> None:
    await bench.engine.accept(a_job("work"))
    assert await bench.jobs.begin() == "work"
    for name, number in (("s1", 7), ("s2", 7), ("s3", 8)):
        await bench.engine.accept(a_job(name, number=number, command=Stop()))
    await bench.engine.accept(a_job("more"))
    assert await bench.jobs.begin() is None
    # One of a thread at a time, so that two answers are never given at once.
    assert [await bench.jobs.begin("steer") for _ in range(3)] == ["s1", "s3", None]


async def test_steering_that_runs_holds_up_neither_work_nor_events(bench: Bench) -> None:
    await bench.engine.accept(a_job("s1", command=Stop()))
    assert await bench.jobs.begin("steer") == "s1"
    await bench.engine.accept(a_job("work"))
    assert await bench.jobs.begin() == "work"
    await bench.engine.accept(a_job("e1", command=CloseEvent()))
    assert await bench.jobs.begin("event") == "e1"


async def test_a_job_that_has_ended_hears_nothing(bench: Bench) -> None:
    sent = Signal(kind="stop", text="", by="mona", id="s1")
    await bench.engine.accept(a_job())
    await bench.engine.cancel("j1", JobState.STOPPED, "")
    assert not await bench.engine.send("j1", sent)
    with pytest.raises(QueueError, match="no job unknown"):
        await bench.engine.send("unknown", sent)


async def test_the_work_of_a_thread_is_listed_newest_first(bench: Bench) -> None:
    for name, number in (("a", 7), ("b", 8), ("c", 7), ("d", 7)):
        await bench.engine.accept(a_job(name, number=number))
    await bench.engine.accept(a_job("s", command=Stop()))
    assert [each.job.id for each in await bench.engine.jobs_in_thread(10, 7)] == ["d", "c", "a"]
    assert [each.job.id for each in await bench.engine.jobs_in_thread(10, 7, limit=2)] == ["d", "c"]
    assert await bench.engine.jobs_in_thread(11, 7) == ()


async def test_no_number_of_refused_and_queued_jobs_hides_the_one_that_waits(bench: Bench) -> None:
    await bench.parked("waits")
    for number in range(30):
        await bench.engine.accept(a_job(f"r{number}"))
        assert await bench.jobs.begin() == f"r{number}"
        await bench.jobs.end(f"r{number}", JobEnded(state=JobState.REFUSED))
    for number in range(30):
        await bench.engine.accept(a_job(f"q{number}"))
    found = [each.job.id for each in await bench.engine.jobs_in_thread(10, 7)]
    assert len(found) == 41
    assert found[-1] == "waits"


async def test_what_is_under_way_in_an_installation_is_found(bench: Bench) -> None:
    await bench.parked("waits", number=1)
    for number, name in enumerate(("ended", "runs", "queued"), start=2):
        await bench.engine.accept(a_job(name, number=number))
    await bench.engine.cancel("ended", JobState.STOPPED, "")
    assert await bench.jobs.begin() == "runs"
    await bench.engine.accept(a_job("s", command=Stop()))
    for repo_ids in ((), (9, 10)):
        assert [each.job.id for each in await bench.engine.live_jobs(30, repo_ids)] == ["waits", "runs", "queued"]
    assert await bench.engine.live_jobs(30, (9,)) == ()
    assert await bench.engine.live_jobs(31) == ()
    assert await bench.engine.live_ids() == {"waits", "runs", "queued"}


async def test_what_is_kept_of_jobs_that_ended_long_ago_is_forgotten_and_nothing_of_others(bench: Bench) -> None:
    for number, name in enumerate(("old", "waits", "recent")):
        await bench.engine.accept(a_job(name, number=number))
        await StoredRecord(bench.engine, name).update(lambda record: replace(record, base_sha="1"))
    for name, disposition in (("old", DONE), ("waits", FOREVER)):
        assert await bench.jobs.begin() == name
        await bench.jobs.end(name, disposition)
    bench.clock.now += 31 * 86400
    await bench.engine.cancel("recent", JobState.STOPPED, "")
    assert [await bench.engine.sweep(30) for _ in range(2)] == [1, 0]
    assert await bench.engine.get("old") is None
    assert await bench.engine.jobs_in_thread(10, 0) == ()
    assert not await bench.engine.accept(a_job("old", number=0))
    records = [await StoredRecord(bench.engine, name).read() for name in ("old", "waits", "recent")]
    assert records == [JobRecord(), JobRecord(base_sha="1"), JobRecord(base_sha="1")]
