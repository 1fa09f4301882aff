"""However a run ends, what it did is kept, and its comment says where."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import RunLimits
from bot.domain.job import JobState
from localhub import LocalHub
from tests.bot.jobs.test_run_kept_work import NO_BRANCHES
from tests.durable import begun
from tests.patches import applied, kept_patch
from tests.pauses import check_of
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, End, Stage, acting, staged
from tests.waiting import eventually

FIXES = acting('write_file("calc.py")', FIXED_CALC, fence="python")
"""Half of the work: the file is written, and the model has not said that it is done."""
FIXES_AND_WAITS = acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC, fence="python")
ONE_STEP = RunLimits(max_steps=1)


def _on_a_branch(stage: Stage, end: End) -> None:
    """The work is on a branch of its own, which no pull request is for, and the comment links it."""
    [(branch, sha)] = stage.bot_branches().items()
    assert branch.endswith("-wip")
    assert branch in end.status
    assert f"/compare/{stage.git('rev-parse', f'{sha}^')}...{branch}" in end.status
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.git("log", "-1", "--format=%s", sha).startswith("Keep unfinished work on ")


def _as_a_patch(stage: Stage, end: End) -> None:
    """The work is on no branch; the check run shows the patch, the operator has it, and the comment says both."""
    assert stage.nothing_published()
    assert "attached to the check run" in end.status
    assert f"`{end.job_id}.patch`" in end.status
    assert "30 days" in end.status
    assert "+    return a + b\n" in (check_of(stage, end.job_id).text or "")
    assert (applied(stage, end.job_id) / "calc.py").read_text() == FIXED_CALC


async def test_a_run_at_its_step_limit_leaves_a_branch(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIXES], limits=ONE_STEP) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "step limit" in end.status
        assert "CODEPILOT_MAX_STEPS" in end.status
        _on_a_branch(stage, end)
        assert stage.pulls() == []
        assert check_of(stage, end.job_id).conclusion not in {None, "success"}
        assert len(stage.bot_comments(issue.number)) == 1
        assert not kept_patch(stage, end.job_id).exists()


async def test_where_branches_are_not_wanted_a_patch_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIXES], limits=ONE_STEP, files=NO_BRANCHES) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "> **Not published.** The run reached its step limit." in end.status
        _as_a_patch(stage, end)


async def test_a_repository_archived_meanwhile_leaves_the_patch_with_the_operator(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIXES_AND_WAITS, f"```completion\n{COMPLETION}\n```\n"]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        hub.archive(stage.repo)
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is not JobState.RUNNING
        assert stage.nothing_published()
        assert (applied(stage, job_id) / "calc.py").read_text() == FIXED_CALC


async def test_what_github_refuses_to_take_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        # The owner takes a permission back.
        hub.permit(hub.install(stage.app, stage.repo), {**stage.app.permissions, "contents": "read"})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert stage.nothing_published()
        assert stage.pulls() == []
        _as_a_patch(stage, end)


async def test_a_service_that_ends_in_the_middle_costs_no_work(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIXES, acting(WAIT_FOR_GO)]) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        job_id = await first.job_of(command)

        await eventually(lambda: [type(each).__name__ for each in first.events].count("ToolCalled") > 1)
    assert (first.files_of(job_id) / "calc.py").read_text() == FIXED_CALC
    rest = [f"```completion\n{COMPLETION}\n```\n"]
    async with staged(hub, tmp_path, rest, after=first) as second:
        end = await second.end_of(command)
        assert end.state is JobState.DONE, end
        [sha] = second.bot_branches().values()
        assert second.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(second.pulls()) == 1
        assert len(second.bot_comments(issue.number)) == 1


async def test_a_job_given_up_after_its_workers_died_keeps_what_they_did(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIXES, acting(WAIT_FOR_GO)]) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        job_id = await first.job_of(command)
        await first.at_work()
        await eventually(lambda: (first.files_of(job_id) / "calc.py").read_text() == FIXED_CALC)
    async with staged(hub, tmp_path, [], after=first, held=True) as second:
        for attempt in (1, 2, 3, 4):
            if attempt == 4:  # the second charge has it held for a while
                assert await begun(second.queue, job_id, "nobody") is None
                await second.queue.release_hold(job_id)
            assert await begun(second.queue, job_id, f"killed-{attempt}") is not None
        second.open_for_work.set()
        end = await second.end_of(command)
        assert end.state is JobState.FAILED
        assert "died several times" in end.status
        assert end.job_id == job_id
        _as_a_patch(second, end)
        assert check_of(second, job_id).conclusion not in {None, "success"}


async def test_kept_patches_go_after_their_time(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIXES], limits=ONE_STEP, files=NO_BRANCHES) as first:
        end = await first.ask(first.issue().number, "/codepilot fix")
        assert kept_patch(first, end.job_id).exists()
    async with staged(hub, tmp_path, after=first):
        assert kept_patch(first, end.job_id).exists()
    async with staged(hub, tmp_path, after=first, operator={"keep_days": 0}):
        await eventually(lambda: not kept_patch(first, end.job_id).exists())
