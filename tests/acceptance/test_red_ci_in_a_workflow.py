"""Red CI through the Action: a workflow on `workflow_run` is what asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.origin import git
from tests.stage import FILES, FIX, FIXED_CALC, SEE_IT_FAIL
from tests.workflow_runs import Workflows


def after_a_failed_run(
    hub: LocalHub, directory: Path, *, branch: str, files: Mapping[str, str] | None = None
) -> Workflows:
    """A repository whose workflow of Codepilot is to run because another workflow has failed on a branch."""
    flows = Workflows.of(hub, directory, {**FILES, **(files or {})})
    if branch != "main":
        hub.commit(flows.repo, {"topic.txt": "A topic.\n"}, message="Add a topic", author="mona", branch=branch)
        hub.open_pull(flows.repo, author="mona", head=branch, title="Add a topic")
    hub.workflow_run(
        flows.repo,
        head_sha=hub.branches(flows.repo)[branch],
        head_branch=branch,
        conclusion="failure",
        actor="mona",
        event="push" if branch == "main" else "pull_request",
    )
    return flows


async def test_a_workflow_on_failed_runs_fixes_the_default_branch(hub: LocalHub, tmp_path: Path) -> None:
    flows = after_a_failed_run(hub, tmp_path, branch="main")
    end = await flows.run("workflow_run", [SEE_IT_FAIL, FIX])
    assert end.ended is JobState.DONE, end
    branch = f"codepilot/fix-ci-{hub.workflow_runs(flows.repo)[-1].id}"
    assert git(flows.repo.path, "show", f"{branch}:calc.py") == FIXED_CALC.strip()
    assert "Started by CI: [`CI`](" in end.summary
    assert "@mona" not in end.summary
    [pull] = [issue for issue in hub.issues(flows.repo) if issue.pull is not None]
    assert hub.comments(flows.repo, pull.number) == []


async def test_the_proof_runs_where_the_agents_commands_start(hub: LocalHub, tmp_path: Path) -> None:
    below = {f"packages/calc/{path}": text for path, text in FILES.items()}
    flows = after_a_failed_run(hub, tmp_path, branch="topic", files={**below, "check.sh": "exit 3\n"})
    script = [SEE_IT_FAIL, FIX.replace('write_file("', 'write_file("packages/calc/')]
    end = await flows.run("workflow_run", script, **{"INPUT_WORKING-DIRECTORY": "packages/calc"})
    assert end.ended is JobState.DONE, end
    assert git(flows.repo.path, "show", "topic:packages/calc/calc.py") == FIXED_CALC.strip()
