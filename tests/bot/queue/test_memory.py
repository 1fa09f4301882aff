"""The worker's side of the engine in memory: one job is seen through, and its ending told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

import pytest

from bot.domain.errors import QueueError
from bot.domain.job import JobState
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import Disposition, JobAttempt, JobEnded, JobParked, JobReleased, PendingReport
from bot.queue.records import Signal
from tests.builders import a_job
from tests.held_jobs import HeldJobs

DONE = JobEnded(state=JobState.DONE)


@dataclass
class Scripted:
    """Handles jobs as it is told to; GitHub takes an ending at the third time."""

    dispositions: list[Disposition] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    report_tries: list[int] = field(default_factory=list)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        self.handled.append(attempt.job.id)
        return self.dispositions.pop(0) if self.dispositions else DONE

    async def report(self, report: PendingReport) -> bool:
        self.report_tries.append(report.tries)
        return report.tries == 3


async def test_a_job_is_seen_through_behind_what_came_before_it_in_its_thread() -> None:
    engine, handler = InMemoryEngine(), Scripted()
    for name in ("a", "b", "c"):
        await engine.accept(a_job(name))
    assert (await engine.run_job(handler, "b")).state is JobState.DONE
    assert handler.handled == ["a", "b"]
    assert (await engine.run_job(handler, "a")).state is JobState.DONE
    assert handler.handled == ["a", "b"]
    with pytest.raises(QueueError, match="no job unknown"):
        await engine.run_job(handler, "unknown")


async def test_a_job_that_is_put_off_is_run_when_its_time_has_come() -> None:
    engine, handler = InMemoryEngine(), Scripted([JobReleased(held_seconds=0.05), JobReleased(held_seconds=0.05)])
    await engine.accept(a_job(), held_seconds=0.05)
    assert (await engine.run_job(handler, "j1")).state is JobState.DONE
    assert handler.handled == ["j1"] * 3


async def test_a_job_that_is_held_is_run_as_soon_as_it_is_to_stop() -> None:
    engine, handler = InMemoryEngine(), Scripted()
    await engine.accept(a_job(), held_seconds=3600)
    stop = Signal(kind="stop", text="Stopped.", by="mona", id="s1")
    async with asyncio.timeout(20):
        ended, _ = await asyncio.gather(engine.run_job(handler, "j1"), engine.send("j1", stop))
    assert ended.state is JobState.DONE


async def test_a_job_that_is_held_is_run_as_soon_as_it_is_let_go() -> None:
    engine, handler = InMemoryEngine(), Scripted()
    await engine.accept(a_job(), held_seconds=3600)
    ended, _ = await asyncio.gather(engine.run_job(handler, "j1"), engine.release_hold("j1"))
    assert ended.state is JobState.DONE


async def test_a_job_is_run_as_soon_as_another_of_its_thread_has_ended() -> None:
    engine, handler = InMemoryEngine(), Scripted()
    others = HeldJobs(engine)
    await engine.accept(a_job("other"))
    assert await others.begin() == "other"
    await engine.accept(a_job())
    ended, _ = await asyncio.gather(engine.run_job(handler, "j1"), others.end("other", DONE))
    assert ended.state is JobState.DONE


async def test_a_job_that_waits_for_a_person_is_given_back() -> None:
    engine, handler = InMemoryEngine(), Scripted([JobParked(until=10.0**12)])
    await engine.accept(a_job())
    assert (await engine.run_job(handler, "j1")).state is JobState.WAITING
    assert await engine.wake("j1")
    assert (await engine.run_job(handler, "j1")).state is JobState.DONE


async def test_a_job_that_is_cut_off_is_queued_again() -> None:
    engine = InMemoryEngine()
    jobs = HeldJobs(engine)
    await engine.accept(a_job())
    assert await jobs.begin() == "j1"
    await jobs.cut_off("j1")
    stored = await engine.get("j1")
    assert stored is not None
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await engine.run_job(Scripted(), "j1")).state is JobState.DONE


@pytest.mark.parametrize(("seconds", "tries"), [(10.0**6, [1, 2, 3]), (1.0, [1])])
async def test_an_ending_is_told_again_after_a_pause_as_long_as_there_is_time(seconds: float, tries: list[int]) -> None:
    clock = count(0.0, 40.0).__next__  # so much time passes that nobody waits
    engine, handler = InMemoryEngine(clock=clock), Scripted([JobEnded(state=JobState.FAILED, report_delay=0.0)])
    await engine.accept(a_job())
    await engine.run_job(handler, "j1")
    await engine.report_ends(handler, until=clock() + seconds)
    assert handler.report_tries == tries
