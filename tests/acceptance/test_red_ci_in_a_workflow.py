"""Red CI through the Action: a workflow on `workflow_run` is what asks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.config import ActionSettings, load_action
from bot.jobs.job import JobState
from bot.localhub import LocalHub
from bot.localhub.model import Repo
from bot.wiring import work_step
from tests.origin import git
from tests.stage import FILES, FIX, MENDED, SEE_IT_FAIL, acting, build


def a_step(
    hub: LocalHub, directory: Path, *, branch: str, files: Mapping[str, str] | None = None, of_fork: bool = False
) -> tuple[Repo, ActionSettings]:
    """A workflow's step that runs because another workflow of the repository has failed on a branch."""
    payloads: dict[str, Mapping[str, Any]] = {}
    _, repo = build(hub, {**FILES, **(files or {})})
    runner = hub.add_user("github-actions[bot]", kind="Bot")
    hub.add_collaborator(repo, runner.login, "write")
    hub.observe(sent=payloads.__setitem__)
    home, author = repo, "mona"
    if of_fork:
        author = hub.add_user("forker").login
        home = hub.add_repo("forker/calc", owner="forker", fork_of=repo)
    if branch != "main":
        hub.commit(home, {"topic.txt": "A topic.\n"}, message="Add a topic", author=author, branch=branch)
        hub.open_pull(repo, author=author, head=f"forker:{branch}" if of_fork else branch, title="Add a topic")
    hub.workflow_run(
        repo,
        head_sha=hub.branches(home)[branch],
        head_branch=branch,
        head_repository=home,
        conclusion="failure",
        actor=author,
        event="push" if branch == "main" else "pull_request",
    )
    (directory / "event.json").write_text(json.dumps(payloads["workflow_run"]))
    (directory / "script.yaml").write_text(json.dumps([{"reply": each} for each in (SEE_IT_FAIL, FIX)]))
    settings = load_action(
        {
            "GITHUB_TOKEN": runner.token,
            "GITHUB_EVENT_PATH": str(directory / "event.json"),
            "GITHUB_EVENT_NAME": "workflow_run",
            "GITHUB_REPOSITORY": repo.full_name,
            "GITHUB_RUN_ID": "41",
            "GITHUB_API_URL": hub.api_url,
            "GITHUB_SERVER_URL": hub.url,
            "GITHUB_STEP_SUMMARY": str(directory / "summary"),
            "CODEPILOT_PROVIDER": "scripted",
            "CODEPILOT_MODEL": str(directory / "script.yaml"),
            "CODEPILOT_DATA_DIR": str(directory / "data"),
            "CODEPILOT_LEVEL": "auto",
        }
    )
    return repo, settings


@pytest.mark.parametrize("branch", ["topic", "main"])
async def test_a_workflow_on_failed_runs_mends_them(hub: LocalHub, tmp_path: Path, branch: str) -> None:
    repo, settings = a_step(hub, tmp_path, branch=branch)
    end = await work_step(settings)
    assert end.ended is JobState.DONE, end
    made = branch if branch != "main" else f"codepilot/fix-ci-{hub.workflow_runs(repo)[-1].id}"
    assert git(repo.path, "show", f"{made}:calc.py") == MENDED.strip()
    summary = (tmp_path / "summary").read_text()
    assert "CI asked: [`CI`](" in summary
    assert "@mona" not in summary
    pulls = [each for each in hub.issues(repo) if each.pull is not None]
    assert len(pulls) == 1
    assert len(hub.comments(repo, 1)) == (1 if branch == "topic" else 0)


async def test_the_proof_runs_where_the_agents_commands_start(hub: LocalHub, tmp_path: Path) -> None:
    below = {f"packages/calc/{path}": text for path, text in FILES.items()}
    repo, settings = a_step(hub, tmp_path, branch="topic", files={**below, "check.sh": "exit 3\n"})
    script = [SEE_IT_FAIL, FIX.replace('write_file("', 'write_file("packages/calc/')]
    (tmp_path / "script.yaml").write_text(json.dumps([{"reply": each} for each in script]))
    inputs = replace(settings.inputs, working_directory="packages/calc")
    end = await work_step(replace(settings, inputs=inputs))
    assert end.ended is JobState.DONE, end
    assert git(repo.path, "show", "topic:packages/calc/calc.py") == MENDED.strip()


async def test_the_repositorys_file_narrows_what_a_workflow_does(hub: LocalHub, tmp_path: Path) -> None:
    only = {".github/codepilot.yml": "fix_ci: [default-branch]\n"}
    repo, settings = a_step(hub, tmp_path, branch="topic", files=only)
    end = await work_step(settings)
    assert end.ended is JobState.DONE
    assert hub.comments(repo, 1) == []
    assert set(hub.branches(repo)) == {"main", "topic"}


async def test_why_nothing_is_done_is_told_once_over_all_runs(hub: LocalHub, tmp_path: Path) -> None:
    repo, settings = a_step(hub, tmp_path, branch="topic")
    hub.commit(repo, {"more.txt": "More.\n"}, message="Go on", author="mona", branch="topic")
    for run_id in (41, 42):
        end = await work_step(replace(settings, run_id=run_id))
        assert end.ended is JobState.REFUSED
    [told] = hub.comments(repo, 1)
    assert "somebody has pushed since" in told.body
    assert "somebody has pushed since" in (tmp_path / "summary").read_text()


async def test_a_fork_is_diagnosed_twice_however_often_it_fails(hub: LocalHub, tmp_path: Path) -> None:
    repo, settings = a_step(hub, tmp_path, branch="topic", of_fork=True)
    (tmp_path / "script.yaml").write_text(json.dumps([{"reply": acting("pass", completion="`add` is off by one.")}]))
    states = [(await work_step(replace(settings, run_id=run_id))).ended for run_id in (41, 42, 43)]
    assert states == [JobState.DONE, JobState.DONE, JobState.REFUSED]
    assert len(hub.comments(repo, 1)) == 2
    assert "I have said 2 times here what makes checks fail" in (tmp_path / "summary").read_text()
