"""Limits on the work of a thread and a repository with the durable queue, and the lists of users as inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.access import Caps
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import FILES, WAIT_FOR_GO, acting, staged
from tests.waiting import eventually
from tests.workflow_runs import Workflows

DONE = ["```completion\nNothing to do.\n```\n"]


@pytest.mark.slow
@pytest.mark.timeout(600)  # a busy machine takes minutes
async def test_many_commands_at_once_in_one_thread_end_in_bounded_work(hub: LocalHub, tmp_path: Path) -> None:
    first = [acting(WAIT_FOR_GO), *DONE]
    async with staged(hub, tmp_path, first, *[DONE] * 20, operator={"caps": Caps(thread=3)}) as stage:
        issue = stage.issue()
        commands = [stage.say(issue.number, f"/codepilot fix {number}") for number in range(16)]
        jobs = [await stage.job_of(each) for each in commands]
        # All are greeted while the first one works: nobody has used the thread's share up by then.
        await eventually(lambda: all(stage.reactions(each) for each in commands), within=300)
        running = await eventually(lambda: [each for each in jobs if stage.files_of(each).is_dir()], within=300)
        await stage.let_go(running[0])
        ends = [await stage.ended(each, within=300) for each in jobs]
        assert sum(each.state is JobState.DONE for each in ends) == 3
        assert {each.state for each in ends} == {JobState.DONE, JobState.REFUSED}
        assert len(stage.providers) == 3
        assert not [each for each in stage.bot_comments(issue.number) if "Waiting its turn" in each]
        assert stage.nothing_left()


async def test_a_repository_runs_as_many_jobs_at_once_as_the_operator_lets_it(hub: LocalHub, tmp_path: Path) -> None:
    scripts = [acting(WAIT_FOR_GO), *DONE], DONE, DONE, DONE
    async with staged(hub, tmp_path, *scripts, serving={"jobs_per_repository": 1}) as stage:
        elsewhere = replace(stage, repo=hub.add_repo("mona/other", owner="mona", files=FILES))
        hub.install(stage.app, elsewhere.repo)
        first = stage.say(stage.issue().number, "/codepilot fix")
        running = await stage.job_of(first)
        await stage.at_work()
        behind = stage.say(stage.issue().number, "/codepilot fix")
        await eventually(lambda: any("Waiting its turn" in each for each in stage.bot_comments(behind.number)) or None)
        # A place of the worker is free. Another repository has it twice; the job behind would have had it in between.
        for _ in range(2):
            assert (await elsewhere.ask(elsewhere.issue().number, "/codepilot fix")).state is JobState.DONE
        assert await stage.state_of(await stage.job_of(behind)) is JobState.QUEUED
        assert len(stage.providers) == 3
        await stage.let_go(running)
        assert [(await stage.end_of(each)).state for each in (first, behind)] == [JobState.DONE, JobState.DONE]


async def test_the_action_takes_the_lists_of_users_and_bots_as_inputs(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    robot = hub.add_user("robot[bot]", kind="Bot")
    issue = hub.open_issue(flows.repo, author="mona", title="Why?")
    hub.comment(flows.repo, issue.number, author="mona", body="/codepilot ask why?")
    refused = await flows.run("issue_comment", **{"INPUT_ALLOWED-USERS": "octocat"})
    assert refused.ended is JobState.REFUSED
    hub.comment(flows.repo, issue.number, author=robot.login, body="/codepilot ask why?")
    answer = acting('read_file("calc.py")', completion="It adds.")
    done = await flows.run("issue_comment", [answer], **{"INPUT_TRUSTED-BOTS": "robot[bot]"})
    assert done.ended is JobState.DONE, done.summary
