"""Endings that GitHub does not take, or that another process stored, are reported until GitHub takes them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bot.domain.job import JobState
from bot.jobs.record import RecordedEnding, StoredRecord, with_ending
from localhub import LocalHub
from tests.durable import is_owed
from tests.stage import COMPLETION, FIX, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

ANSWER = "```completion\nThe code is right.\n```\n"


async def _comment_with(stage: Stage, number: int, text: str) -> str:
    """Wait until the only comment of the bot in a thread holds a text; return the comment."""

    def find() -> str | None:
        comments = stage.bot_comments(number)
        return comments[0] if len(comments) == 1 and text in comments[0] else None

    return await eventually(find, within=60)


async def _wait_for_report(stage: Stage, job_id: str) -> None:
    async def is_posted() -> bool:
        return not await is_owed(stage.queue, job_id)

    posted: bool = await eventually(is_posted)
    assert posted


async def test_an_end_that_an_archived_repository_does_not_take_is_told_later(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO, completion=COMPLETION)]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        hub.archive(stage.repo)
        await stage.let_go(job_id)
        await stage.ended(job_id)
        hub.unarchive(stage.repo)
        status = await _comment_with(stage, issue.number, COMPLETION)
        assert "Working on it" not in status
        await _wait_for_report(stage, job_id)
        assert [each.status for each in hub.check_runs(stage.repo)] == ["completed"]


async def test_another_process_tells_what_is_owed(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        await first.at_work()
        hub.faults.add("PATCH", "*", "404", times=1000)
        end = await first.end_of(command)
        assert end.state is JobState.DONE
        assert COMPLETION not in end.status
    hub.faults.clear()
    async with staged(hub, tmp_path, after=first) as second:
        await _comment_with(second, issue.number, COMPLETION)
        await eventually(lambda: [run.conclusion for run in hub.check_runs(second.repo)] == ["success"] or None)


async def test_an_ending_that_cannot_be_read_whole_stops_no_other_job(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER], held=True) as stage:
        issue = stage.issue()
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))

        async def greeted() -> float | None:
            return (await StoredRecord(stage.queue, job_id).read()).greeted_at

        acknowledged: float = await eventually(greeted)
        assert acknowledged
        kept = RecordedEnding(state=JobState.FAILED, body="GitHub did not answer.")
        assert await stage.queue.cancel(job_id, JobState.STOPPED, "silence", record_ending=with_ending(kept))
        # As another version of the bot may have kept it.
        with closing(sqlite3.connect(stage.data / "jobs.sqlite")) as rows, rows:
            rows.execute(
                "UPDATE records SET body = json_set(body, '$.ending.check', json('{}')) WHERE job_id = ?", (job_id,)
            )
        stage.open_for_work.set()
        await _wait_for_report(stage, job_id)
        assert any("GitHub did not answer." in each for each in stage.bot_comments(issue.number))
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
