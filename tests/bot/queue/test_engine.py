"""Jobs through DBOS: in SQLite and PostgreSQL, in the order of their threads, each once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from bot.domain.commands import ShowStatus, Stop
from bot.domain.errors import QueueError, TransitionError
from bot.domain.job import LIVE_STATES, Actor, JobState
from bot.jobs.record import ApprovalAnswer, ApprovalsRecord, RecordedEnding, StoredRecord, has_answer, with_ending
from bot.queue import transitions
from bot.queue.protocols import JobAttempt, JobEnded, JobParked, JobReleased, PendingReport
from bot.queue.records import Backlog, Signal
from bot.queue.store import Transaction
from tests.bot.queue.running import SECONDS, Running
from tests.builders import a_job
from tests.durable import is_owed, signals_of
from tests.waiting import eventually

T = TypeVar("T")


async def test_a_job_and_its_delivery_are_accepted_once(running: Running) -> None:
    assert await running.engine.accept(a_job("j1"))
    assert not await running.engine.accept(a_job("j1"))
    assert not await running.engine.accept(replace(a_job("j2"), delivery_id=a_job("j1").delivery_id))
    assert (await running.engine.counts())[JobState.QUEUED] == 1


async def test_the_backlog_counts_what_has_not_ended_and_ages_what_was_never_begun(running: Running) -> None:
    running.handler.dispositions["a"] = [JobParked(until=time.time() + 1000)]
    await running.engine.accept(a_job("a"))
    running.start()
    await running.until_state("a", JobState.WAITING)
    await running.engine.accept(a_job("b", number=8), held_seconds=1000.0)

    async def aged() -> Backlog | None:
        found = await running.engine.backlog()
        return found if found.oldest_seconds > 0 else None

    found: Backlog = await eventually(aged)
    assert found.by_state == {JobState.QUEUED: 1, JobState.RUNNING: 0, JobState.WAITING: 1}
    assert found.oldest_seconds < 60
    for job_id in ("a", "b"):
        assert await running.engine.cancel(job_id, JobState.STOPPED, "the test is over")
    empty = dict.fromkeys(LIVE_STATES, 0)
    assert await running.engine.backlog() == Backlog(by_state=empty, oldest_seconds=0.0)


async def test_of_many_who_accept_the_same_job_at_once_one_does(running: Running) -> None:
    accepted = await asyncio.gather(*(running.engine.accept(a_job("j1")) for _ in range(8)))
    assert sorted(accepted) == [False] * 7 + [True]


async def test_work_of_a_thread_runs_in_its_order_and_each_job_once(running: Running) -> None:
    for job_id in ("a", "b", "c"):
        await running.engine.accept(a_job(job_id))
    running.start()
    await running.until_state("c", JobState.DONE)
    assert running.handler.handled == ["a 1", "b 1", "c 1"]
    assert [each.job.id for each in await running.engine.jobs_in_thread(10, 7)] == ["c", "b", "a"]


async def test_jobs_of_different_threads_run_side_by_side(running: Running) -> None:
    together = asyncio.Barrier(2)

    async def meet(_: JobAttempt) -> None:
        await together.wait()

    running.handler.doing = {"a": meet, "b": meet}
    for number, job_id in enumerate(("a", "b")):
        await running.engine.accept(a_job(job_id, number=number + 1))
    running.start()
    for job_id in ("a", "b"):
        await running.until_state(job_id, JobState.DONE)


async def test_what_steers_does_not_wait_for_work(running: Running) -> None:
    gone = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        await gone.wait()

    running.handler.doing = {"work": wait}
    await running.engine.accept(a_job("work"))
    running.start(jobs_at_once=1)
    await running.until_state("work", JobState.RUNNING)
    await running.engine.accept(a_job("stop", command=Stop()))
    await running.until_state("stop", JobState.DONE)
    assert await running.engine.live_ids() == {"work"}
    gone.set()
    await running.until_state("work", JobState.DONE)


async def test_a_held_job_runs_when_it_is_let_go(running: Running) -> None:
    await running.engine.accept(a_job("a"), held_seconds=3600)
    await running.engine.accept(a_job("b"))
    await running.engine.accept(a_job("elsewhere", number=8))
    running.start()
    await running.until_state("elsewhere", JobState.DONE)
    assert running.handler.handled == ["elsewhere 1"]
    await running.engine.release_hold("a")
    await running.until_state("b", JobState.DONE)
    assert running.handler.handled == ["elsewhere 1", "a 1", "b 1"]


async def test_a_held_job_runs_when_its_time_is_over(running: Running) -> None:
    await running.engine.accept(a_job("a"), held_seconds=0.3)
    running.start()
    await running.until_state("a", JobState.DONE)


async def test_a_released_job_is_run_again_and_has_lost_no_attempt(running: Running) -> None:
    running.handler.dispositions = {"j1": [JobReleased(held_seconds=0.2)]}
    await running.engine.accept(a_job())
    running.start()
    await running.until_state("j1", JobState.DONE)
    assert running.handler.handled == ["j1 1", "j1 1"]


async def test_a_parked_job_holds_up_nobody_and_is_run_when_it_is_woken(running: Running) -> None:
    running.handler.dispositions = {"a": [JobParked(until=time.time() + 3600)]}
    for job_id in ("a", "b"):
        await running.engine.accept(a_job(job_id))
    running.start()
    await running.until_state("b", JobState.DONE)
    await running.until_state("a", JobState.WAITING)
    assert await running.engine.wake("a")
    assert not await running.engine.wake("a")
    await running.until_state("a", JobState.DONE)
    assert running.handler.handled == ["a 1", "b 1", "a 1"]


async def test_a_parked_job_that_is_stopped_waits_for_no_place(running: Running) -> None:
    waits, is_stopped = JobParked(until=time.time() + 3600), asyncio.Event()
    running.handler.dispositions = {"a": [waits, JobEnded(state=JobState.STOPPED)]}
    running.handler.doing = {name: lambda _: is_stopped.wait() for name in "bc"}
    await running.engine.accept(a_job("a", number=1))
    running.start(jobs_at_once=1)
    await running.until_state("a", JobState.WAITING)
    # Fills the place of the installation and the extra one.
    for number, name in enumerate("bc", start=2):
        await running.engine.accept(replace(a_job(name, number=number), installation=number))
        await running.until_state(name, JobState.RUNNING)
    await running.engine.accept(a_job("d", number=4))
    assert await running.engine.send("a", Signal(kind="stop", text="", by="mona", id="s1"))
    await running.until_state("a", JobState.STOPPED)
    assert await running.engine.live_ids() == set("bcd")
    is_stopped.set()
    await running.until_state("d", JobState.DONE)


async def test_stops_of_many_people_leave_a_place_for_commands(running: Running) -> None:
    stopped, is_over = list("abcd"), asyncio.Event()
    running.handler.dispositions = {name: [JobParked(until=time.time() + 3600)] for name in stopped}
    for number, name in enumerate(stopped, start=1):
        await running.engine.accept(replace(a_job(name, number=number), actor=Actor(id=number, login=name)))
    running.start()
    for name in stopped:
        await running.until_state(name, JobState.WAITING)
    running.handler.doing = {name: lambda _: is_over.wait() for name in stopped}
    for name in stopped:
        assert await running.engine.send(name, Signal(kind="stop", text="", by="mona", id="s1"))

    async def fill_places() -> bool:
        return (await running.engine.counts())[JobState.RUNNING] == 2

    await running.until(fill_places)
    await running.engine.accept(a_job("e", command=ShowStatus(), number=9))
    await running.until_state("e", JobState.DONE)
    assert (await running.engine.counts())[JobState.RUNNING] == 2
    is_over.set()
    for name in stopped:
        await running.until_state(name, JobState.DONE)


async def test_a_parked_job_is_run_when_its_time_is_over(running: Running) -> None:
    running.handler.dispositions = {"j1": [JobParked(until=time.time() + 0.5)]}
    await running.engine.accept(a_job())
    running.start()
    await running.until_state("j1", JobState.DONE)
    assert running.handler.handled == ["j1 1", "j1 1"]


async def test_a_job_does_not_wait_for_what_it_has_been_told(running: Running) -> None:
    async def answered(attempt: JobAttempt) -> None:
        answer = ApprovalAnswer(request_id="abc", approved=True, note="", by=attempt.job.actor)
        record = StoredRecord(running.engine, "j1")
        await record.update(lambda stored: replace(stored, approvals=ApprovalsRecord(answers={"abc": answer})))

    running.handler.doing = {"j1": answered}
    running.handler.dispositions = {"j1": [JobParked(until=time.time() + 3600, has_answer=has_answer("abc"))]}
    await running.engine.accept(a_job())
    running.start()
    await running.until_state("j1", JobState.DONE)


async def test_a_signal_reaches_a_job_under_way_once(running: Running) -> None:
    async def wait(_: JobAttempt) -> None:
        async def has_both_signals() -> bool:
            return running.handler.signals == ["early", "late"]

        await running.until(has_both_signals)

    running.handler.doing = {"j1": wait}
    await running.engine.accept(a_job())
    early = Signal(kind="message", text="x", by="mona", id="early")
    assert await running.engine.send("j1", early)
    assert await running.engine.send("j1", early)
    running.start()
    await running.until_state("j1", JobState.RUNNING)
    assert await running.engine.send("j1", replace(early, id="late"))
    await running.until_state("j1", JobState.DONE)
    assert running.handler.signals == ["early", "late"]
    assert not await running.engine.send("j1", replace(early, id="too late"))


async def test_words_that_no_database_takes_are_kept_without_what_it_does_not_take(running: Running) -> None:
    await running.engine.accept(a_job())
    word = Signal(kind="message", text="a\0b\ud800c ä", by="mona", id="s1")
    assert await running.engine.send("j1", word)
    assert await signals_of(running.engine, "j1") == [replace(word, text="a\ufffdb?c ä")]
    assert await running.engine.cancel("j1", JobState.STOPPED, "no such file: \udce4")
    stored = await running.engine.get("j1")
    assert stored is not None
    assert stored.reason == "no such file: ?"


async def test_a_queued_job_can_be_ended_and_its_ending_is_told_until_it_is_taken(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "report_pause", lambda _tries: 0.1)
    running.handler.takes = [False, True]
    await running.engine.accept(a_job("a"), held_seconds=3600)
    await running.engine.accept(a_job("b"))
    ending = RecordedEnding(state=JobState.STOPPED, body="Stopped.")
    assert await running.engine.cancel("a", JobState.STOPPED, "said so", record_ending=with_ending(ending))
    assert not await running.engine.cancel("a", JobState.STOPPED, "again")
    running.start()
    await running.until_state("b", JobState.DONE)

    async def has_reported() -> bool:
        return running.handler.reports == ["a 1", "a 2"]

    await running.until(has_reported)
    assert (await StoredRecord(running.engine, "a").read()).ending == ending
    assert running.handler.handled == ["b 1"]


async def test_only_a_last_state_ends_a_job(running: Running) -> None:
    await running.engine.accept(a_job())
    with pytest.raises(TransitionError):
        await running.engine.cancel("j1", JobState.WAITING, "")
    with pytest.raises(QueueError, match="no job"):
        await running.engine.cancel("j2", JobState.STOPPED, "")


async def test_a_worker_that_is_stopped_gives_its_jobs_back(running: Running) -> None:
    begun = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        begun.set()
        await asyncio.Event().wait()

    running.handler.doing = {"j1": wait}
    await running.engine.accept(a_job())
    running.start()
    await begun.wait()
    await running.stop()
    await running.until_state("j1", JobState.QUEUED)
    running.handler.doing = {}
    running.start()
    await running.until_state("j1", JobState.DONE)
    assert running.handler.handled == ["j1 1", "j1 1"]


async def test_an_ending_whose_telling_is_cut_by_a_stop_is_told_by_the_next_worker(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hang(_: PendingReport) -> bool:
        begun.set()
        await asyncio.Event().wait()
        return True

    running.handler.dispositions = {"j1": [JobEnded(state=JobState.FAILED, report_delay=0.0)]}
    await running.engine.accept(a_job())
    with monkeypatch.context() as patch:
        patch.setattr(running.handler, "report", hang)
        running.start()
        await asyncio.wait_for(begun.wait(), SECONDS)
        await running.stop()
    assert await is_owed(running.engine, "j1")
    running.start()

    async def has_reported() -> bool:
        return running.handler.reports == ["j1 2"]

    await running.until(has_reported)


async def test_a_job_that_begins_while_its_worker_stops_is_given_back(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = running.store.run, asyncio.Event()

    async def slow(operation: Callable[[Transaction], T]) -> T:
        result = await run(operation)
        stored = await running.engine.get("j1")
        if stored is not None and stored.state is JobState.RUNNING:
            begun.set()
            await stopping()
        return result

    async def stopping() -> None:
        while running.worker is not None and not running.worker.draining:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)

    await running.engine.accept(a_job())
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "run", slow)
        running.start()
        await asyncio.wait_for(begun.wait(), SECONDS)
        await running.stop()
    await running.until_state("j1", JobState.QUEUED)
    running.start()
    await running.until_state("j1", JobState.DONE)
    assert running.handler.handled == ["j1 1"]


async def test_what_ended_long_ago_is_forgotten_but_for_its_id(running: Running) -> None:
    running.handler.dispositions = {"j1": [JobEnded(state=JobState.REFUSED, reason="no")]}
    await running.engine.accept(a_job())
    running.start()
    await running.until_state("j1", JobState.REFUSED)
    assert await running.engine.sweep(1.0) == 0
    assert await running.engine.sweep(-1.0) == 1
    assert await running.engine.get("j1") is None
    assert not await running.engine.accept(a_job())


async def test_workflows_that_ended_a_day_ago_are_deleted_and_no_others(running: Running) -> None:
    running.handler.dispositions["j2"] = [JobParked(until=time.time() + 9999)]
    running.start()
    for number in (1, 2):
        await running.engine.accept(a_job(f"j{number}", number=number))
    await running.until_state("j1", JobState.DONE)
    await running.until_state("j2", JobState.WAITING)
    client = running.store.workflows._client

    async def ids() -> set[str]:
        return {each.workflow_id for each in await client.list_workflows_async(load_input=False, load_output=False)}

    async def ended() -> bool:
        done = await client.list_workflows_async(status="SUCCESS", load_input=False, load_output=False)
        return len(done) == 2

    await running.until(ended)
    await running.engine.sweep(0)
    assert {"j1", "j2"} <= await ids()
    running.store.clock = lambda: time.time() + 24 * 3600 + 5
    await running.engine.sweep(9999)
    assert await ids() == {"j2-wake-1"}
    running.store.clock = time.time
    assert not await running.engine.accept(a_job("j1", number=1))
    await running.engine.wake("j2")
    await running.until_state("j2", JobState.DONE)


async def test_the_database_is_tried_by_writing(running: Running) -> None:
    await running.engine.check()
    await running.engine.check()
