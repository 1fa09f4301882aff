"""The worker, its patience with GitHub, and acknowledgements."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Replied, SessionInUseError, SessionUnavailableError, Usage
from bot.domain.errors import BotError, OtherVersionError, QueueError
from bot.domain.job import Job, JobState, Origin
from bot.github.types import GitHubError
from bot.jobs import acknowledger
from bot.jobs import pipeline as worker_module
from bot.jobs.context import JobContext, JobContextFactory, JobServices
from bot.jobs.faults import Patience
from bot.jobs.pipeline import Worker
from bot.jobs.record import CheckRecord, JobRecord, ServiceOutage, StoredRecord
from bot.publishing.markdown import Allowlist
from bot.publishing.outcome import JobOutcome
from bot.publishing.redact import Redactor
from bot.queue.memory import InMemoryEngine
from bot.queue.records import StoredJob
from tests.builders import a_job
from tests.job_contexts import context_of
from tests.waiting import eventually

DOWN = GitHubError("read octo/calc", 502, "Bad gateway", "Try again later.")
REFUSED = GitHubError("read octo/calc", 422, "Unprocessable", "Check it.")


class _Contexts:
    """Makes no context of a job, but raises what it is given."""

    def __init__(self, queue: InMemoryEngine, error: Exception | None) -> None:
        self.queue = queue
        self.services = SimpleNamespace(
            marker=lambda job: f"mark of {job.id}",
            allowed=lambda _job: Allowlist(
                server="https://github.com", repo="octo/calc", number=7, login="hubot-owner"
            ),
            history=self,
            session_events=lambda _job: [Replied(step=1, text="Hi.", usage=Usage(requests=1, cost_usd=0.5))],
            strip_local_paths=lambda text: text,
            redactor=Redactor([]),
        )
        self.services.store_log = partial(JobServices.store_log, cast("Any", self.services))
        self.logs: dict[str, float | None] = {}
        self._error = error

    async def load_log(self, _job_id: str) -> bytes | None:
        return None

    async def save_log(self, job: Job, _body: bytes, usage: Usage) -> None:
        self.logs[job.id] = usage.cost_usd

    @asynccontextmanager
    async def open(self, _: Job) -> AsyncIterator[JobContext]:
        if self._error is not None:
            raise self._error
        yield context_of(self.queue, a_job())


async def test_a_job_that_is_given_up_keeps_its_log_and_its_cost() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    contexts = _Contexts(engine, ZeroDivisionError())
    await engine.run_next(Worker(cast("JobContextFactory", contexts), Patience()))
    assert contexts.logs == {"j1": 0.5}


async def _ran(error: Exception, job: Job | None = None) -> tuple[InMemoryEngine, StoredJob]:
    """A job's first attempt, which meets an error before it has begun."""
    clock = [0.0]
    engine, job = InMemoryEngine(clock=lambda: clock[0]), job or a_job()
    await engine.accept(job)
    contexts = cast("JobContextFactory", _Contexts(engine, error))
    await engine.run_next(Worker(contexts, Patience(longest_pause=30.0)))
    stored = await engine.get(job.id)
    assert stored is not None
    return engine, stored


@pytest.mark.parametrize("error", [DOWN, OtherVersionError("a newer version's")])
async def test_a_job_that_cannot_go_on_here_and_now_is_put_off_and_not_charged(error: BotError) -> None:
    engine, stored = await _ran(error)
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await StoredRecord(engine, "j1").read()).ending is None
    # It is held: it is not the next at once.
    assert not await engine.run_next(Worker(cast("JobContextFactory", None), Patience()))


async def test_a_definite_answer_of_github_ends_the_job() -> None:
    engine, stored = await _ran(REFUSED)
    assert (stored.state, stored.reason) == (JobState.FAILED, str(REFUSED))
    ending = (await StoredRecord(engine, "j1").read()).ending
    assert ending is not None
    assert "Could not read octo/calc" in ending.body


def _with_outage(outage: ServiceOutage, record: JobRecord) -> JobRecord:
    return replace(record, service_outage=outage)


async def test_a_job_is_put_off_no_longer_than_the_patience() -> None:
    now = time.time()
    over = ServiceOutage(
        service="GitHub", reason="GitHub answered 502.", since=now - 9.0, retry_at=now - 2.0, until=now - 1.0
    )
    states = []
    for outage in (
        over,
        replace(over, retry_at=now + 50.0),
    ):  # recorded by this attempt, which the patience still covers
        engine = InMemoryEngine()
        await engine.accept(a_job())
        await StoredRecord(engine, "j1").update(partial(_with_outage, outage))
        await engine.run_next(Worker(cast("JobContextFactory", _Contexts(engine, DOWN)), Patience(seconds=8.0)))
        stored = await engine.get("j1")
        assert stored is not None
        states.append(stored.state)
    assert states == [JobState.FAILED, JobState.QUEUED]


async def test_a_fault_of_ours_fails_one_job_whose_ending_is_kept_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, stored = await _ran(ZeroDivisionError("secret detail"))
    assert stored.state is JobState.FAILED
    ending = (await StoredRecord(engine, "j1").read()).ending
    assert ending is not None
    assert ending.state is JobState.FAILED
    assert "secret detail" not in f"{stored.reason} {ending.body}"
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("requests", [0, 1])
async def test_after_a_fault_of_ours_only_what_people_see_ends_of_a_job_that_nobody_asked_for(requests: int) -> None:
    engine, job = InMemoryEngine(), replace(a_job(), origin=Origin(kind="ci", id=1))
    await engine.accept(job)
    check = CheckRecord(head_sha="a" * 40, requests=requests)
    await StoredRecord(engine, "j1").update(lambda record: replace(record, check=check))
    await engine.run_next(Worker(cast("JobContextFactory", _Contexts(engine, ZeroDivisionError())), Patience()))
    ending = (await StoredRecord(engine, "j1").read()).ending
    assert (ending is not None and ending.proven) == bool(requests)


async def test_an_error_that_is_meant_for_people_is_told_to_them() -> None:
    engine, stored = await _ran(BotError("the disk is full"))
    ending = (await StoredRecord(engine, "j1").read()).ending
    assert stored.reason == "the disk is full"
    assert ending is not None
    assert "the disk is full" in ending.body


@pytest.mark.parametrize("error", [SessionUnavailableError("no database"), SessionInUseError("another one has it")])
async def test_a_job_whose_log_cannot_be_kept_is_put_off_and_not_charged(error: Exception) -> None:
    engine, stored = await _ran(error)
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await StoredRecord(engine, "j1").read()).ending is None


async def test_when_the_queue_itself_fails_the_job_is_left_as_it_is() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    worker = Worker(cast("JobContextFactory", _Contexts(engine, QueueError("locked"))), Patience())
    with pytest.raises(QueueError):
        await engine.run_next(worker)
    stored = await engine.get("j1")
    assert stored is not None
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await StoredRecord(engine, "j1").read()).ending is None


async def test_a_job_is_not_failed_for_a_database_that_is_gone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose_database(_: JobContext) -> JobOutcome:
        raise QueueError("the server is gone")

    monkeypatch.setattr(worker_module, "run_job", lose_database)
    engine = InMemoryEngine()
    await engine.accept(a_job())
    contexts = _Contexts(engine, None)
    with pytest.raises(QueueError, match="gone"):
        await engine.run_next(Worker(cast("JobContextFactory", contexts), Patience()))
    stored = await engine.get("j1")
    assert stored is not None
    assert stored.state is JobState.QUEUED
    assert (await StoredRecord(engine, "j1").read()).ending is None


@dataclass(slots=True)
class _SilentContexts:
    """Contexts whose GitHub never answers."""

    queue: InMemoryEngine = field(default_factory=InMemoryEngine)
    job_ids: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[JobContext]:
        self.job_ids.append(job.id)
        await asyncio.Event().wait()
        yield cast("Any", None)


async def test_who_waits_in_line_to_be_greeted_gives_up_in_time_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = _SilentContexts()
    greeting = acknowledger.Acknowledger(cast("JobContextFactory", contexts))
    for number in range(acknowledger.MAX_CONCURRENT):
        greeting.acknowledge(a_job(f"j{number}"))
    await eventually(lambda: len(contexts.job_ids) == acknowledger.MAX_CONCURRENT)
    monkeypatch.setattr(acknowledger, "REACTION_SECONDS", 0.1)
    greeting.acknowledge(a_job("late"))
    await eventually(lambda: "not acknowledged: GitHub did not answer in time" in caplog.text, within=5.0)
    assert "late" not in contexts.job_ids
    await greeting.close()


@dataclass(slots=True)
class _BrokenQueue:
    """A queue whose database has gone."""

    released: list[str] = field(default_factory=list)

    async def release_hold(self, job_id: str) -> None:
        self.released.append(job_id)
        raise QueueError("the job database is gone")


@dataclass(slots=True)
class _BrokenContexts:
    """Contexts that cannot be opened, either."""

    queue: _BrokenQueue = field(default_factory=_BrokenQueue)

    def open(self, _: Job) -> AbstractAsyncContextManager[JobContext]:
        raise QueueError("the job database is gone")


@pytest.mark.parametrize("waiting", [0, acknowledger.MAX_WAITING])
async def test_a_database_that_is_gone_fails_no_greeting(
    waiting: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unheard = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    monkeypatch.setattr(acknowledger, "MAX_WAITING", acknowledger.MAX_WAITING - waiting)
    contexts = _BrokenContexts()
    greeting = acknowledger.Acknowledger(cast("JobContextFactory", contexts))
    greeting.acknowledge(a_job())
    await eventually(lambda: "begins only in some seconds" in caplog.text)
    await greeting.close()
    gc.collect()
    assert contexts.queue.released == ["j1"]
    assert unheard == []
