"""The record of a job, and two versions of Codepilot that read and write it on one database."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.errors import OtherVersionError
from bot.domain.job import Actor, JobState
from bot.publishing.status_view import DeniedCall
from bot.queue import transitions
from bot.queue.records import (
    ApprovalAnswer,
    CommentRecord,
    GitHubPost,
    JobRecord,
    decode_record,
    encode_record,
    has_progress,
)
from bot.queue.store import JOBS, RECORDS
from tests.bot.queue.running import Running
from tests.builders import a_job

_DENIED = DeniedCall(tool="execute", request="git push", reason="nobody could be asked")


def _newer(record: JobRecord, **further: object) -> dict[str, Any]:
    return {**json.loads(encode_record(record)), **further}


def _rewritten(stored: dict[str, Any], record: JobRecord) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(encode_record(record, over=json.dumps(stored)))
    return written


def test_what_a_newer_version_wrote_stays_where_an_older_one_changes_something_else() -> None:
    stored = _newer(JobRecord(comment=CommentRecord(requests=1)), queue_place=7, result={"outcome": "?"})
    stored["comment"]["pinned"] = True
    posted = GitHubPost(id=5, url="https://github.com/o/r/issues/1#5")
    before = decode_record(json.dumps(stored))
    after = replace(before, is_acknowledged=True, comment=replace(before.comment, posted=posted))
    written = _rewritten(stored, after)
    assert (written["queue_place"], written["result"]) == (7, {"outcome": "?"})
    assert written["comment"] == {**stored["comment"], "posted": {"id": 5, "url": posted.url}}
    assert decode_record(json.dumps(written)) == after


def test_what_this_version_removes_or_replaces_is_gone() -> None:
    stored = _newer(JobRecord(parts={"a": CommentRecord(requests=1), "b": CommentRecord()}, base_sha="a" * 40))
    stored["parts"]["a"]["pinned"] = stored["parts"]["b"]["pinned"] = True
    written = _rewritten(stored, JobRecord(parts={"a": CommentRecord(requests=2)}))
    assert written["parts"] == {"a": {**stored["parts"]["a"], "requests": 2}}
    assert written["base_sha"] is None


def test_entries_of_a_list_keep_what_is_new_in_them_while_others_are_added() -> None:
    stored = _newer(JobRecord(denied=(_DENIED,)))
    stored["denied"][0]["asked_at"] = 3
    written = _rewritten(stored, JobRecord(denied=(_DENIED, replace(_DENIED, request="npm publish"))))
    assert [each.get("asked_at") for each in written["denied"]] == [3, None]


def test_a_record_in_the_form_of_another_version_is_neither_read_nor_written_over() -> None:
    stored = _newer(JobRecord(), version=99)
    with pytest.raises(OtherVersionError):
        _rewritten(stored, JobRecord())


def test_a_value_that_this_version_cannot_read_takes_no_other_with_it() -> None:
    written = json.loads(encode_record(JobRecord(base_sha="a" * 40, is_acknowledged=True)))
    read = decode_record(json.dumps({**written, "result": {"outcome": "?"}, "of a later version": 1}))
    assert read == JobRecord(base_sha="a" * 40, is_acknowledged=True)


def test_only_what_was_not_there_before_is_progress() -> None:
    begun = JobRecord(comment=CommentRecord(requests=1))
    assert has_progress(JobRecord(), begun)
    assert has_progress(begun, replace(begun, comment=CommentRecord(requests=1, posted=GitHubPost(id=1, url=""))))
    assert has_progress(begun, replace(begun, parts={"part 1": CommentRecord(requests=1)}))
    assert not has_progress(begun, replace(begun, comment=CommentRecord(requests=2)))
    given = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=Actor(id=1, login="mona"))
    answered = replace(begun.approvals, answers={"7f3a": given})
    assert not has_progress(begun, replace(begun, approvals=answered))


async def test_an_older_version_keeps_what_a_newer_one_has_added(running: Running) -> None:
    engine, store = running.engine, running.store
    await store.run(lambda tx: tx.rows.execute(sa.text("ALTER TABLE jobs ADD COLUMN priority INTEGER DEFAULT 3")))
    await engine.accept(a_job())
    newer = json.dumps({**json.loads(encode_record(JobRecord())), "queue_place": 7})
    await store.run(lambda tx: tx.rows.execute(RECORDS.insert().values(job_id="j1", body=newer)))
    running.start()
    await running.until_state("j1", JobState.DONE)
    await engine.update("j1", lambda record: replace(record, is_acknowledged=True))
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
