"""What an agent is told of a workflow run that went red."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import APP_PERMISSIONS, EndedJob, LocalHub
from tests.acceptance.test_red_ci import CONFIGURED, ran
from tests.stage import FILES, FIX, SEE_IT_FAIL, Stage, staged

STEPS = [("Run actions/setup-python@v6", "success"), ("Run tests", "failure")]
TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
WORKFLOW = """\
name: CI
on: [push, pull_request]
env:
  MODE: ci
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.10", "3.11"]
    env:
      TOKEN: ${{ secrets.CALC_TOKEN }}
    steps:
      - uses: actions/setup-python@v6
        with:
          python-version: ${{ matrix.python }}
      - name: Run tests
        run: sh check.sh ${{ matrix.python }}
"""
LOG = f"""\
\ufeff2026-01-01T00:00:00.0000001Z ##[group]Run sh check.sh 3.11
2026-01-01T00:00:00.0000002Z \x1b[36;1msh check.sh 3.11\x1b[0m
2026-01-01T00:00:00.0000003Z ##[endgroup]
2026-01-01T00:00:00.1000000Z using {TOKEN}
2026-01-01T00:00:00.2000000Z \x1b[31m1 failed\x1b[0m
2026-01-01T00:00:00.3000000Z ##[error]Process completed with exit code 1.
"""


def went_red(stage: Stage, jobs: Sequence[EndedJob]) -> None:
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.hub.branches(stage.repo)["topic"],
        head_branch="topic",
        conclusion="failure",
        actor="mona",
        event="pull_request",
        jobs=jobs,
    )


async def test_the_failed_jobs_are_quoted_without_secrets_and_the_agent_fixes_them(
    hub: LocalHub, tmp_path: Path
) -> None:
    expected = (
        "failed job test (3.11) of workflow CI: failure",
        "Failed step 2: Run tests (failure)\nrun:\n    sh check.sh 3.11",
        "Environment:\n    MODE=ci\n    TOKEN=${{ secrets.CALC_TOKEN }}",
        "- uses actions/setup-python@v6 (python-version: 3.11)",
        "1 failed\nError: Process completed with exit code 1.",
        "using [redacted]",
        "Annotations:\ncalc.py:2: it is one too many, says [redacted]",
    )
    files = CONFIGURED | {".github/workflows/ci.yml": WORKFLOW}
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=files) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        remarks = [
            (".github", 1, "Process completed with exit code 1."),
            ("calc.py", 2, f"it is one too many, says {TOKEN}"),
        ]
        green = EndedJob(name="test (3.10)", conclusion="success", steps=STEPS[:1], log="well\n")
        went_red(
            stage,
            [green, EndedJob(name="test (3.11)", conclusion="failure", steps=STEPS, log=LOG, annotations=remarks)],
        )
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_without_the_permission_to_read_annotations_the_job_goes_on_and_names_it(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=CONFIGURED) as stage:
        hub.permit(stage.installation, {name: level for name, level in APP_PERMISSIONS.items() if name != "checks"})
        stage.pull()
        ran(stage, "success", branch="main")
        went_red(stage, [EndedJob(name="test", conclusion="failure", steps=STEPS, annotations=[("calc.py", 2, "no")])])
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert (
            "> The agent was given no annotations of the failing checks. The App is missing the permission *Checks: "
            in (end.status)
        )
        assert "Done, the failed command passes now" in end.status


async def test_an_expired_log_is_named_and_the_job_goes_on(hub: LocalHub, tmp_path: Path) -> None:
    expected = (
        "failed job test of workflow CI: failure",
        "No log: GitHub has no log of this job: it was deleted",
    )
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=CONFIGURED) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        went_red(stage, [EndedJob(name="test", conclusion="failure", steps=STEPS, log=None)])
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_where_a_jobs_own_log_is_gone_the_runs_zip_file_is_read(hub: LocalHub, tmp_path: Path) -> None:
    expected = ("failed job a/b: x of workflow CI: failure", "sh check.sh 3.11\nusing [redacted]\n1 failed")
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=CONFIGURED) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        hub.faults.add("GET", "*/actions/jobs/*/logs", "404")
        went_red(stage, [EndedJob(name="a/b: x", conclusion="failure", steps=STEPS, log=LOG)])
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_what_was_changed_since_the_workflow_last_succeeded_is_quoted(hub: LocalHub, tmp_path: Path) -> None:
    expected = ("on which this workflow last succeeded", "+since then")
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=CONFIGURED) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        ran(stage, "success")
        hub.commit(stage.repo, {"new.txt": "since then\n"}, message="More", author="mona", branch="topic")
        went_red(stage, [EndedJob(name="test", conclusion="failure", steps=STEPS, log="1 failed\n")])
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_what_another_apps_check_says_of_the_default_branch_is_quoted(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: [default-branch]\n"}
    expected = ("failing check build: failure", "It fails: add() is off by one.")
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=files) as stage:
        head, other = hub.branches(stage.repo)["main"], hub.add_app("other-ci")
        said = "It fails: add() is off by one."
        hub.check(stage.repo, other, head_sha=head, name="build", conclusion="failure", summary=said)
        end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
