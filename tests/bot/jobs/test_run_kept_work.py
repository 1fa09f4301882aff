"""Work that a run leaves when it does not finish: on a branch, or as a patch, and its comment says where."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent_runtime import RunLimits, Status
from bot.domain.job import JobState
from tests.fakes.agent import Script, end, execute, reply, wait_for_test, write
from tests.fakes.stores import FakePatches
from tests.seam import COMPLETION, FIX, FIXED_CALC, End, Seam, open_seam
from tests.stage import FILES

FIXES = reply(write("calc.py", FIXED_CALC))
"""Half of the work: the file is written, and the model has not said that it is done."""
FIXES_AND_WAITS: Script = [reply(write("calc.py", FIXED_CALC), wait_for_test(), completion=COMPLETION)]
NO_BRANCHES = {**FILES, ".github/codepilot.yml": "wip_branches: false\n"}
STEP_LIMIT: Script = [FIXES, reply(end(Status.MAX_STEPS))]


def assert_on_a_branch(stage: Seam, ended: End) -> None:
    """Assert that the work is on a branch of its own without a pull request, and that the comment links it."""
    [(branch, sha)] = stage.bot_branches().items()
    assert branch.endswith("-wip")
    assert branch in ended.status
    assert f"/compare/{stage.head(f'{sha}^')}...{branch}" in ended.status
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.message(sha).startswith("Keep unfinished work on ")


def assert_as_a_patch(stage: Seam, ended: End, text: str = "+    return a + b\n") -> None:
    """Assert that the work is on no branch: the check run and the operator have the patch, and the comment says so."""
    assert stage.nothing_published()
    assert "attached to the check run" in ended.status
    assert f"`{ended.job_id}.patch`" in ended.status
    assert "30 days" in ended.status
    assert text in (stage.check_of(ended.job_id).text or "")
    assert text in (stage.kept_patch(ended.job_id) or "")


async def stop_run(stage: Seam, number: int) -> End:
    """Stop a run in the middle of its work."""
    command = stage.say(number, "/codepilot fix")
    await stage.job_of(command)
    await stage.at_work()
    stage.say(number, "/codepilot stop")
    return await stage.end_of(command)


async def test_a_patch_that_cannot_be_removed_changes_no_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_patches: FakePatches, _job_id: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FakePatches, "delete", fail)
    async with open_seam(tmp_path, FIX) as stage:
        ended = await stage.ask(stage.issue().number, "/codepilot fix")
        assert ended.state is JobState.DONE
        assert COMPLETION in ended.status


async def test_a_limit_of_the_command_counts_alike(tmp_path: Path) -> None:
    async with open_seam(tmp_path, STEP_LIMIT) as stage:
        ended = await stage.ask(stage.issue().number, "/codepilot fix --max-steps 1")
        assert ended.state is JobState.FAILED
        assert "step limit" in ended.status
        assert stage.providers[0].specs[-1].policy.limits.max_steps == 1
        assert_on_a_branch(stage, ended)


async def test_unfinished_work_on_a_pull_request_does_not_go_to_its_branch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, STEP_LIMIT, limits=RunLimits(max_steps=1)) as stage:
        pull = stage.pull()
        before = stage.head("topic")
        ended = await stage.ask(pull.number, "/codepilot fix")
        assert stage.head("topic") == before
        assert_on_a_branch(stage, ended)
        assert [each.number for each in stage.pulls()] == [pull.number]
        assert stage.check_of(ended.job_id).conclusion == "failure"


@pytest.mark.parametrize("files", [FILES, NO_BRANCHES], ids=["branch", "patch"])
async def test_a_stopped_run_keeps_its_work(tmp_path: Path, files: dict[str, str]) -> None:
    async with open_seam(tmp_path, FIXES_AND_WAITS, files=files) as stage:
        issue = stage.issue()
        ended = await stop_run(stage, issue.number)
        assert ended.state is JobState.STOPPED
        assert "Stopped by @mona" in ended.status
        (assert_on_a_branch if files is FILES else assert_as_a_patch)(stage, ended)
        assert stage.pulls() == []
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()


async def test_a_run_that_is_stopped_before_it_did_anything_leaves_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test())]) as stage:
        ended = await stop_run(stage, stage.issue().number)
        assert ended.state is JobState.STOPPED
        assert stage.nothing_published()
        assert "patch" not in ended.status
        assert stage.kept_patch(ended.job_id) is None


async def test_unfinished_work_on_protected_files_goes_to_no_branch(tmp_path: Path) -> None:
    script = [reply(write(".github/workflows/ci.yml", "on: push\n")), reply(end(Status.MAX_STEPS))]
    async with open_seam(tmp_path, script) as stage:
        ended = await stage.ask(stage.issue().number, "/codepilot fix")
        assert ended.state is JobState.FAILED
        assert "`.github/workflows/ci.yml`" in ended.status
        assert_as_a_patch(stage, ended, "+on: push")


async def test_a_model_that_fails_costs_no_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [FIXES, reply(end(Status.FAILED, "The model failed."))]) as stage:
        ended = await stage.ask(stage.issue().number, "/codepilot fix")
        assert ended.state is JobState.FAILED
        assert "The model failed." in ended.status
        assert_on_a_branch(stage, ended)


@pytest.mark.parametrize(("meanwhile", "reason"), [("role", "write access"), ("closed", "closed")])
async def test_a_refusal_meanwhile_keeps_the_finished_work(tmp_path: Path, meanwhile: str, reason: str) -> None:
    async with open_seam(tmp_path, FIXES_AND_WAITS) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author="rita")
        job_id = await stage.job_of(command)
        await stage.at_work()
        if meanwhile == "role":
            stage.hub.add_collaborator(stage.repo, "rita", "read")
            await stage.let_go(job_id)
        else:
            stage.hub.close(stage.repo, issue.number, by="mona")
        ended = await stage.end_of(command)
        assert stage.pulls() == []
        assert reason in ended.status
        assert_as_a_patch(stage, ended)


async def test_a_run_that_may_not_publish_keeps_no_patch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(execute("touch made", writes={"made": ""}), completion="Looked.")]) as stage:
        ended = await stage.ask(stage.issue().number, "/codepilot test")
        assert ended.state is JobState.DONE
        assert stage.nothing_published()
        assert "patch" not in ended.status
        assert stage.kept_patch(ended.job_id) is None
