"""The reaction to a command and the comment of its queued job, before a worker is free."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs.record import RecordedEnding, with_ending
from tests.fakes.agent import execute, reply, wait_for_test
from tests.fakes.github import outage
from tests.seam import ASKING, COMPLETION, FIX, NOTHING_LEFT, open_seam
from tests.waiting import eventually

RARE_EDITS = {"edit_seconds": 3600.0}
"""An hour between two edits of a run's progress: what is seen before is a change of its state."""


async def test_a_command_has_its_reaction_and_comment_before_its_job_runs(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, acknowledges=True) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        assert stage.reactions(command) == ["eyes"]
        [status] = stage.bot_comments(issue.number)
        assert "Waiting its turn" in status
        assert await stage.state_of(job_id) is JobState.QUEUED
        end = await stage.ended(job_id)
        assert stage.bot_comments(issue.number) == [end.status]
        assert COMPLETION in end.status
        assert stage.calls.count("comments.react") == 1


async def test_the_comment_says_that_a_job_runs_as_soon_as_it_does(tmp_path: Path) -> None:
    script = [reply(wait_for_test()), *FIX]
    async with open_seam(tmp_path, script, acknowledges=True, services=RARE_EDITS) as stage:
        issue = stage.issue()
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        assert "Waiting its turn" in stage.bot_comments(issue.number)[0]
        await stage.at_work()
        await eventually(lambda: "Working on it" in stage.bot_comments(issue.number)[0])
        assert stage.calls.count("comments.edit") == 1
        await stage.let_go(job_id)
        assert (await stage.ended(job_id)).state is JobState.DONE


async def test_the_comment_of_an_answered_request_says_that_the_job_runs_again(tmp_path: Path) -> None:
    script = [reply(execute("sh deploy.sh")), reply(wait_for_test()), NOTHING_LEFT]
    async with open_seam(tmp_path, script, operator=ASKING, services=RARE_EDITS) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        assert "Waiting for you" in pause.status
        stage.say(issue.number, f"/codepilot approve {pause.request_id}")
        await stage.at_work()
        await eventually(lambda: "Working on it" in stage.bot_comments(issue.number)[0])
        await stage.let_go(pause.job_id)
        assert (await stage.ended(pause.job_id)).state is JobState.DONE


@pytest.mark.parametrize("words", ["/codepilot stop", "/codepilot help"])
async def test_a_command_that_acts_at_once_is_not_acknowledged(tmp_path: Path, words: str) -> None:
    async with open_seam(tmp_path, acknowledges=True) as stage:
        command = stage.say(stage.issue().number, words)
        await stage.job_of(command)
        assert stage.calls == []


async def test_a_stranger_has_no_reaction_that_promises_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, acknowledges=True) as stage:
        stage.hub.add_user("stranger")
        command = stage.say(stage.issue().number, "/codepilot fix", author="stranger")
        await stage.job_of(command)
        assert stage.reactions(command) == []
        assert (await stage.end_of(command)).state is JobState.REFUSED
        assert stage.reactions(command) == ["confused"]


async def test_a_command_that_will_be_refused_has_no_comment_about_its_turn(tmp_path: Path) -> None:
    async with open_seam(tmp_path, acknowledges=True) as stage:
        issue = stage.issue()
        stage.hub.close(stage.repo, issue.number, by="mona")
        command = stage.say(issue.number, "/codepilot fix")
        await stage.job_of(command)
        assert stage.bot_comments(issue.number) == []
        assert (await stage.end_of(command)).state is JobState.REFUSED


async def test_a_reaction_that_failed_is_made_by_the_worker(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, acknowledges=True) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        stage.hub.fail("comments.react", outage(), times=1)
        await stage.job_of(command)
        assert stage.reactions(command) == []
        assert (await stage.end_of(command)).state is JobState.DONE
        assert stage.reactions(command) == ["eyes"]


@pytest.mark.parametrize(
    ("moment", "ending", "words"),
    [
        ("threads.snapshot", None, ""),
        ("comments.create", None, "Stopped"),
        ("comments.create", RecordedEnding(state=JobState.STOPPED, body="It ended."), "It ended."),
    ],
    ids=["before the comment", "in silence", "with words"],
)
async def test_the_comment_about_the_turn_does_not_hide_that_the_job_was_cancelled(
    tmp_path: Path, moment: str, ending: RecordedEnding | None, words: str
) -> None:
    async with open_seam(tmp_path, acknowledges=True) as stage:
        issue = stage.issue()
        tasks = list[asyncio.Task[bool]]()

        def on_call(call: str) -> None:
            if call == moment:
                [job_id] = stage.queue._entries
                record_ending = None if ending is None else with_ending(ending)
                cancel = stage.queue.cancel(job_id, JobState.STOPPED, "The App is gone.", record_ending=record_ending)
                tasks.append(asyncio.create_task(cancel))

        stage.hub.on_call = on_call
        await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        assert [task.result() for task in tasks] == [True]
        comments = stage.bot_comments(issue.number)
        assert len(comments) == bool(words)
        for status in comments:
            assert words in status
            assert "Waiting its turn" not in status
