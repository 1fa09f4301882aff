"""How long a job waits for a model service, and when it is tried again."""

from __future__ import annotations

import time

import pytest

from agent_runtime import Outcome, Status
from bot.jobs import approvals
from bot.queue.memory import InMemoryEngine
from bot.queue.records import StoredRecord
from tests.builders import a_job

HOUR = 3600.0


@pytest.fixture
async def record() -> StoredRecord:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    return StoredRecord(engine, job.id)


def down(*, steps: int = 1, retry_after: float | None = None) -> Outcome:
    return Outcome(status=Status.MODEL_UNAVAILABLE, reason="HTTP 503", steps=steps, retry_after=retry_after)


async def pause(record: StoredRecord, outcome: Outcome, patience: float = 6 * HOUR) -> float | None:
    """Minutes until the job is tried again."""
    outage = await approvals.wait_out(record, outcome, patience=patience, chance=lambda: 0.5)
    return None if outage is None else round((outage.until - time.time()) / 60)


async def test_pauses_grow_to_half_an_hour(record: StoredRecord) -> None:
    assert [await pause(record, down()) for _ in range(6)] == [2, 4, 8, 16, 30, 30]


async def test_a_service_that_asks_for_longer_is_obeyed(record: StoredRecord) -> None:
    assert await pause(record, down(retry_after=HOUR)) == 60
    assert await pause(record, down(retry_after=1.0)) == 4


async def test_a_run_that_got_further_has_seen_the_end_of_the_outage(record: StoredRecord) -> None:
    assert [await pause(record, down()) for _ in range(3)] == [2, 4, 8]
    assert await pause(record, down(steps=2)) == 2


async def test_patience_ends(record: StoredRecord) -> None:
    assert await pause(record, down(), patience=200.0) == 2
    assert await pause(record, down(), patience=200.0) is None
    assert await pause(record, down(retry_after=24 * HOUR)) is None


async def test_only_a_job_that_waits_for_that_moment_waits_for_the_model(record: StoredRecord) -> None:
    assert not await approvals.is_waited_out(record, 1.0)
    outage = await approvals.wait_out(record, down(), patience=HOUR)
    assert outage is not None
    assert await approvals.is_waited_out(record, outage.until)
    assert not await approvals.is_waited_out(record, outage.until + 60)
