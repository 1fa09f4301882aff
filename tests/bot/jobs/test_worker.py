"""The worker: whatever a job comes to, no other job suffers for it, and its end is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Replied, SessionInUseError, SessionUnavailableError, Usage
from bot.domain.errors import BotError, OtherVersionError, QueueError
from bot.domain.job import Job, JobState, Origin
from bot.github.types import GitHubError
from bot.jobs import pipeline as worker_module
from bot.jobs.context import Ending, JobContext, JobContextFactory, JobServices
from bot.jobs.pipeline import Patience, Worker
from bot.publishing.markdown import Allowed
from bot.publishing.redact import Redactor
from bot.queue.memory import InMemoryEngine
from bot.queue.records import CheckRecord, Signal, Stored, StoredRecord
from tests.builders import a_job

DOWN = GitHubError("read octo/calc", 502, "Bad gateway", "Try again later.")
REFUSED = GitHubError("read octo/calc", 422, "Unprocessable", "Check it.")


class _Contexts:
    """Makes no context of a job, but raises what it is given."""

    def __init__(self, queue: InMemoryEngine, error: Exception | None) -> None:
        self.queue = queue
        self.services = SimpleNamespace(
            marker=lambda job: f"mark of {job.id}",
            allowed=lambda _job: Allowed(server="https://github.com", repo="octo/calc", number=7, login="hubot-owner"),
            history=self,
            session_events=lambda _job: [Replied(step=1, text="Hi.", usage=Usage(requests=1, cost_usd=0.5))],
            without_places=lambda text: text,
            redactor=Redactor([]),
        )
        self.services.keep_log = partial(JobServices.keep_log, cast("Any", self.services))
        self.logs: dict[str, float | None] = {}
        self._error = error

    async def log_of(self, _job_id: str) -> bytes | None:
        return None

    async def keep_log(self, job: Job, _body: bytes, *, cost_usd: float | None) -> None:
        self.logs[job.id] = cost_usd

    @asynccontextmanager
    async def opened(self, _: Job) -> AsyncIterator[JobContext]:
        if self._error is not None:
            raise self._error
        phases = SimpleNamespace(begin=lambda _name: None)
        yield cast("Any", SimpleNamespace(record=StoredRecord(self.queue, "j1"), phases=phases))


async def test_a_job_that_is_given_up_keeps_its_log_and_its_cost() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    contexts = _Contexts(engine, ZeroDivisionError())
    await engine.run_next(Worker(cast("JobContextFactory", contexts), Patience()))
    assert contexts.logs == {"j1": 0.5}


async def _ran(error: Exception, job: Job | None = None) -> tuple[InMemoryEngine, Stored]:
    """A job's first attempt, which meets an error before it has begun."""
    clock = [0.0]
    engine, job = InMemoryEngine(clock=lambda: clock[0]), job or a_job()
    await engine.accept(job)
    contexts = cast("JobContextFactory", _Contexts(engine, error))
    await engine.run_next(Worker(contexts, Patience(longest_pause=30.0)))
    stored = await engine.get(job.id)
    assert stored is not None
    return engine, stored


@pytest.mark.parametrize("error", [DOWN, REFUSED, OtherVersionError("a newer version's")])
async def test_a_job_that_cannot_go_on_here_and_now_is_put_off_and_not_charged(error: BotError) -> None:
    engine, stored = await _ran(error)
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await engine.record("j1")).ending is None
    # It is held: it is not the next at once.
    assert not await engine.run_next(Worker(cast("JobContextFactory", None), Patience()))


async def test_a_fault_of_ours_fails_one_job_whose_ending_is_kept_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, stored = await _ran(ZeroDivisionError("secret detail"))
    assert stored.state is JobState.FAILED
    ending = (await engine.record("j1")).ending
    assert ending is not None
    assert ending.state is JobState.FAILED
    assert "secret detail" not in f"{stored.reason} {ending.body}"
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("requests", [0, 1])
async def test_after_a_fault_of_ours_only_what_people_see_ends_of_a_job_that_nobody_asked_for(requests: int) -> None:
    engine, job = InMemoryEngine(), replace(a_job(), origin=Origin(kind="ci", id=1))
    await engine.accept(job)
    check = CheckRecord(head_sha="a" * 40, requests=requests)
    await engine.update("j1", lambda record: replace(record, check=check))
    await engine.run_next(Worker(cast("JobContextFactory", _Contexts(engine, ZeroDivisionError())), Patience()))
    ending = (await engine.record("j1")).ending
    assert (ending is not None and ending.proven) == bool(requests)


async def test_an_error_that_is_meant_for_people_is_told_to_them() -> None:
    engine, stored = await _ran(BotError("the disk is full"))
    ending = (await engine.record("j1")).ending
    assert stored.reason == "the disk is full"
    assert ending is not None
    assert "the disk is full" in ending.body


@pytest.mark.parametrize("error", [SessionUnavailableError("no database"), SessionInUseError("another one has it")])
async def test_a_job_whose_log_cannot_be_kept_is_put_off_and_not_charged(error: Exception) -> None:
    engine, stored = await _ran(error)
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await engine.record("j1")).ending is None


async def test_when_the_queue_itself_fails_the_job_is_left_as_it_is() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    worker = Worker(cast("JobContextFactory", _Contexts(engine, QueueError("locked"))), Patience())
    with pytest.raises(QueueError):
        await engine.run_next(worker)
    stored = await engine.get("j1")
    assert stored is not None
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    assert (await engine.record("j1")).ending is None


class _Cut:
    """Loses the database in the middle of a job."""

    def __init__(self, _: JobContext) -> None:
        self.steps, self.is_to_stop = 0, False

    def handle_signal(self, _: Signal) -> None:
        raise AssertionError

    async def run(self) -> Ending:
        raise QueueError("the server is gone")


async def test_a_job_is_not_failed_for_a_database_that_is_gone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "JobPipeline", _Cut)
    engine = InMemoryEngine()
    await engine.accept(a_job())
    contexts = _Contexts(engine, None)
    with pytest.raises(QueueError, match="gone"):
        await engine.run_next(Worker(cast("JobContextFactory", contexts), Patience()))
    stored = await engine.get("j1")
    assert stored is not None
    assert stored.state is JobState.QUEUED
    assert (await engine.record("j1")).ending is None
