"""A file of version 3, whose jobs had strings by name in place of a record: what was under way goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import Actor, JobState
from bot.engine.approvals import ApprovalAnswer
from bot.engine.facts import record_of_facts
from bot.engine.job_record import (
    CommentRecord,
    GitHubOutage,
    JobRecord,
    Outage,
    Posted,
    StoredRecord,
    decode_record,
    encode_record,
    got_on,
)
from bot.engine.queue import SqliteQueue
from bot.github import PullLink
from bot.jobs import approvals
from bot.publishing.published import CommitRef, Published
from bot.publishing.verdict import Verdict
from bot.publishing.view import DeniedCall
from tests.queues import Clock, claimed, opened_queue

_VERSION_3 = Path(__file__).with_name("queue_v3.sql")
"""What version 3 itself wrote, dumped: a job that was approved and is done, and one that waits, with every fact."""
_BASE = "3f9b854b9f0977b50c235feaa9e15844bf5b5dac"


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    path = tmp_path / "queue.sqlite"
    with sqlite3.connect(path) as rows:
        rows.executescript(_VERSION_3.read_text())
    rows.close()
    clock = Clock()
    clock.now = 1_795_386_400.0
    async with opened_queue(path, clock) as queue:
        yield queue


async def test_a_job_that_waits_for_an_approval_gets_it_and_goes_on(queue: SqliteQueue) -> None:
    record = StoredRecord(queue, "waits")
    asked = await approvals.awaited(record)
    assert asked is not None
    assert (asked.request_id, asked.kind, asked.bound_to) == ("1df8dc30", "permission", _BASE)
    assert [each.at for each in await approvals.shown_by(record)] == ["2026-11-22T22:24:53Z"]
    assert await claimed(queue) is None
    given = ApprovalAnswer(request_id=asked.request_id, approved=True, note="", by=Actor(id=1, login="mona"))
    assert await approvals.answer(record, given)
    assert await queue.wake("waits")
    assert await claimed(queue) == "waits"
    assert await approvals.answered(record, asked) == given


async def test_what_a_job_has_done_is_not_done_twice(queue: SqliteQueue) -> None:
    record = await queue.record("waits")
    assert record.progress is not None
    assert [each.label for each in record.progress.activities] == ["Writing calc.py"]
    assert (record.check.head_sha, record.check.requests) == (_BASE, 1)
    assert record.check.posted == Posted(id=1040, url="https://github.example/mona/calc/runs/1040")
    comment = Posted(id=1038, url="https://github.example/mona/calc/issues/3#issuecomment-1038")
    assert replace(record, progress=None, check=JobRecord().check, approvals=JobRecord().approvals) == JobRecord(
        seen=True,
        greeted_at=1795386291.6672163,
        comment=CommentRecord(requests=1, posted=comment, below=True),
        parts={
            "part 7f3a 1": CommentRecord(requests=2, posted=Posted(id=77, url="https://x/77")),
            "part 7f3a 2": CommentRecord(requests=1),
        },
        base_sha=_BASE,
        bound=True,
        continues=0,
        branch_number=2,
        steps=1,
        denied=(DeniedCall(tool="bash", asked="ls", reason="r", setting="level", value="auto"),),
        outage=Outage(since=1000.0, tries=2, steps=3, until=1500.0),
        github_outage=GitHubOutage(since=1000.5, last=1200.25),
        published=Published(
            pull=PullLink(number=12, html_url="https://github.com/o/r/pull/12", draft=True),
            onto="a" * 40,
            review_requested=True,
            review_url="https://github.com/o/r/pull/4#pullrequestreview-9",
        ),
        answering="1df8dc30",
        undoing=CommitRef(sha="b" * 40, branch="main"),
        leads_to="j-next",
    )
    assert record.approvals.alike_void


async def test_a_job_that_is_done_is_known_with_its_commit_and_its_words(queue: SqliteQueue) -> None:
    record = await queue.record("done")
    assert record.published.commit == CommitRef(
        sha="c200941ad85e8446112e963b172951e7916b5b05", branch="codepilot/issue-1-done"
    )
    assert record.published.pull == PullLink(number=2, html_url="https://github.example/mona/calc/pull/2")
    assert record.verdict is Verdict.UNVERIFIED
    assert record.result is not None
    assert record.result.outcome.summary == "Fixed `add`: it counted one too many."
    assert [each.approved for each in record.approvals.answers.values()] == [True]
    assert record.ending is not None
    assert (record.ending.state, record.ending.proven) == (JobState.DONE, True)
    assert record.ending.body.startswith("### ⚠️ Not verified")
    assert record.ending.check is not None
    assert record.ending.check.status == "completed"


def test_an_ending_that_nobody_may_be_told_yet_stays_one() -> None:
    record = decode_record(record_of_facts({"ending": "failed\nNo.\nMore.", "unproven": "yes"}))
    assert record.ending is not None
    assert (record.ending.state, record.ending.body, record.ending.proven) == (JobState.FAILED, "No.\nMore.", False)


def test_a_value_that_this_version_cannot_read_takes_no_other_with_it() -> None:
    written = json.loads(encode_record(JobRecord(base_sha=_BASE, seen=True)))
    read = decode_record(json.dumps({**written, "result": {"outcome": "?"}, "of a later version": 1}))
    assert read == JobRecord(base_sha=_BASE, seen=True)


def test_only_what_was_not_there_before_is_progress() -> None:
    begun = JobRecord(comment=CommentRecord(requests=1))
    assert got_on(JobRecord(), begun)
    assert got_on(begun, replace(begun, comment=CommentRecord(requests=1, posted=Posted(id=1, url=""))))
    assert got_on(begun, replace(begun, parts={"part 1": CommentRecord(requests=1)}))
    assert not got_on(begun, replace(begun, comment=CommentRecord(requests=2)))
    given = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=Actor(id=1, login="mona"))
    answered = replace(begun.approvals, answers={"7f3a": given})
    assert not got_on(begun, replace(begun, approvals=answered))
