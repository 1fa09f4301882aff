"""Two versions of Codepilot on one database."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.domain.errors import OtherVersionError
from bot.domain.job import JobState
from bot.jobs.record import (
    JobRecord,
    StoredRecord,
    encode_record,
)
from bot.queue import transitions
from bot.queue.store import JOBS, RECORDS
from tests.bot.queue.running import Running
from tests.builders import a_job


async def test_an_older_version_keeps_what_a_newer_one_has_added(running: Running) -> None:
    engine, store = running.engine, running.store
    await store.run(lambda tx: tx.rows.execute(sa.text("ALTER TABLE jobs ADD COLUMN priority INTEGER DEFAULT 3")))
    await engine.accept(a_job())
    newer = json.dumps({**json.loads(encode_record(JobRecord())), "queue_place": 7})
    await store.run(lambda tx: tx.rows.execute(RECORDS.insert().values(job_id="j1", body=newer)))
    running.start()
    await running.until_state("j1", JobState.DONE)
    await StoredRecord(engine, "j1").update(lambda record: replace(record, is_acknowledged=True))
    stored = json.loads(await store.run(lambda tx: tx.rows.execute(sa.select(RECORDS.c.body)).scalar_one()))
    assert (stored["queue_place"], stored["is_acknowledged"]) == (7, True)
    assert await store.run(lambda tx: tx.rows.execute(sa.text("SELECT priority FROM jobs")).scalar()) == 3


async def test_a_job_that_only_a_newer_version_can_read_is_left_to_it_and_then_runs(running: Running) -> None:
    engine, store = running.engine, running.store
    await engine.accept(a_job())
    readable = await store.run(lambda tx: tx.rows.execute(sa.select(JOBS.c.body)).scalar_one())
    await store.run(lambda tx: tx.rows.execute(JOBS.update().values(body='{"of": "a newer version"}')))
    assert await store.run(lambda tx: transitions.begin(tx, "j1", 1, "older")) is None
    await store.run(lambda tx: tx.rows.execute(JOBS.update().values(body=readable)))
    stored = await engine.get("j1")
    assert stored is not None
    assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
    await engine.release_hold("j1")
    running.start()
    await running.until_state("j1", JobState.DONE)


async def test_a_job_that_no_worker_could_read_for_a_day_is_given_up(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    engine, store = running.engine, running.store
    await engine.accept(a_job())
    await engine.accept(a_job("next"))
    unreadable = (
        JOBS.update()
        .where(JOBS.c.id == "j1")
        .values(body='{"id": "the words"}', enqueued_at=JOBS.c.enqueued_at - 25 * 3600)
    )
    await store.run(lambda tx: tx.rows.execute(unreadable))
    running.start()
    await running.until_state("next", JobState.DONE)
    assert (await engine.counts())[JobState.FAILED] == 1
    with pytest.raises(OtherVersionError, match=r"j1: .*command") as error:
        await engine.get("j1")
    assert "the words" not in f"{error.value} {caplog.text}"
