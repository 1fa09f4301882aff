"""What GitHub does not take at the start or at the end is asked, and told, again until it does."""

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


async def _told(stage: Stage, number: int, words: str) -> str:
    """The one comment of the bot in a thread, once it holds some words."""

    def told() -> str | None:
        comments = stage.bot_comments(number)
        return comments[0] if len(comments) == 1 and words in comments[0] else None

    return await eventually(told, within=60)


async def test_a_command_that_met_trouble_at_its_start_is_done(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER], held=True) as stage:
        issue = stage.issue()
        hub.faults.add("POST", "*/graphql", "404", times=4)
        command = stage.say(issue.number, "/codepilot fix")
        stage.open_for_work.set()
        assert (await stage.end_of(command, within=60)).state is JobState.DONE
        assert "The code is right." in await _told(stage, issue.number, "Nothing changed")


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
        status = await _told(stage, issue.number, COMPLETION)
        assert "Working on it" not in status

        async def settled() -> str | None:
            return None if await is_owed(stage.queue, job_id) else "yes"

        done: str = await eventually(settled, within=30)
        assert done
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
        await _told(second, issue.number, COMPLETION)
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

        async def settled() -> str | None:
            return None if await is_owed(stage.queue, job_id) else "yes"

        done: str = await eventually(settled, within=30)
        assert done
        assert any("GitHub did not answer." in each for each in stage.bot_comments(issue.number))
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
