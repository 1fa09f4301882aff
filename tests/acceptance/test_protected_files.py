"""Threat 30 on the hub: a change to protected files is published when a person has approved that very change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bot.domain.job import JobState
from bot.jobs.record import StoredRecord
from localhub import LocalHub
from tests.bot.jobs.test_run_protected_files import JOBS, WORKFLOW
from tests.origin import git
from tests.patches import applied, kept_patch
from tests.pauses import check_of, paused_fix
from tests.stage import FIXED_CALC, acting, staged

ADDS = acting(
    f'write_file("calc.py")\nwrite_file("{WORKFLOW}")',
    FIXED_CALC,
    JOBS,
    completion="Fixed `add`, and had CI check it.",
)


async def test_an_approved_change_becomes_a_draft_that_says_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ADDS]) as stage:
        issue = stage.issue()
        command, pause = await paused_fix(stage, issue.number)
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert (end.state, end.job_id) == (JobState.DONE, pause.job_id)
        assert "Not published" not in end.status
        [(branch, sha)] = stage.bot_branches().items()
        assert stage.file(sha, WORKFLOW) == JOBS.strip()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert stage.git("rev-list", "--count", f"main..{branch}") == "1"
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.draft
        assert "Approved by a person" in (pull.body or "")
        assert WORKFLOW in (pull.body or "")
        assert len(stage.bot_comments(issue.number)) == 1
        # Nobody asked the model again.
        assert len(stage.providers) == 1
        assert not kept_patch(stage, pause.job_id).exists()


async def test_a_denied_change_is_kept_as_a_patch_that_git_applies(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ADDS]) as stage:
        issue = stage.issue()
        command, pause = await paused_fix(stage, issue.number)
        stage.say(issue.number, f"/codepilot deny {pause.short_id} not now")
        end = await stage.end_of(command)
        assert stage.nothing_published()
        assert f"{end.job_id}.patch" in end.status
        assert "+on: push" in (check_of(stage, end.job_id).text or "")
        assert (applied(stage, end.job_id) / WORKFLOW).read_text() == JOBS


async def test_an_approval_covers_that_very_tree_only(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ADDS]) as stage:
        issue = stage.issue()
        command, pause = await paused_fix(stage, issue.number)
        patch = kept_patch(stage, pause.job_id)
        patch.write_text(patch.read_text().replace("+on: push", "+on: pull_request_target"))
        clone = applied(stage, pause.job_id)
        git(clone, "add", "--all")
        result = (await StoredRecord(stage.queue, pause.job_id).read()).result
        assert result is not None
        altered = replace(result, tree_sha=git(clone, "write-tree"))
        await StoredRecord(stage.queue, pause.job_id).update(lambda record: replace(record, result=altered))
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert "Not published" in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []
