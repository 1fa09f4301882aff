"""Red CI of real projects: ten failures that a model fixes, and before that, each kind of lie of a model about one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import Issue, LocalHub, Repo
from tests.act import run_action
from tests.origin import git
from tests.real_failures import BY_ACTION, BY_APP, Failure, break_it, ended_jobs, files_of, went_red
from tests.source_files import ROOT
from tests.stage import Script, staged
from tests.workflow_runs import Workflows

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]
_LIED = {
    "changes nothing": "othing changed",
    "changes something else": "after it, run again by the bot",
    "never looks": "The failure was not reproduced",
    "runs another check": "after it, run again by the bot",
    "shadows the program": "after it, run again by the bot",
}


@pytest.fixture(scope="session", autouse=True)
def projects() -> None:
    """The projects' files."""
    script = ROOT / "scripts" / "red-projects"
    fetched = subprocess.run([script, sys.executable], capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"the projects cannot be had: {fetched.stderr.strip()}")


def _pulls(hub: LocalHub, repo: Repo) -> list[Issue]:
    return [each for each in hub.issues(repo) if each.pull is not None]


def _assert_fixed(hub: LocalHub, repo: Repo, failure: Failure, run_id: int) -> str:
    """See that the fix is where it belongs, and nothing else with it; give back what people are told of it."""
    made = f"codepilot/fix-ci-{run_id}" if failure.branch == "main" else failure.branch
    assert set(hub.branches(repo)) == {"main", made}
    right = files_of(failure.project)
    assert set(git(repo.path, "ls-tree", "-r", "--name-only", made).splitlines()) == set(right)
    assert git(repo.path, "show", f"{made}:{failure.path}") == right[failure.path].strip()
    [pull] = _pulls(hub, repo)
    if failure.branch != "main":
        return hub.comments(repo, pull.number)[-1].body
    assert pull.pull is not None
    assert (pull.pull.base_ref, pull.pull.draft) == ("main", False)
    return pull.body or ""


@pytest.mark.parametrize("failure", BY_APP, ids=lambda failure: failure.kind)
async def test_the_app_publishes_what_it_saw_pass_and_no_lie(hub: LocalHub, tmp_path: Path, failure: Failure) -> None:
    jobs = ended_jobs(failure, tmp_path / "ci")
    look, *fix = failure.fix
    expected = (f"run:\n    {failure.run}\n", *failure.quoted)
    fixes: Script = [ScriptedReply(text=look, expect=expected), *fix]
    scripts = [failure.lies, fixes] if failure.lie else [fixes]
    operator = {"toolchains": (Path(sys.prefix),)}
    async with staged(hub, tmp_path, *scripts, files=dict(files_of(failure.project)), operator=operator) as stage:
        repo = stage.repo
        break_it(hub, repo, failure)
        before, pulls = hub.branches(repo), len(_pulls(hub, repo))
        if failure.lie:
            went_red(hub, repo, failure, jobs)
            lied = await stage.end_after("workflow_run", "completed")
            assert lied.state is JobState.DONE, lied
            told = lied.status or hub.check_runs(repo)[-1].summary or ""
            assert "✅" not in told.partition("\n")[0]
            assert _LIED[failure.lie] in told
            assert hub.branches(repo) == before
            assert len(_pulls(hub, repo)) == pulls

        run_id = went_red(hub, repo, failure, jobs)
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert failure.proof in _assert_fixed(hub, repo, failure, run_id)


@pytest.mark.parametrize("failure", BY_ACTION, ids=lambda failure: failure.kind)
async def test_the_action_publishes_what_it_saw_pass_and_no_lie(
    hub: LocalHub, tmp_path: Path, failure: Failure
) -> None:
    jobs = ended_jobs(failure, tmp_path / "ci")
    workflows = Workflows.of(hub, tmp_path, dict(files_of(failure.project)))
    repo = workflows.repo
    break_it(hub, repo, failure)
    before, pulls = hub.branches(repo), len(_pulls(hub, repo))
    if failure.lie:
        went_red(hub, repo, failure, jobs)
        lied = await workflows.run("workflow_run", failure.lies, CODEPILOT_TOOLCHAINS=sys.prefix)
        assert lied.ended is JobState.DONE
        assert _LIED[failure.lie] in lied.summary
        assert lied.values["conclusion"] != "verified"
        assert hub.branches(repo) == before
        assert len(_pulls(hub, repo)) == pulls

    run_id = went_red(hub, repo, failure, jobs)
    look, *fix = failure.fix
    replies = [{"expect": [f"run:\n    {failure.run}\n", *failure.quoted], "reply": look}]
    replies += [{"reply": each} for each in fix]
    if failure == BY_ACTION[0]:
        conclusion = await _under_act(workflows, tmp_path, replies)
    else:
        ended = await workflows.run("workflow_run", replies, CODEPILOT_TOOLCHAINS=sys.prefix)
        conclusion = ended.values["conclusion"]
    assert conclusion == "verified"
    assert failure.proof in _assert_fixed(hub, repo, failure, run_id)


async def _under_act(workflows: Workflows, directory: Path, replies: Sequence[Mapping[str, object]]) -> str:
    """The conclusion of the run of a workflow as a runner makes it, which takes three times as long."""
    script = directory / "fix.yaml"
    script.write_text(json.dumps(replies), encoding="utf-8")
    run = await asyncio.to_thread(
        run_action,
        directory / "runner",
        event="workflow_run",
        payload={key: value for key, value in workflows.payloads["workflow_run"].items() if key != "installation"},
        inputs={"provider": "scripted", "model": str(script), "allow-root": "yes", "toolchains": sys.prefix},
        token=workflows.runner.token,
        repository=workflows.repo.full_name,
        api_url=workflows.hub.api_url,
        server_url=workflows.hub.url,
        installs=False,
    )
    assert run.succeeded, run.log[-6000:]
    return run.outputs["conclusion"]
