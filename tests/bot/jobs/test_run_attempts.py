"""Attempts of a job that another one ended, that die, or that meet a fault of the bot itself."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent_runtime import SessionNewerError
from bot.domain.errors import OtherVersionError
from bot.domain.job import JobState
from bot.github.types import GitHubError
from bot.jobs import reports
from bot.jobs.context import JobContext
from bot.jobs.record import RecordedEnding
from bot.queue import memory
from bot.queue.protocols import MAX_DEATHS, REPORT_SECONDS
from tests.bot.jobs.test_run_faults import ALWAYS, clone_error, disk_full
from tests.fakes.agent import ask_user, reply, wait_for_test, write
from tests.fakes.github import forbidden, outage
from tests.seam import COMPLETION, FIX, FIXED_CALC, open_seam


async def test_an_ending_that_is_stored_is_reported_without_repeating_the_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        ending = RecordedEnding(state=JobState.FAILED, body="It failed before.")
        await stage.record_of(job_id).update(lambda record: replace(record, ending=ending))
        end = await stage.ended(job_id)
        assert (end.state, end.status) == (JobState.FAILED, "It failed before.")
        assert stage.providers == []


@pytest.mark.parametrize("error", [outage(), forbidden()], ids=["passing", "definite"])
async def test_a_request_that_github_does_not_show_waits_all_the_same(tmp_path: Path, error: GitHubError) -> None:
    async with open_seam(tmp_path, [reply(ask_user("Which?"))]) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        stage.hub.fail("comments.edit", error, 1)
        job_id = await stage.job_of(command)
        for _ in range(4):
            await stage.settle()
            stage.advance(60.0)
        assert stage.hub.take_fault("comments.edit") is None
        assert await stage.state_of(job_id) is JobState.WAITING
        assert len(stage.providers) == 1


async def test_a_plan_that_github_does_not_show_at_once_waits_for_its_approval(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="1. Do it.")]) as stage:
        command = stage.say(stage.issue().number, "/codepilot plan")
        stage.hub.fail("comments.edit", outage(), 1)
        job_id = await stage.job_of(command)
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        stage.advance(60.0)
        pause = await stage.pause_of_job(job_id)
        assert "1. Do it." in pause.status
        assert len(stage.providers) == 1


async def test_a_question_is_asked_without_a_check_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(ask_user("Which?"))]) as stage:
        stage.hub.fail("checks.create", forbidden(), ALWAYS)
        pause = await stage.pause_of(stage.say(stage.issue().number, "/codepilot fix"))
        assert "Which?" in pause.status
        assert stage.repo.checks == []


@pytest.mark.parametrize(
    ("deaths", "branches"), [(MAX_DEATHS, 1), (MAX_DEATHS + 5, 0)], ids=["partial work", "only the failure"]
)
async def test_a_job_whose_workers_keep_dying_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, branches: int
) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), wait_for_test())]) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        await stage.at_work()
        await stage.restart()
        attempt = partial(memory._Attempt, deaths=deaths, is_exhausted=True)
        monkeypatch.setattr(memory, "_Attempt", attempt)
        end = await stage.ended(job_id)
        assert end.state is JobState.FAILED
        assert "The bot's process died several times" in end.status
        assert ("calc.py" in end.status) is bool(branches)
        assert stage.pulls() == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("secret internals"), "The bot has an internal error."),
        (PermissionError(errno.EACCES, "Permission denied", "/var/lib/x"), "failed: Permission denied."),
    ],
)
async def test_a_fault_of_the_bot_fails_its_job_in_words_for_the_public(
    tmp_path: Path, error: Exception, words: str
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("check_out", error, times=ALWAYS)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert words in end.status
        assert "internals" not in end.status
        assert "/var/lib" not in end.status


async def test_a_log_of_a_newer_version_is_left_to_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        stage.sessions.failure = SessionNewerError("A newer version wrote the session.")
        await stage.settle()
        assert await stage.state_of(await stage.job_of(command)) is JobState.QUEUED
        stage.sessions.failure = None
        assert (await stage.end_of(command)).state is JobState.DONE


async def test_an_outage_that_cannot_be_shown_is_outlasted(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("check_out", disk_full(), times=2)
        stage.hub.fail("comments.edit", outage(), 1)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert stage.hub.take_fault("comments.edit") is None
        assert end.state is JobState.DONE
        assert COMPLETION in end.status


async def test_files_that_cannot_be_removed_change_no_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def discard(job_id: str) -> None:
        raise disk_full()

    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("fetch", clone_error(503))
        monkeypatch.setattr(stage.workspaces, "discard", discard)
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE


@pytest.mark.parametrize("error", [OtherVersionError("newer"), RuntimeError("a bug")])
async def test_a_late_report_outlasts_what_is_wrong_with_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    post_ending, errors = reports.post_ending, [error]

    async def fail_once(context: JobContext, *, log_level: int = logging.WARNING) -> float | None:
        if errors:
            raise errors.pop()
        return await post_ending(context, log_level=log_level)

    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.hub.fail("comments.edit", outage(), 1)
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        stage.hub.on_call = lambda call: (
            monkeypatch.setattr(reports, "post_ending", fail_once) if call == "checks.update" else None
        )
        assert (await stage.ended(job_id)).state is JobState.DONE
        for _ in range(6):
            stage.advance(120.0)
            await stage.settle()
        assert errors == []
        assert COMPLETION in stage.bot_comments(issue.number)[0]


async def test_a_report_that_github_never_takes_is_given_up_after_days(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.fail("comments.edit", outage(), ALWAYS)
        stage.hub.fail("checks.update", outage(), ALWAYS)
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        await stage.ended(job_id)
        assert stage.queue._entries[job_id].due_at is not None
        stage.advance(REPORT_SECONDS + 1.0)
        await stage.settle()
        assert stage.queue._entries[job_id].due_at is None
