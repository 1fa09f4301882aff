"""The greeter gives up in time: once it has, the job is the worker's, and so is its comment."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from bot.domain.errors import QueueError
from bot.domain.job import Job
from bot.jobs import pipeline
from bot.jobs.context import JobContext, JobContextFactory
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.waiting import eventually


@dataclass(slots=True)
class _SilentContexts:
    """Contexts whose GitHub never answers."""

    queue: InMemoryEngine = field(default_factory=InMemoryEngine)
    asked: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def opened(self, job: Job) -> AsyncIterator[JobContext]:
        self.asked.append(job.id)
        await asyncio.Event().wait()
        yield cast("Any", None)


async def test_who_waits_in_line_to_be_greeted_gives_up_in_time_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = _SilentContexts()
    greeting = pipeline.Acknowledger(cast("JobContextFactory", contexts))
    for number in range(pipeline.AT_ONCE):
        greeting.acknowledge(a_job(f"j{number}"))
    await eventually(lambda: len(contexts.asked) == pipeline.AT_ONCE)
    monkeypatch.setattr(pipeline, "GREET_SECONDS", 0.1)
    greeting.acknowledge(a_job("late"))
    await eventually(lambda: "not acknowledged: GitHub did not answer in time" in caplog.text, within=5.0)
    assert "late" not in contexts.asked
    await greeting.close()


@dataclass(slots=True)
class _BrokenQueue:
    """A queue whose database has gone."""

    asked: list[str] = field(default_factory=list)

    async def unhold(self, job_id: str) -> None:
        self.asked.append(job_id)
        raise QueueError("the job database is gone")


@dataclass(slots=True)
class _BrokenContexts:
    """Contexts that cannot be opened, either."""

    queue: _BrokenQueue = field(default_factory=_BrokenQueue)

    def opened(self, _: Job) -> AbstractAsyncContextManager[JobContext]:
        raise QueueError("the job database is gone")


@pytest.mark.parametrize("waiting", [0, pipeline.WAITING])
async def test_a_database_that_is_gone_fails_no_greeting(
    waiting: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unheard = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    monkeypatch.setattr(pipeline, "WAITING", pipeline.WAITING - waiting)
    contexts = _BrokenContexts()
    greeting = pipeline.Acknowledger(cast("JobContextFactory", contexts))
    greeting.acknowledge(a_job())
    await eventually(lambda: "begins only in some seconds" in caplog.text)
    await greeting.close()
    gc.collect()
    assert contexts.queue.asked == ["j1"]
    assert unheard == []
