"""Messages, waits and faults in the reports of jobs with several attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.bot.jobs.test_run_faults import ALWAYS, clone_error, disk_full, end_of_outage, git_error
from tests.fakes.agent import Script, ask_user, do, execute, reply, wait_for_test, write
from tests.fakes.github import no_answer, not_found, outage
from tests.seam import ASKING, COMPLETION, FIX, FIXED_CALC, NOTHING_LEFT, Seam, open_seam

READ = "threads.snapshot"
PROTECTED: Script = [
    reply(
        write("pyproject.toml", "[tool.x]\n"),
        write("calc.py", FIXED_CALC),
        execute("sh check.sh"),
        completion=COMPLETION,
    )
]
RUNS: Script = [reply(write("calc.py", FIXED_CALC), execute("echo ran >> ran.txt", check=False), completion=COMPLETION)]
TOO_LATE = "This message came too late"
MESSAGE = "@mona says, while you work: use sum"


async def say_at_work(stage: Seam, number: int) -> str:
    """Give a command, and a message to its agent while it works; return the job's id."""
    command = stage.say(number, "/codepilot fix")
    await stage.at_work()
    await stage.ask(number, "/codepilot continue use sum")
    return await stage.job_of(command)


async def test_a_message_is_not_called_late_after_an_outage_at_publishing(tmp_path: Path) -> None:
    work = reply(write("calc.py", FIXED_CALC), execute("sh check.sh"), completion=COMPLETION, expect=MESSAGE)
    async with open_seam(tmp_path, [reply(wait_for_test()), work]) as stage:
        job_id = await say_at_work(stage, stage.issue().number)
        stage.hub.fail("commits.create_with_branch", outage(), 2)
        await stage.let_go(job_id)
        end = await stage.ended(job_id)
        assert stage.hub.take_fault("commits.create_with_branch") is None
        assert end.state is JobState.DONE
        assert TOO_LATE not in end.status


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_message_is_not_called_late_when_its_run_ends_while_it_waits(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test()), reply(ask_user("Which?"), expect=MESSAGE)]) as stage:
        number = stage.issue().number
        job_id = await say_at_work(stage, number)
        await stage.let_go(job_id)
        await stage.pause_of_job(job_id)
        if is_stopped:
            stage.say(number, "/codepilot stop")
        else:
            stage.advance(30 * 24 * 3600.0)
        end = await stage.ended(job_id)
        assert end.state is JobState.STOPPED
        assert TOO_LATE not in end.status


async def test_a_run_that_starts_over_hears_the_messages_again(tmp_path: Path) -> None:
    first = [reply(wait_for_test()), reply(wait_for_test(), expect=MESSAGE)]
    async with open_seam(tmp_path, first, [replace(NOTHING_LEFT, expect=(MESSAGE,))]) as stage:
        job_id = await say_at_work(stage, stage.issue().number)
        await stage.let_go(job_id)
        await stage.at_work()
        await stage.restart()
        stage.workspaces.lose(job_id)
        end = await stage.ended(job_id)
        assert len(stage.providers) == 2
        assert end.state is JobState.DONE
        assert TOO_LATE not in end.status


async def test_a_doubtful_answer_before_the_work_takes_no_patience_from_its_publication(tmp_path: Path) -> None:
    script = [reply(do(lambda: stage.advance(900.0))), reply(do(lambda: stage.hub.fail(READ, not_found(), 2))), *FIX]
    async with open_seam(tmp_path, script) as stage:
        stage.hub.fail(READ, not_found(), 2)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert stage.hub.take_fault(READ) is None
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == len(stage.providers) == 1


@pytest.mark.parametrize("script", [RUNS, PROTECTED], ids=["call", "publication"])
async def test_one_missing_answer_about_access_does_not_take_a_waiting_run_away(tmp_path: Path, script: Script) -> None:
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        number, checks = stage.issue().number, list[str]()
        pause = await stage.pause_of(stage.say(number, "/codepilot fix"))

        def on_call(call: str) -> None:
            checks.extend([call] * (call == "accounts.get_role"))
            if call == "accounts.get_role" and len(checks) == 2:  # the first is about the answer
                stage.hub.fail(call, not_found(), 1)

        stage.hub.on_call = on_call
        stage.say(number, f"/codepilot approve {pause.request_id}")
        end = await stage.ended(pause.job_id)
        assert len(checks) > 2
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 1


@pytest.mark.parametrize("status", [503, 403], ids=["passing", "doubtful"])
async def test_a_stop_ends_a_job_that_waits_for_a_service_as_stopped(tmp_path: Path, status: int) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        number = stage.issue().number
        stage.hub.fail("comments.list_for_thread", outage())  # when the job has files
        job_id = await stage.job_of(stage.say(number, "/codepilot fix"))
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        stage.workspaces.fail("read", clone_error(status), times=100)
        stage.say(number, "/codepilot stop")
        end = await stage.ended(job_id)
        assert end.state is JobState.STOPPED
        assert "Stopped by @mona" in end.status
        assert "fetched" not in end.status
        assert stage.bot_comments(number) == [end.status]


async def test_a_stop_keeps_the_patch_of_work_that_github_refuses(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        number = stage.issue().number
        stage.hub.fail("commits.create_with_branch", not_found(), 100)
        job_id = await stage.job_of(stage.say(number, "/codepilot fix"))
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.QUEUED
        stage.say(number, "/codepilot stop")
        end = await stage.ended(job_id)
        assert end.state is JobState.STOPPED
        assert "**Kept.**" in end.status
        assert stage.kept_patch(job_id)


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_a_shown_outage_gives_way_to_the_work(tmp_path: Path, *, is_acknowledged: bool) -> None:
    shown: list[str] = []
    script = [reply(do(lambda: shown.extend(stage.bot_comments(1)))), *FIX]
    async with open_seam(tmp_path, script, acknowledges=is_acknowledged, services={"edit_seconds": 0.0}) as stage:
        stage.workspaces.fail("check_out", disk_full(), times=3)
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.settle()
        assert "Waiting for the bot's machine" in stage.bot_comments(1)[0]
        assert (await stage.end_of(command)).state is JobState.DONE
        assert len(shown) == 1
        assert "Working on it" in shown[0]


async def test_an_attempt_that_meets_the_same_outage_does_not_say_that_it_works(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("fetch", git_error(503, "fetch"), times=20)
        texts: list[str] = []
        stage.hub.on_call = lambda call: texts.extend(stage.bot_comments(1) if call == "comments.edit" else ())
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert len(texts) > 20
        assert sum("Working on it" in text for text in texts) <= 2  # at the start, and after the outage


async def test_the_files_of_a_job_that_an_outage_ends_are_removed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("change", disk_full(), times=ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        assert stage.nothing_left()


@pytest.mark.parametrize("call", ["checks.create", "tokens.for_clone"])
async def test_no_text_for_the_public_names_an_address_that_github_did_not_answer_at(tmp_path: Path, call: str) -> None:
    error = no_answer("ClientConnectorDNSError: Cannot connect to host github.corp.internal:443")
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.fail(call, error, ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert "GitHub did not answer." in end.status
        assert "internal" not in f"{end.status}{end.reason}"
