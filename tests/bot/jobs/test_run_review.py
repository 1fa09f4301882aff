"""What a job says of its messages, waits and faults after it went on in another attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import ask_user, execute, reply, wait_for_test, write
from tests.fakes.github import outage
from tests.seam import COMPLETION, FIXED_CALC, NOTHING_LEFT, Seam, open_seam

TOO_LATE = "This message came too late"
ASKED = "@mona says, while you work: use sum"


async def say_at_work(stage: Seam, number: int) -> str:
    """Give a command, and a message to its agent while it works; return the job's id."""
    command = stage.say(number, "/codepilot fix")
    await stage.at_work()
    await stage.ask(number, "/codepilot continue use sum")
    return await stage.job_of(command)


async def test_a_message_is_not_called_late_after_an_outage_at_publishing(tmp_path: Path) -> None:
    work = reply(write("calc.py", FIXED_CALC), execute("sh check.sh"), completion=COMPLETION, expect=ASKED)
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
    async with open_seam(tmp_path, [reply(wait_for_test()), reply(ask_user("Which?"), expect=ASKED)]) as stage:
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
    first = [reply(wait_for_test()), reply(wait_for_test(), expect=ASKED)]
    async with open_seam(tmp_path, first, [replace(NOTHING_LEFT, expect=(ASKED,))]) as stage:
        job_id = await say_at_work(stage, stage.issue().number)
        await stage.let_go(job_id)
        await stage.at_work()
        await stage.restart()
        stage.workspaces.lose(job_id)
        end = await stage.ended(job_id)
        assert len(stage.providers) == 2
        assert end.state is JobState.DONE
        assert TOO_LATE not in end.status
