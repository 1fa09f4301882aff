"""Runs that are stopped, told something, killed, or left by their model: what goes on, and what ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Status
from bot.domain.job import JobState
from bot.jobs.waiting import MAX_PAUSE
from tests.fakes.agent import do, end, execute, reply, unavailable, wait_for_test, write
from tests.seam import ASKING, COMPLETION, FIX, FIXED_CALC, NOTHING_LEFT, open_seam


async def test_a_stop_ends_a_running_agent_and_keeps_its_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), wait_for_test())]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        stage.say(issue.number, "/codepilot stop")
        stopped = await stage.end_of(command)
        assert stopped.state is JobState.STOPPED
        assert "Stopped by @mona" in stopped.status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.pulls() == []


async def test_a_stop_ends_a_job_that_never_began_at_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test())]) as stage:
        issue = stage.issue()
        running = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        behind = stage.say(issue.number, "/codepilot fix")
        stage.say(issue.number, "/codepilot stop")
        stopped = await stage.end_of(behind)
        assert stopped.state is JobState.STOPPED
        assert "Stopped by @mona" in stopped.status
        assert (await stage.end_of(running)).state is JobState.STOPPED
        assert len(stage.providers) == 1
        assert stage.nothing_left()


async def test_a_stop_of_a_request_keeps_the_work_whoever_occupies_the_worker(tmp_path: Path) -> None:
    asking = [reply(write("calc.py", FIXED_CALC)), reply(execute("curl nowhere.example"))]
    script = [asking, [reply(wait_for_test())], [reply(wait_for_test())]]
    async with open_seam(tmp_path, *script, operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.pause_of(command)
        for _ in range(2):
            stage.say(stage.issue().number, "/codepilot fix")
            await stage.at_work()
        stage.say(issue.number, "/codepilot stop")
        stopped = await stage.end_of(command)
        assert stopped.state is JobState.STOPPED
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_message_reaches_the_agent_before_its_next_reply(tmp_path: Path) -> None:
    script = [reply(wait_for_test()), replace(NOTHING_LEFT, expect=("@mona says, while you work: use sum",))]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        assert (await stage.ask(issue.number, "/codepilot continue use sum")).state is JobState.DONE
        await stage.let_go(await stage.job_of(command))
        assert (await stage.end_of(command)).state is JobState.DONE


async def test_a_message_after_the_last_reply_is_told_to_have_come_too_late(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test(), completion="Done.")]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        await stage.ask(issue.number, "/codepilot continue use sum")
        await stage.let_go(await stage.job_of(command))
        finished = await stage.end_of(command)
        assert "This message came too late; send it again: `use sum`" in finished.status


async def test_a_killed_worker_is_followed_by_one_that_goes_on_with_the_files(tmp_path: Path) -> None:
    script = [
        reply(write("calc.py", FIXED_CALC), wait_for_test()),
        reply(execute("sh check.sh"), completion=COMPLETION),
    ]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        await stage.restart()
        assert (await stage.end_of(command)).state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(stage.bot_comments(issue.number)) == 1
        assert len(stage.providers) == 1
        assert stage.nothing_left()


async def test_a_killed_worker_whose_files_are_lost_is_followed_by_one_that_starts_over(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", "broken"), wait_for_test())], FIX) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        await stage.restart()
        stage.workspaces.lose(await stage.job_of(command))
        assert (await stage.end_of(command)).state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(stage.providers) == 2


async def test_a_model_outage_lets_the_job_wait_and_go_on_where_it_was(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC)), unavailable("503 from the model"), *FIX]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.waits(command)
        [status] = stage.bot_comments(issue.number)
        assert "503 from the model" in status
        assert await stage.state_of(job_id) is JobState.WAITING
        stage.advance(MAX_PAUSE)
        assert (await stage.end_of(command)).state is JobState.DONE
        assert len(stage.bot_comments(issue.number)) == 1
        [play] = stage.providers
        assert play.specs[-1].policy.limits.outage_seconds == 0.0


@pytest.mark.parametrize("status", [Status.FAILED, Status.MAX_COST, Status.TIMEOUT, Status.SANDBOX_FAILED])
async def test_a_run_without_a_completion_fails_and_keeps_its_work(tmp_path: Path, status: Status) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), end(status, "It is over."))]) as stage:
        failed = await stage.ask(stage.issue().number, "/codepilot fix")
        assert failed.state is JobState.FAILED
        assert "It is over." in failed.status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.pulls() == []


async def test_a_thread_closed_while_the_agent_works_ends_the_run(tmp_path: Path) -> None:
    async with open_seam(
        tmp_path,
        [reply(do(lambda: stage.hub.close(stage.repo, 1, by="mona")), wait_for_test(), completion=COMPLETION)],
    ) as stage:
        closed = await stage.ask(stage.issue().number, "/codepilot fix")
        assert closed.state is JobState.STOPPED
        assert "The thread was closed." in closed.status
