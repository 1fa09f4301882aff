"""Runs in a workflow, which have no person to ask: files that need an approval are withheld and shown."""

from __future__ import annotations

from pathlib import Path

from bot.action.step import work_step
from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_action_outage import a_runner
from tests.origin import git
from tests.stage import COMPLETION, FIXED_CALC, acting


async def test_the_readmes_workflow_takes_a_fix_that_python_proves(hub: LocalHub, tmp_path: Path) -> None:
    proves = 'execute("main", "python3 -c \'import calc; assert calc.add(1, 1) == 2\'", check=True)'
    run = a_runner(hub, tmp_path, acting(f'write_file("calc.py")\n{proves}', FIXED_CALC, completion=COMPLETION))
    assert run.settings.agent.level == "ask"
    assert (await work_step(run.settings)).ended is JobState.DONE
    [_, status] = hub.comments(run.repo, run.number)
    assert "| ✅ | `python3 -c 'import calc; assert calc.add(1, 1) == 2'` | passed, ad hoc |" in status.body
    assert "Denied" not in status.body
    [_] = [each for each in hub.issues(run.repo) if each.pull is not None]


WORKFLOW = ".github/workflows/ci.yml"
WRITES = 'write_file("calc.py")\nwrite_file("' + WORKFLOW + '")'


async def test_only_what_a_person_must_approve_is_withheld_and_shown(hub: LocalHub, tmp_path: Path) -> None:
    proves = f'{WRITES}\nexecute("main", "sh check.sh", check=True)'
    run = a_runner(hub, tmp_path, acting(proves, FIXED_CALC, "on: push\n", completion=COMPLETION))
    assert (await work_step(run.settings)).ended is JobState.DONE
    [_, status] = hub.comments(run.repo, run.number)
    summary = run.summary.read_text(encoding="utf-8")
    for told in (status.body, summary):
        assert f"It changes files that require a person's approval: `{WORKFLOW}`." in told
        assert "everything else is published" in told
        assert told.count("+on: push") == 1
        assert "The patch is in the summary of this workflow run." in told
        assert told.startswith("### ⚠️ Published in part; not verified · ")
        assert "No check ran on the published change, without the withheld files." in told
    [pull] = [each for each in hub.issues(run.repo) if each.pull is not None]
    assert pull.pull is not None
    assert pull.pull.draft
    assert f"nobody could approve it in the run: `{WORKFLOW}`." in (pull.body or "")
    assert (pull.body or "").startswith("**⚠️ Not verified.** No check ran on the published change")
    [branch] = set(hub.branches(run.repo)) - {"main"}
    assert git(run.repo.path, "diff", "--name-only", "main", branch) == "calc.py"
    assert "+    return a + b" not in summary, "what is published is in no patch"
