"""A job whose GitHub, git or store is away: it waits, says so, and goes on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bot.domain.errors import StorageError
from bot.domain.job import JobState
from bot.git.errors import GitError
from tests.fakes.github import not_found, outage
from tests.seam import COMPLETION, FIX, FIXED_CALC, open_seam

RESET = GitError(
    "fetch", 128, "fatal: unable to access 'https://github.example/': Recv failure: Connection reset by peer"
)
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("call", "error", "headline", "reason"),
    [
        ("fetch", RESET, "Waiting for git on GitHub", ""),
        ("check_out", FULL, "Waiting for the bot's machine", "The disk of the machine is full."),
        (
            "check_out",
            StorageError("s3://internal", "timed out", "Check it."),
            "Waiting for the store for unfinished work",
            "The store for unfinished work cannot be reached.",
        ),
    ],
)
async def test_a_job_that_waits_for_a_service_says_so_and_then_goes_on(
    tmp_path: Path, call: str, error: Exception, headline: str, reason: str
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.workspaces.fail(call, error, times=2)
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        [status] = stage.bot_comments(issue.number)
        assert headline in status.splitlines()[0]
        assert reason in status
        assert "the job waits since" in status
        assert "internal" not in status
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.bot_comments(issue.number) == [end.status]


async def test_an_outage_that_outlasts_the_patience_ends_the_job_with_its_reason(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.workspaces.fail("fetch", RESET, times=1_000)
        command = stage.say(issue.number, "/codepilot fix")
        for _ in range(20):
            await stage.settle()
            stage.advance(1_200.0)
        end = await stage.end_of(command)
        assert end.state is JobState.FAILED
        assert "git on GitHub" in end.status
        assert "Grant" not in end.status


async def test_a_report_that_github_did_not_take_is_posted_within_a_minute_of_its_return(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        stage.hub.fail("comments.edit", outage(), times=20)
        await stage.settle()
        for _ in range(40):
            stage.advance(60.0)
            await stage.settle()
        end = await stage.ended(job_id)
        assert COMPLETION in end.status


async def test_one_missing_answer_about_access_does_not_take_the_work_away(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        asked = 0

        def on_call(call: str) -> None:
            nonlocal asked
            if call == "accounts.get_role":
                asked += 1
                if asked == 2:
                    stage.hub.fail("accounts.get_role", not_found(), times=1)

        stage.hub.on_call = on_call
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
