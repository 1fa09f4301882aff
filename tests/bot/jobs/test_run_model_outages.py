"""The model service is away: the job waits without a worker, and goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs.waiting import MAX_PAUSE
from tests.fakes.agent import Script, ask_user, execute, reply, unavailable, write
from tests.seam import COMPLETION, FIXED_CALC, NOTHING_LEFT, open_seam

WRITES = reply(write("calc.py", FIXED_CALC), execute("echo once >> notes.txt", appends={"notes.txt": "once\n"}))
FINISH = reply(execute("sh check.sh"), completion=COMPLETION)
DOWN = unavailable("Back soon")


@pytest.mark.parametrize(("retry_after", "least"), [(None, 80.0), (3600.0, 3500.0)], ids=["down", "asks for an hour"])
async def test_a_job_outlives_outages_and_a_restart_and_repeats_nothing(
    tmp_path: Path, retry_after: float | None, least: float
) -> None:
    outage = unavailable("Back soon", retry_after=retry_after)
    async with open_seam(tmp_path, [WRITES, outage, outage, FINISH]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.waits(command)
        [status] = stage.bot_comments(issue.number)
        assert "Waiting for the model service" in status
        assert "retries at" in status
        stored = await stage.queue.get(job_id)
        assert stored is not None
        assert stored.until is not None
        assert stored.until - stored.enqueued_at > least
        await stage.restart()
        stage.advance(stored.until - stage.clock())
        await stage.waits(command)
        assert stage.providers[0].remaining == 1
        stage.advance(max(MAX_PAUSE * 1.25, least + 200.0))
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert len(stage.pulls()) == 1
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.file(branch, "notes.txt") == "once"
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()


async def test_a_job_that_waits_for_the_model_takes_messages_and_a_stop(tmp_path: Path) -> None:
    script = [WRITES, DOWN, reply(expect="use tabs"), DOWN]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        status = await stage.ask(issue.number, "/codepilot status")
        assert "waiting for the model service" in status.status
        assert (await stage.ask(issue.number, "/codepilot continue use tabs")).state is JobState.DONE
        stage.advance(MAX_PAUSE)
        await stage.waits(command)
        assert stage.providers[0].remaining == 0
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_request_that_was_answered_before_an_outage_is_not_waited_for_any_more(tmp_path: Path) -> None:
    script: Script = [reply(ask_user("Tabs or spaces?")), DOWN, NOTHING_LEFT]
    async with open_seam(tmp_path, script) as stage:
        number = stage.pull().number
        command = stage.say(number, "/codepilot fix")
        await stage.pause_of(command)
        assert (await stage.ask(number, "/codepilot continue tabs")).state is JobState.DONE
        job_id = await stage.waits(command)
        assert "Waiting for the model service" in "".join(stage.bot_comments(number))
        message = await stage.ask(number, "/codepilot continue of width 4")
        assert message.state is JobState.DONE, message
        stage.hub.commit(stage.repo, {"README.md": "# Mine\n"}, message="Meanwhile", author="mona", branch="topic")
        assert (await stage.end_after("pull_request", "synchronize")).state is JobState.DONE
        assert await stage.state_of(job_id) is JobState.WAITING
        assert [signal.text for signal in stage.queue._entries[job_id].signals] == ["of width 4"]


async def test_a_job_whose_patience_is_over_fails_and_its_work_is_kept(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [WRITES, DOWN], operator={"model_patience": 60}) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "CODEPILOT_MODEL_PATIENCE" in end.status
        assert "Back soon" in end.status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
