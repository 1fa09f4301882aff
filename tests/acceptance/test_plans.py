"""A plan changes nothing; approving it starts the work, in a run of its own."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.bot.jobs.test_run_plans import PLAN
from tests.pauses import Pause, pause_of
from tests.stage import COMPLETION, FIXED_CALC, End, Stage, acting, staged
from tests.waiting import eventually

PLANS = f"```completion\n{PLAN}\n```\n"
FIXES = ScriptedReply(
    text=acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION, fence="python"),
    expect=("Take the `+ 1` out of `add`", "make adding right", "A maintainer has approved the quoted plan"),
)
"""The work on the plan, whose text and goal it has read."""


async def _planned(stage: Stage, number: int) -> tuple[Comment, Pause]:
    command = stage.say(number, "/codepilot plan make adding right")
    return command, await pause_of(stage, command)


async def _end_of_work(stage: Stage, pause: Pause) -> End:
    """Wait for the end of the work on an approved plan."""

    async def find_work() -> str | None:
        jobs = await stage.queue.jobs_in_thread(stage.repo.id, pause.number)
        return next((each.job.id for each in jobs if each.job.id != pause.job_id), None)

    return await stage.ended(await eventually(find_work))


async def test_an_approved_plan_is_carried_out_in_a_run_of_its_own(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS], [FIXES]) as stage:
        issue = stage.issue()
        command, pause = await _planned(stage, issue.number)
        approval = stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        plan = await stage.end_of(command)
        assert plan.state is JobState.DONE
        assert PLAN in plan.status
        assert "The plan was approved" in plan.status
        work = await _end_of_work(stage, pause)
        assert work.state is JobState.DONE, work
        assert COMPLETION in work.status
        assert stage.reactions(approval) == ["+1"]
        assert len(stage.bot_comments(issue.number)) == 2
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        [pull] = stage.pulls()
        assert f"Fixes #{issue.number}" in (pull.body or "")


async def test_a_planning_run_can_neither_write_nor_execute(hub: LocalHub, tmp_path: Path) -> None:
    script: list[str | ScriptedReply] = [
        acting('write_file("calc.py")', FIXED_CALC, fence="python"),
        ScriptedReply(text=acting('execute("main", "touch made")'), expect=("write_file",)),
        ScriptedReply(text=acting("print(read_file('calc.py'))"), expect=("execute",)),
        ScriptedReply(text=PLANS, expect=("return a + b + 1",)),
    ]
    async with staged(hub, tmp_path, script) as stage:
        _, pause = await _planned(stage, stage.issue().number)
        called = [each for each in stage.events if type(each).__name__ == "ToolCalled"]
        assert {getattr(each, "tool", getattr(each, "name", "")) for each in called} <= {"read_file"}, called
        assert PLAN in pause.status
        assert "made" not in pause.status
        assert stage.nothing_published()
