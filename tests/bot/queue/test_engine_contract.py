"""The contract of all engines, in memory and in a database: jobs, signals, questions and records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.commands import Ask, Stop
from bot.domain.errors import QueueError, TransitionError
from bot.domain.job import Actor, Job, JobState, Lane
from bot.jobs import waiting
from bot.jobs.record import (
    ApprovalAnswer,
    JobRecord,
    RecordedEnding,
    Request,
    StoredRecord,
    has_answer,
    with_ending,
)
from bot.queue.engine import DurableEngine
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, JobEngine, JobParked, JobReleased, PendingReport
from bot.queue.records import Signal
from bot.queue.store import JobStore
from bot.queue.workflows import REPORT, WorkflowClient
from tests.builders import a_job
from tests.clocks import Clock
from tests.durable import Legs, job_tables, jobs_url
from tests.postgres import postgres_server

__all__ = ["job_tables", "jobs_url", "postgres_server"]

DONE = JobEnded(state=JobState.DONE)
FOREVER = 10.0**12


@dataclass
class Scripted:
    """Handles jobs as it is told to, and keeps what it saw."""

    dispositions: list[Disposition] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[object]] | None = None
    takes: list[bool] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        self.handled.append(f"{attempt.job.id} {attempt.number}")
        self.jobs.append(attempt.job)
        async with attempt.listen(lambda signal: self.signals.append(signal.id)):
            pass
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.dispositions.pop(0) if self.dispositions else DONE

    async def report(self, report: PendingReport) -> bool:
        self.reports.append(report.job_id)
        return self.takes.pop(0) if self.takes else True


@dataclass(frozen=True)
class Bench:
    """An engine with its worker's side."""

    engine: JobEngine
    clock: Clock
    handler: Scripted
    run_next: Callable[[Lane], Awaitable[bool]]
    tell_next: Callable[[], Awaitable[bool]]

    async def state(self, job_id: str = "j1") -> JobState:
        stored = await self.engine.get(job_id)
        assert stored is not None
        return stored.state


def in_memory() -> Bench:
    clock, handler = Clock(), Scripted()
    engine = InMemoryEngine(clock=clock)
    return Bench(
        engine=engine,
        clock=clock,
        handler=handler,
        run_next=lambda lane: engine.run_next(handler, lane),
        tell_next=lambda: engine.report_next(handler),
    )


class Endings:
    """The endings that a durable engine has DBOS tell, and when."""

    def __init__(self, clock: Clock, legs: Legs, handler: Scripted) -> None:
        self._clock, self._legs, self._handler = clock, legs, handler
        self._due: list[tuple[float, str]] = []

    def record(self, patch: pytest.MonkeyPatch) -> None:
        enqueue = WorkflowClient.enqueue

        def recorded(client: WorkflowClient, *args: Any, delay: float = 0.0, **options: Any) -> None:  # noqa: ANN401
            enqueue(client, *args, delay=delay, **options)
            if args[1] == REPORT:
                self._due.append((self._clock.now + delay, args[-1]))

        patch.setattr(WorkflowClient, "enqueue", recorded)

    async def tell_next(self) -> bool:
        due = next((each for each in self._due if each[0] <= self._clock.now), None)
        if due is not None:
            self._due.remove(due)
            await self._legs.report(self._handler, due[1])
        return due is not None


@asynccontextmanager
async def in_a_store(url: str, patch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    clock, handler = Clock(), Scripted()
    store = JobStore(url, clock=clock)
    legs = Legs(store)
    endings = Endings(clock, legs, handler)
    endings.record(patch)
    yield Bench(
        engine=DurableEngine(store),
        clock=clock,
        handler=handler,
        run_next=lambda lane: legs.run_next(handler, lane),
        tell_next=endings.tell_next,
    )
    await store.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    if request.param == "memory":
        yield in_memory()
        return
    file = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    url = request.getfixturevalue("jobs_url") if request.param == "postgresql" else file
    async with in_a_store(url, monkeypatch) as bench:
        yield bench


async def test_a_job_and_its_delivery_are_accepted_once(bench: Bench) -> None:
    assert await bench.engine.accept(a_job("j1"))
    assert not await bench.engine.accept(a_job("j1"))
    assert not await bench.engine.accept(replace(a_job("j2"), delivery_id=a_job("j1").delivery_id))
    assert (await bench.engine.counts())[JobState.QUEUED] == 1


async def test_the_backlog_counts_what_has_not_ended(bench: Bench) -> None:
    for job_id in ("a", "b", "c"):
        await bench.engine.accept(a_job(job_id))
    await bench.run_next("work")
    backlog = await bench.engine.backlog()
    assert backlog.by_state == {JobState.QUEUED: 2, JobState.RUNNING: 0, JobState.WAITING: 0}


async def test_a_released_job_begins_again_as_it_was_amended(bench: Bench) -> None:
    amended = replace(a_job("j1"), command=Ask(goal="why?"))
    await bench.engine.accept(a_job("j1"))
    bench.handler.dispositions = [JobReleased()]
    bench.handler.meanwhile = lambda: bench.engine.amend(amended)
    assert await bench.run_next("work")
    bench.handler.meanwhile = None
    assert await bench.run_next("work")
    stored = await bench.engine.get("j1")
    assert stored is not None
    assert (stored.job, stored.state) == (amended, JobState.DONE)
    assert bench.handler.handled == ["j1 1", "j1 1"]
    assert bench.handler.jobs == [a_job("j1"), amended]


async def test_work_of_a_thread_runs_in_its_order_and_each_job_once(bench: Bench) -> None:
    for job_id in ("a", "b"):
        await bench.engine.accept(a_job(job_id))
    while await bench.run_next("work"):
        pass
    assert bench.handler.handled == ["a 1", "b 1"]
    assert [each.job.id for each in await bench.engine.jobs_in_thread(10, 7)] == ["b", "a"]
    assert await bench.state("a") is JobState.DONE


async def test_what_steers_has_a_lane_of_its_own(bench: Bench) -> None:
    await bench.engine.accept(a_job("work"))
    await bench.engine.accept(a_job("stop", command=Stop()))
    assert await bench.run_next("steer")
    assert not await bench.run_next("steer")
    assert bench.handler.handled == ["stop 1"]
    assert await bench.engine.live_ids() == {"work"}


async def test_a_held_job_runs_when_its_time_is_over_or_it_is_let_go(bench: Bench) -> None:
    await bench.engine.accept(a_job("a", number=1), held_seconds=60)
    await bench.engine.accept(a_job("b", number=2), held_seconds=60)
    assert not await bench.run_next("work")
    await bench.engine.release_hold("b")
    assert await bench.run_next("work")
    bench.clock.now += 61
    assert await bench.run_next("work")
    assert bench.handler.handled == ["b 1", "a 1"]


async def test_a_released_job_is_run_again_later_and_has_lost_no_attempt(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    bench.handler.dispositions = [JobReleased(held_seconds=5)]
    assert await bench.run_next("work")
    assert not await bench.run_next("work")
    bench.clock.now += 6
    assert await bench.run_next("work")
    assert bench.handler.handled == ["j1 1", "j1 1"]


async def test_a_parked_job_is_run_when_it_is_woken_or_its_time_is_over(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    bench.handler.dispositions = [JobParked(until=FOREVER), JobParked(until=bench.clock.now + 60)]
    assert await bench.run_next("work")
    assert await bench.state() is JobState.WAITING
    assert not await bench.run_next("work")
    assert await bench.engine.wake("j1")
    assert not await bench.engine.wake("j1")
    assert await bench.run_next("work")
    bench.clock.now += 61
    assert await bench.run_next("work")
    assert await bench.state() is JobState.DONE


async def test_a_job_does_not_wait_for_what_was_said_before_it_could(bench: Bench) -> None:
    await bench.engine.accept(a_job())

    async def send_stop() -> None:
        await bench.engine.send("j1", Signal(kind="stop", text="Stopped.", by="mona", id="s1"))

    bench.handler.meanwhile = send_stop
    bench.handler.dispositions = [JobParked(until=FOREVER), JobParked(until=FOREVER)]
    assert await bench.run_next("work")
    assert await bench.state() is JobState.QUEUED
    assert await bench.run_next("steer")
    assert await bench.state() is JobState.WAITING
    assert bench.handler.signals == ["s1"]


async def test_a_second_stop_runs_a_job_that_waits_after_the_first_one(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    bench.handler.dispositions = [JobParked(until=FOREVER), JobParked(until=FOREVER)]
    assert await bench.run_next("work")
    for signal_id in ("s1", "s2"):
        assert await bench.engine.send("j1", Signal(kind="stop", text="", by="mona", id=signal_id))
        assert await bench.run_next("steer")
    assert await bench.state() is JobState.DONE
    assert bench.handler.signals == ["s1", "s1", "s2"]


async def test_a_stop_that_comes_during_an_attempt_does_not_wait_for_the_delay_after_it(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    stop = Signal(kind="stop", text="", by="mona", id="s1")
    bench.handler.dispositions = [JobReleased(held_seconds=600.0), JobReleased(held_seconds=600.0)]
    bench.handler.meanwhile = lambda: bench.engine.send("j1", stop)
    assert await bench.run_next("work")
    assert await bench.run_next("steer")
    assert not await bench.run_next("steer")
    bench.clock.now += 600
    assert await bench.run_next("steer")
    assert await bench.state() is JobState.DONE


async def test_a_job_does_not_wait_for_what_was_answered_before_it_could(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    record = StoredRecord(bench.engine, "j1")
    given = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=Actor(id=1, login="mona"))
    waits = Request(kind="permission", request_id="7f3a", reason="", preview="", bound_to="a" * 40, until=FOREVER)
    await waiting.store_request(record, waits)
    assert await waiting.store_answer(record, given)
    assert not await waiting.store_answer(record, replace(given, approved=False))
    assert (await record.read()).approvals.answers.get(waits.request_id) == given
    bench.handler.dispositions = [JobParked(until=FOREVER, has_answer=has_answer("7f3a"))]
    assert await bench.run_next("work")
    assert await bench.state() is JobState.QUEUED


async def test_a_signal_is_kept_once_and_not_for_a_job_that_is_over(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    word = Signal(kind="message", text="mind the minus", by="mona", id="m1")
    assert await bench.engine.send("j1", word)
    assert await bench.engine.send("j1", word)
    assert await bench.run_next("work")
    assert bench.handler.signals == ["m1"]
    assert not await bench.engine.send("j1", replace(word, id="m2"))


async def test_a_job_that_nobody_runs_is_cancelled_with_words_that_are_told(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    with pytest.raises(TransitionError):
        await bench.engine.cancel("j1", JobState.WAITING, "")
    ending = RecordedEnding(state=JobState.STOPPED, body="The thread was closed.")
    assert await bench.engine.cancel("j1", JobState.STOPPED, "closed", record_ending=with_ending(ending))
    assert not await bench.engine.cancel("j1", JobState.STOPPED, "closed")
    assert (await StoredRecord(bench.engine, "j1").read()).ending == ending
    bench.handler.takes = [False]
    assert await bench.tell_next()
    bench.clock.now += 3600
    assert await bench.tell_next()
    assert not await bench.tell_next()
    assert bench.handler.reports == ["j1", "j1"]


async def test_a_job_whose_worker_died_while_it_told_the_ending_is_not_cancelled(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    done = RecordedEnding(state=JobState.DONE, body="Fixed.")
    await StoredRecord(bench.engine, "j1").update(lambda record: replace(record, ending=done))
    stopped = RecordedEnding(state=JobState.STOPPED, body="The App is gone.")
    assert not await bench.engine.cancel("j1", JobState.STOPPED, "gone", record_ending=with_ending(stopped))
    assert await bench.state() is JobState.QUEUED
    assert (await StoredRecord(bench.engine, "j1").read()).ending == done


async def test_an_ending_that_could_not_be_told_is_due_later(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    bench.handler.dispositions = [JobEnded(state=JobState.FAILED, reason="no", report_delay=120)]
    assert await bench.run_next("work")
    assert not await bench.tell_next()
    bench.clock.now += 121
    assert await bench.tell_next()
    assert bench.handler.reports == ["j1"]


async def test_records_are_of_jobs_that_are_known(bench: Bench) -> None:
    assert await StoredRecord(bench.engine, "j1").read() == JobRecord()
    with pytest.raises(QueueError, match="no job j1"):
        await StoredRecord(bench.engine, "j1").update(lambda record: record)


async def test_what_has_not_ended_is_found_by_thread_installation_and_repository(bench: Bench) -> None:
    await bench.engine.accept(a_job("a", number=1))
    await bench.engine.accept(a_job("b", number=2))
    assert await bench.run_next("work")
    assert [await bench.engine.is_live(10, number) for number in (1, 2)] == [False, True]
    assert [each.job.id for each in await bench.engine.live_jobs(30)] == ["b"]
    assert await bench.engine.live_jobs(30, [11]) == ()
    await bench.engine.check()


async def test_of_too_many_ended_jobs_the_oldest_are_forgotten(bench: Bench) -> None:
    for number in range(1, 4):
        await bench.engine.accept(a_job(f"j{number}", number=number))
        assert await bench.run_next("work")
        bench.clock.now += 60
    assert await bench.engine.sweep(30, most=2) == 1
    kept = [await bench.engine.get(f"j{number}") for number in range(1, 4)]
    assert [each.job.id if each else None for each in kept] == [None, "j2", "j3"]
    assert await bench.engine.sweep(30, most=2) == 0


async def test_jobs_that_ended_long_ago_are_forgotten_but_not_that_they_were(bench: Bench) -> None:
    await bench.engine.accept(a_job())
    assert await bench.run_next("work")
    bench.clock.now += 31 * 86400
    assert await bench.engine.sweep(30) == 1
    assert await bench.engine.get("j1") is None
    assert await StoredRecord(bench.engine, "j1").read() == JobRecord()
    assert not await bench.engine.accept(a_job())
