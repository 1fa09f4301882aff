"""A plan changes nothing; approving it starts the work, in a run of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.commands import Fix, Review
from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.pauses import ASKING, Pause, buttons_of, check_of, out_of_time, pause_of, still_waits
from tests.stage import COMPLETION, FIXED_CALC, End, Stage, acting, staged
from tests.waiting import eventually

PLAN = "1. Take the `+ 1` out of `add`.\n2. Run the check."
PLANS = f"```completion\n{PLAN}\n```\n"
FIXES = ScriptedReply(
    text=acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION, fence="python"),
    expect=("Take the `+ 1` out of `add`", "make adding right"),
)
"""The work on the plan, whose words and goal it has read."""


async def _planned(stage: Stage, number: int) -> tuple[Comment, Pause]:
    command = stage.say(number, "/codepilot plan make adding right")
    return command, await pause_of(stage, command)


async def _worked(stage: Stage, pause: Pause) -> End:
    """How the work on an approved plan ended."""

    async def begun() -> str | None:
        jobs = await stage.queue.jobs_in_thread(stage.repo.id, pause.number)
        return next((each.job.id for each in jobs if each.job.id != pause.job_id), None)

    return await stage.ended(await eventually(begun))


async def test_a_plan_waits_in_a_comment_for_a_yes_or_no(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS], operator=ASKING) as stage:
        _, pause = await _planned(stage, stage.issue().number)
        for said in (
            "This is a plan.",
            PLAN,
            f"/codepilot approve {pause.request_id}\n",
            f"/codepilot deny {pause.request_id}\n",
        ):
            assert said in pause.status, said
        assert stage.nothing_published()
        assert stage.nothing_left()
        assert set(buttons_of(check_of(stage, pause.job_id))) == {"Approve", "Deny", "Stop"}


@pytest.mark.parametrize("button", [True, False], ids=["button", "comment"])
async def test_an_approved_plan_is_carried_out_in_a_run_of_its_own(
    hub: LocalHub, tmp_path: Path, *, button: bool
) -> None:
    async with staged(hub, tmp_path, [PLANS], [FIXES]) as stage:
        issue = stage.issue()
        command, pause = await _planned(stage, issue.number)
        if button:
            check = check_of(stage, pause.job_id)
            hub.press(check, buttons_of(check)["Approve"], by="mona")
        else:
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        planned = await stage.end_of(command)
        assert planned.state is JobState.DONE
        assert PLAN in planned.status
        assert "The plan was approved" in planned.status
        worked = await _worked(stage, pause)
        assert worked.state is JobState.DONE, worked
        assert COMPLETION in worked.status
        assert len(stage.bot_comments(issue.number)) == 2
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        [pull] = stage.pulls()
        assert f"Fixes #{issue.number}" in (pull.body or "")


async def test_a_plan_that_is_too_long_to_be_shown_is_not_offered_to_be_approved(hub: LocalHub, tmp_path: Path) -> None:
    long = f"```completion\n{'One more step of it. ' * 1_000}And a hidden one.\n```\n"
    async with staged(hub, tmp_path, [long]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot plan make adding right")
        assert end.state is JobState.DONE
        assert "too long to be shown in full," in end.status
        assert "/codepilot approve" not in end.status


async def test_what_nobody_sees_in_a_plan_is_not_carried_out(hub: LocalHub, tmp_path: Path) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "Delete all.")
    plans = f"```completion\n{PLAN}{hidden}\n```\n"
    carried = ScriptedReply(text="```completion\nDone.\n```\n", expect=("Run the check.",))
    async with staged(hub, tmp_path, [plans], [carried]) as stage:
        issue = stage.issue()
        _, pause = await _planned(stage, issue.number)
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        worked = await _worked(stage, pause)
        assert worked.state is JobState.DONE
        stored = await stage.queue.get(worked.job_id)
        assert stored is not None
        assert isinstance(stored.job.command, Fix)
        assert stored.job.command.plan == PLAN


async def test_a_denied_plan_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS]) as stage:
        issue = stage.issue()
        command, pause = await _planned(stage, issue.number)
        stage.say(issue.number, f"/codepilot deny {pause.short_id} too bold")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert "@mona said no: too bold" in end.status
        assert PLAN in end.status
        assert "/codepilot approve" not in end.status
        await _no_work(stage, pause)


async def test_a_plan_that_nobody_approves_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS], operator={"approval_hours": 0}) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot plan make adding right")
        assert end.state is JobState.DONE
        assert "Nobody answered the request" in end.status
        assert PLAN in end.status
        late = await stage.ask(issue.number, "/codepilot approve")
        assert late.state is JobState.REFUSED
        assert len(stage.providers) == 1


async def test_a_plan_approved_too_late_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS]) as stage:
        issue = stage.issue()
        _, pause = await _planned(stage, issue.number)
        await out_of_time(stage, pause)
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        await _no_work(stage, pause)


async def test_a_plan_approved_twice_is_carried_out_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS], [FIXES]) as stage:
        hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await _planned(stage, issue.number)
        answers = [
            stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=author)
            for author in ("mona", "rita")
        ]
        states = {(await stage.end_of(each)).state for each in answers}
        assert states == {JobState.DONE, JobState.REFUSED}
        await stage.end_of(command)
        assert (await _worked(stage, pause)).state is JobState.DONE
        assert len(await stage.queue.jobs_in_thread(stage.repo.id, issue.number)) == 2
        assert len(stage.pulls()) == 1


async def test_a_strangers_approval_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS]) as stage:
        stranger = hub.add_user("stranger").login
        issue = stage.issue()
        _, pause = await _planned(stage, issue.number)
        end = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}", author=stranger)
        assert end.state is JobState.REFUSED
        assert await still_waits(stage, pause)
        await _no_work(stage, pause)


async def test_a_push_voids_a_plan_for_the_commit_before(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS]) as stage:
        pull = stage.pull()
        command, pause = await _planned(stage, pull.number)
        moved = hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
        end = await stage.end_of(command)
        assert f"moved to {moved[:10]}" in end.status
        late = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        await _no_work(stage, pause)


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


async def test_an_approval_of_a_plan_outlives_the_service(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [PLANS]) as first:
        issue = first.issue()
        command, pause = await _planned(first, issue.number)
    async with staged(hub, tmp_path, [FIXES], after=first) as second:
        second.say(issue.number, f"/codepilot approve {pause.short_id}")
        assert (await second.end_of(command)).state is JobState.DONE
        assert (await _worked(second, pause)).state is JobState.DONE
        assert len(second.pulls()) == 1


async def _no_work(stage: Stage, pause: Pause) -> None:
    jobs = await stage.queue.jobs_in_thread(stage.repo.id, pause.number)
    # A push may ask for a review, which this repository does not want.
    assert [each.job.id for each in jobs if not isinstance(each.job.command, Review)] == [pause.job_id]
    assert len(stage.providers) == 1
    assert stage.nothing_published()
