"""A workflow's own prompt with real git and commands; variations are in `test_run_workflow_prompts.py`."""

from __future__ import annotations

import json
from pathlib import Path

from bot.action.outputs import OUTPUTS
from bot.domain.job import JobState
from localhub import LocalHub
from tests.bot.jobs.test_run_workflow_prompts import GOAL
from tests.origin import git
from tests.stage import COMPLETION, FILES, FIX, acting
from tests.workflow_runs import Workflows

WEEKLY = {"schedule": "0 6 * * 1"}


def on_schedule(at: Workflows, **variables: str) -> dict[str, str]:
    """Variables of a runner's scheduled run, whose event names neither repository nor sender."""
    mona = at.hub.add_user("mona")
    at.payloads["schedule"] = WEEKLY
    return {
        "GITHUB_REPOSITORY_ID": str(at.repo.id),
        "GITHUB_ACTOR": mona.login,
        "GITHUB_ACTOR_ID": str(mona.id),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_WORKFLOW": "Scheduled maintenance",
        "CODEPILOT_PROMPT": GOAL,
        **variables,
    }


async def test_scheduled_maintenance_becomes_a_pull_request_against_the_branch(hub: LocalHub, tmp_path: Path) -> None:
    at = Workflows.of(hub, tmp_path)
    script = [{"reply": FIX, "expect": [GOAL]}]
    # Who last changed the workflow may have left since: its file vouches for the prompt.
    gone = hub.add_user("gone")
    named = {"GITHUB_ACTOR": gone.login, "GITHUB_ACTOR_ID": str(gone.id)}
    run = await at.run("schedule", script, **on_schedule(at, **named))
    assert run.ended is JobState.DONE, run.summary
    [pull] = [each for each in hub.issues(at.repo) if each.pull is not None]
    assert pull.pull is not None
    assert pull.pull.base_ref == "main"
    assert "Made by Codepilot for the workflow `Scheduled maintenance`" in (pull.body or "")
    assert hub.comments(at.repo, pull.number) == []
    values = run.values
    assert set(values) == set(OUTPUTS)
    sha = hub.branches(at.repo)[values["branch"]]
    assert (values["status"], values["commit-sha"], values["comment-url"]) == ("done", sha, "")
    assert values["branch"] == f"codepilot/branch-{values['run-id']}"
    assert values["pull-request-number"] == str(pull.number)
    assert values["pull-request-url"].endswith(f"/mona/calc/pull/{pull.number}")
    assert json.loads(values["changed-files"]) == ["calc.py"]
    assert json.loads(values["denied-calls"]) == []
    assert values["summary"] == COMPLETION
    assert (Path(values["patch-path"]).name, values["steps"]) == (f"{values['run-id']}.patch", "1")
    assert int(values["input-tokens"]) > 0
    assert "for the workflow `Scheduled maintenance`" in run.summary
    assert "Co-authored-by" not in git(at.repo.path, "log", "-1", "--format=%B", sha)


async def test_commands_and_setup_start_in_the_working_directory(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {"services/api/go.sh": "pwd\n", ".github/codepilot.yml": "setup: ['sh go.sh > where']\n"}
    at = Workflows.of(hub, tmp_path, files)
    step = acting(
        'r = execute("main", "cat where && sh go.sh", check=True)\nprint(r["output"])', completion="Looked around."
    )
    told = "commands start in /workspace/services/api"
    script = [{"reply": step, "expect": [told]}]
    run = await at.run("schedule", script, **on_schedule(at, CODEPILOT_WORKING_DIRECTORY="services/api"))
    assert run.ended is JobState.DONE, run.summary
