"""Strings by name, which format 1 of sealed jobs kept of a job, become a record."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bot.domain.job import JobState
from bot.github import PullLink
from bot.publishing.checks import Verdict
from bot.publishing.view import CommitRef, DeniedCall, Published
from bot.queue.records import CommentRecord, GitHubOutage, JobRecord, Outage, Posted, decode_record, record_of_facts

_VERSION_3 = Path(__file__).with_name("queue_v3.sql")
"""What an engine wrote that had the same strings: one job that is done, one that waits with every fact."""
_BASE = "3f9b854b9f0977b50c235feaa9e15844bf5b5dac"


def _record(job_id: str) -> JobRecord:
    with closing(sqlite3.connect(":memory:")) as rows:
        rows.executescript(_VERSION_3.read_text(encoding="utf-8"))
        facts = dict(rows.execute("SELECT key, value FROM facts WHERE job_id = ?", (job_id,)).fetchall())
    return decode_record(record_of_facts(facts))


def test_a_job_that_waits_for_an_approval_knows_what_it_asked() -> None:
    approvals = _record("waits").approvals
    assert approvals.waiting is not None
    asked = (approvals.waiting.request_id, approvals.waiting.kind, approvals.waiting.bound_to)
    assert asked == ("1df8dc30", "permission", _BASE)
    assert [each.at for each in approvals.shown.values()] == ["2026-11-22T22:24:53Z"]


def test_what_a_job_has_done_is_not_done_twice() -> None:
    record = _record("waits")
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


def test_a_job_that_is_done_is_known_with_its_commit_and_its_words() -> None:
    record = _record("done")
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
