"""Runs that have no person to ask: a call that needs an approval is denied, and the run goes on."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from tests.fakes.agent import ask_user, execute, reply, write
from tests.seam import ASKING, COMPLETION, FIXED_CALC, open_seam

UNATTENDED = {"sessions": None, "is_long_running": False}
"""A step of a workflow without a place for the state of a waiting run."""
WORKFLOW = ".github/workflows/ci.yml"


async def test_a_call_that_needs_an_approval_is_denied_and_the_run_goes_on(tmp_path: Path) -> None:
    denial = "nobody can be asked in this run; decide for yourself, and say in the completion what you decided"
    script = [
        reply(write("calc.py", FIXED_CALC)),
        reply(
            execute("npm view left-pad", handled=True),
            execute("sh check.sh > log", handled=True),
            ask_user("Is one too many?"),
            execute("ls"),
        ),
        reply(execute("cat calc.py"), completion=COMPLETION, expect=denial),
    ]
    async with open_seam(tmp_path, script, operator=ASKING, services=UNATTENDED) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        status = end.status
        assert "**Denied, because nobody can approve calls in this run**" in status
        assert "- `npm view left-pad`. To allow it, add `npm view left-pad` to `allow` in `.github/codepilot.yml`" in (
            status
        )
        assert "- `sh check.sh > log`. To allow it, set `level: auto`" in status
        assert "- Not answered: `Is one too many?`" in status
        assert "did not end" not in status
        assert stage.providers[0].commands == ["cat calc.py"]
        assert len(stage.pulls()) == 1
        assert [spec.attended for spec in stage.providers[0].specs] == [False]


async def test_only_files_that_need_an_approval_are_withheld_and_shown(tmp_path: Path) -> None:
    calls = write("calc.py", FIXED_CALC), write(WORKFLOW, "on: push\n"), execute("sh check.sh")
    async with open_seam(tmp_path, [reply(*calls, completion=COMPLETION)], services=UNATTENDED) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert f"It changes files that require a person's approval: `{WORKFLOW}`." in end.status
        assert "everything else is published" in end.status
        assert end.status.count("+on: push") == 1
        assert "The patch is in the summary of this workflow run." in end.status
        assert end.status.startswith("### ⚠️ Published in part; not verified · ")
        assert "No check ran on the published change, without the withheld files." in end.status
        [thread] = stage.pulls()
        assert thread.pull is not None
        assert thread.pull.draft
        assert f"nobody could approve it in the run: `{WORKFLOW}`." in (thread.body or "")
        assert (thread.body or "").startswith("**⚠️ Not verified.** No check ran on the published change")
        [branch] = stage.bot_branches()
        assert stage.changed_paths("main", branch) == ["calc.py"]
        assert "+    return a + b" not in (stage.kept_patch(end.job_id) or "")


async def test_a_change_of_protected_files_alone_is_not_published(tmp_path: Path) -> None:
    script = [reply(write(WORKFLOW, "on: push\n"), completion=COMPLETION)]
    async with open_seam(tmp_path, script, services=UNATTENDED) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "This requires a separate approval." in end.status
        assert end.status.count("The patch is in the summary of this workflow run.") == 1
        assert "+on: push" in end.status
        assert stage.nothing_published()
