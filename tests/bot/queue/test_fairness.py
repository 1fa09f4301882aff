"""Whose jobs come next: nobody's keep another's waiting, however many they are."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.domain.commands import Stop
from bot.domain.job import Actor, Job, JobState
from bot.queue.protocols import JobAttempt
from tests.bot.queue.running import Running
from tests.bot.queue.test_takeover import Machines, machines
from tests.builders import a_job

__all__ = ["machines"]

_WHALE = 1000


def _of(installation: int, name: str, number: int) -> Job:
    return replace(a_job(name, number=number), installation=installation)


async def _accept_whale(running: Running) -> None:
    await asyncio.gather(*(running.engine.accept(_of(1, f"whale{each}", each)) for each in range(_WHALE)))


async def test_an_installation_with_very_many_jobs_leaves_places_for_others(running: Running) -> None:
    at_once, others = 8, 2
    gone = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        await gone.wait()

    running.handler.doing = {f"whale{each}": wait for each in range(_WHALE)}
    await _accept_whale(running)
    running.start(jobs_at_once=at_once)

    async def all_run() -> bool:
        return len(running.handler.handled) == at_once

    await running.until(all_run)
    # All but one of the others' jobs go on for as long as the many.
    for number in range(others):
        name = f"other{number}"
        running.handler.doing |= {name: wait} if number < others - 1 else {}
        await running.engine.accept(_of(2 + number, name, _WHALE + number))
        await running.until_state(name, JobState.RUNNING if number < others - 1 else JobState.DONE)
    assert len(running.handler.handled) == at_once + others
    assert (await running.engine.counts())[JobState.QUEUED] == _WHALE - at_once


async def test_an_installation_whose_jobs_flow_lets_anothers_first_job_in_within_a_poll_or_two(
    running: Running,
) -> None:
    at_once = 4
    await _accept_whale(running)
    running.start(jobs_at_once=at_once)

    async def flows() -> bool:
        return len(running.handler.handled) > 2 * at_once

    await running.until(flows)
    await running.engine.accept(_of(2, "other", _WHALE))
    before = len(running.handler.handled)
    await running.until_state("other", JobState.DONE)
    # Jobs that end at once: each look at the queue takes as many of the whale's as it may have at a time.
    assert running.handler.handled.index("other 1") - before <= 4 * at_once


async def test_whoever_has_many_words_under_way_lets_anothers_through(running: Running) -> None:
    gone = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        await gone.wait()

    flood, other = Actor(id=1, login="flood"), Actor(id=2, login="other")
    for number in range(20):
        running.handler.doing[f"f{number}"] = wait
        await running.engine.accept(replace(a_job(f"f{number}", number=number, command=Stop()), actor=flood))
    running.start()

    async def several_run() -> bool:
        return len(running.handler.handled) >= 2

    await running.until(several_run)
    await running.engine.accept(replace(a_job("o1", number=99, command=Stop()), actor=other))
    await running.until_state("o1", JobState.DONE)
    assert (await running.engine.counts())[JobState.RUNNING] == 2


@pytest.mark.slow
async def test_of_several_workers_one_has_each_job_and_each_thread(running: Running, machines: Machines) -> None:
    jobs = [f"j{each}" for each in range(12)]
    for number, job_id in enumerate(jobs):
        await running.engine.accept(a_job(job_id, number=number % 4))
    machines.let_go()
    for name in ("first", "second"):
        machines.start(name)
    for job_id in jobs:
        await running.until_state(job_id, JobState.DONE)
    seen = [line.split()[:2] for line in machines.log()]
    for thread in range(4):
        mine = [each for each in seen if int(each[1][1:]) % 4 == thread]
        assert mine == [[what, job_id] for job_id in jobs[thread::4] for what in ("begin", "end")]
