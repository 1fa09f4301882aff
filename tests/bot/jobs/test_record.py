"""The record of a job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.errors import OtherVersionError
from bot.domain.job import Actor
from bot.jobs.record import (
    ApprovalAnswer,
    CommentRecord,
    GitHubPost,
    JobRecord,
    StoredRecord,
    decode_record,
    encode_record,
    has_progress,
    stored_steps,
)
from bot.publishing.status_view import DeniedCall
from bot.queue.memory import InMemoryEngine
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


def _gains(before: JobRecord, after: JobRecord) -> bool:
    return has_progress(encode_record(before), encode_record(after))


def test_only_what_was_not_there_before_is_progress() -> None:
    begun = JobRecord(comment=CommentRecord(requests=1))
    assert _gains(JobRecord(), begun)
    assert _gains(begun, replace(begun, comment=CommentRecord(requests=1, posted=GitHubPost(id=1, url=""))))
    assert _gains(begun, replace(begun, parts={"part 1": CommentRecord(requests=1)}))
    assert not _gains(begun, replace(begun, comment=CommentRecord(requests=2)))
    given = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=Actor(id=1, login="mona"))
    answered = replace(begun.approvals, answers={"7f3a": given})
    assert not _gains(begun, replace(begun, approvals=answered))


async def test_new_steps_are_stored_and_are_progress() -> None:
    engine, steps = InMemoryEngine(), 2
    await engine.accept(a_job())
    record = StoredRecord(engine, "j1")
    async with stored_steps(record, lambda: steps):
        steps = 3
    assert (await record.read()).steps == 3
    assert _gains(JobRecord(steps=2), await record.read())
    async with stored_steps(record, lambda: 1):
        pass
    assert (await record.read()).steps == 3
