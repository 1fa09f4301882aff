"""Requests that GitHub does not take at the start or the end of a job are repeated until it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.github.types import GitHubError
from bot.jobs.record import RecordedEnding, with_ending
from tests.fakes.agent import execute, reply
from tests.fakes.github import not_found, outage
from tests.seam import ASKING, COMPLETION, FIX, open_seam

UNAUTHORIZED = GitHubError("read", 401, "Bad credentials", "")
REFUSED = GitHubError("read", 403, "Forbidden", "")


@pytest.mark.parametrize("error", [UNAUTHORIZED, REFUSED, not_found()], ids=["401", "403", "404"])
async def test_a_command_that_met_trouble_at_its_start_is_done(tmp_path: Path, error: GitHubError) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.hub.fail("threads.snapshot", error, times=2)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert stage.hub.take_fault("threads.snapshot") is None
        assert end.state is JobState.DONE, end
        assert stage.bot_comments(issue.number) == [end.status]
        assert COMPLETION in end.status


@pytest.mark.parametrize("error", [UNAUTHORIZED, not_found(), outage()], ids=["401", "404", "502"])
async def test_an_end_that_github_does_not_take_is_told_when_it_does(tmp_path: Path, error: GitHubError) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        stage.hub.fail("comments.edit", error, times=3)
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE
        for _ in range(4):
            stage.advance(60.0)
            await stage.settle()
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert "Working on it" not in status
        assert [check.status for check in stage.repo.checks] == ["completed"]


@pytest.mark.parametrize(("author", "count"), [("mona", 1), ("stranger", 0)])
async def test_an_ending_is_told_late_only_to_persons_with_access(tmp_path: Path, author: str, count: int) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.add_user("stranger")
        issue = stage.issue()
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix", author=author))
        # GitHub could not be asked about the author until it was too late.
        report = RecordedEnding(state=JobState.FAILED, body="GitHub did not answer.", proven=False)
        assert await stage.queue.cancel(job_id, JobState.STOPPED, "silence", record_ending=with_ending(report))
        await stage.settle()
        assert sum("GitHub did not answer." in body for body in stage.bot_comments(issue.number)) == count


async def test_a_check_run_ends_although_its_last_text_cannot_be_read(tmp_path: Path) -> None:
    script = [reply(execute("echo ran >> ran.txt", check=False))]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        pause = await stage.pause_of(stage.say(stage.issue().number, "/codepilot fix"))
        report = RecordedEnding(state=JobState.STOPPED, body="It ended.")
        assert await stage.queue.cancel(pause.job_id, JobState.STOPPED, "It ended.", record_ending=with_ending(report))
        await stage.settle()
        check = stage.check_of(pause.job_id)
        assert (check.status, check.conclusion, check.summary) == ("completed", "neutral", "It ended.")
        assert (check.title or "").startswith("Stopped: ")
        assert set(stage.buttons_of(pause.job_id)) == {"Retry"}


async def test_without_check_runs_the_comment_alone_tells_of_the_job(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.hub.fail("checks.create", outage(503), times=1_000)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert COMPLETION in end.status
        assert end.status.count("GitHub did not create the check run,") == 1
