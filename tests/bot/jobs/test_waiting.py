"""Requests that a job waits for."""

from __future__ import annotations

import time

import pytest

from agent_runtime import Outcome, Status
from bot.domain.commands import Fix, Plan
from bot.domain.job import Actor
from bot.jobs import waiting
from bot.jobs.record import ApprovalAnswer, Request, RequestView, StoredRecord, decode_record, encode_record
from bot.jobs.steering import job_from_plan
from bot.queue.memory import InMemoryEngine
from bot.queue.records import decode_job, encode_job
from tests.builders import a_job

NOT_UTF8 = "+caf\udce9 and half a smile \ud83d"


async def test_what_waits_and_its_answer_are_found_as_they_were_kept() -> None:
    request = Request(
        kind="publication", request_id="7f3a7f3a", reason="why", preview=NOT_UTF8, bound_to="a" * 40, until=1.5
    )
    given = ApprovalAnswer(request_id="7f3a7f3a", approved=True, note=NOT_UTF8, by=Actor(id=1, login="mona"))
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    record = StoredRecord(engine, "j1")
    await waiting.store_request(record, request)
    assert (await record.read()).approvals.waiting == request
    assert await waiting.store_answer(record, given)
    assert (await record.read()).approvals.answers.get(request.request_id) == given
    kept = await StoredRecord(engine, "j1").read()
    assert decode_record(encode_record(kept)) == kept


def test_an_approved_plan_can_be_stored_whatever_the_model_wrote_in_it() -> None:
    made = job_from_plan(a_job("j1", command=Plan(goal="mend it")), NOT_UTF8)
    assert decode_job(encode_job(made)).command == Fix(goal="mend it", plan="+caf? and half a smile ?")


@pytest.mark.parametrize(
    ("written_at", "arrived", "read"),
    [
        ("2026-11-22T10:00:05Z", 105.0, True),
        ("2026-11-22T10:00:04Z", 104.5, True),
        ("2026-11-22T10:00:03Z", 105.0, False),
        ("2026-11-22T10:00:04Z", 103.9, False),
        ("", 105.0, False),
    ],
)
def test_an_answer_is_to_what_its_author_could_read(*, written_at: str, arrived: float, read: bool) -> None:
    shown = RequestView(request_id="7f3a91c0", kind="permission", at="2026-11-22T10:00:04Z", since=104.0)
    assert shown.is_visible_at(written_at=written_at, arrived=arrived) is read


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
    outage = await waiting.record_outage(record, outcome, patience=patience, chance=lambda: 0.5)
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
    assert not (await record.read()).is_waiting_for_model(1.0)
    outage = await waiting.record_outage(record, down(), patience=HOUR)
    assert outage is not None
    assert (await record.read()).is_waiting_for_model(outage.until)
    assert not (await record.read()).is_waiting_for_model(outage.until + 60)
