"""A job whose GitHub, git or store is away: it waits, says so, and goes on."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.domain.errors import StorageError
from bot.domain.job import JobState
from bot.git.errors import CloneError, GitError
from tests.fakes.agent import reply, wait_for_test, write
from tests.fakes.github import no_answer, not_found, outage
from tests.seam import COMPLETION, FIX, FIXED_CALC, Seam, open_seam

RESET = GitError(
    "fetch", 128, "fatal: unable to access 'https://github.example/': Recv failure: Connection reset by peer"
)
REFUSED = CloneError("The repository could not be fetched: it failed.", "Check it.")
REFUSED.__cause__ = GitError(
    "fetch", 128, "fatal: unable to access 'https://github.example/': The requested URL returned error: 403"
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
        assert "The job has been waiting since" in status
        assert "internal" not in status
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.bot_comments(issue.number) == [end.status]


async def shown_wait(stage: Seam, number: int) -> str:
    """Return the line of `/codepilot status` about the thread's job, and wait for no other job."""
    answer = await stage.job_of(stage.say(number, "/codepilot status"))
    await stage.settle()
    [line] = (await stage.ended(answer)).status.splitlines()[:1]
    return line


@pytest.mark.parametrize(
    ("fail", "service"),
    [
        (lambda stage: stage.workspaces.fail("fetch", RESET, times=2), "git on GitHub"),
        (lambda stage: stage.workspaces.fail("change", FULL, times=1), "the bot's machine"),
        (lambda stage: stage.hub.fail("commits.create_with_branch", no_answer(), 3), "GitHub"),
    ],
    ids=["git", "machine", "GitHub"],
)
async def test_status_names_the_service_that_a_job_waits_for(
    tmp_path: Path, fail: Callable[[Seam], None], service: str
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        fail(stage)
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        line = await shown_wait(stage, issue.number)
        assert re.search(
            rf"for @mona: waiting for {service} since \d\d:\d\d UTC on .*, until \d\d:\d\d UTC on .* at the latest, ",
            line,
        )
        assert (await stage.ended(job_id)).state is JobState.DONE
        assert "waiting" not in await shown_wait(stage, issue.number)


async def test_an_outage_that_is_over_is_not_shown_and_does_not_shorten_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.jobs.record._STEPS_SECONDS", 0.0)
    script = [reply(write("calc.py", FIXED_CALC)), reply(wait_for_test()), *FIX]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        # A doubtful answer while the job begins, and another one long after.
        stage.workspaces.fail("fetch", REFUSED)
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        stage.advance(60.0)
        await stage.at_work()
        assert "for @mona: running" in await shown_wait(stage, issue.number)
        stage.advance(1_200.0)
        stage.workspaces.fail("change", REFUSED)
        await stage.let_go(job_id)
        await stage.settle()
        assert "waiting for git on GitHub" in await shown_wait(stage, issue.number)
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end


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


@pytest.mark.parametrize("number", [1, 2], ids=["at the start", "at publishing"])
async def test_one_missing_answer_about_access_takes_nothing_away(tmp_path: Path, number: int) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        requests = 0

        def on_call(call: str) -> None:
            nonlocal requests
            if call == "accounts.get_role":
                requests += 1
                if requests == number:
                    stage.hub.fail("accounts.get_role", not_found(), times=1)

        stage.hub.on_call = on_call
        end = await stage.ask(issue.number, "/codepilot fix")
        assert stage.hub.take_fault("accounts.get_role") is None
        assert end.state is JobState.DONE, end
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
