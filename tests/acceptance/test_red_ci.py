"""Fixes of failed workflow runs and checks, with the logs of a hub, git and a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import EndedJob, LocalHub
from tests.bot.jobs.test_run_red_ci import EVERYWHERE, FIX_ONLY, STEPS
from tests.stage import COMPLETION, FIX, FIXED_CALC, SEE_IT_FAIL, End, Stage, staged

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


def end_run(stage: Stage, conclusion: str, *, branch: str = "topic") -> None:
    """End a workflow run on a branch's head."""
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.hub.branches(stage.repo)[branch],
        head_branch=branch,
        conclusion=conclusion,
        actor="mona",
        event="push" if branch == "main" else "pull_request",
    )


async def fail_run(stage: Stage) -> End:
    """Let the pull request's workflow fail; return the end of the fix."""
    end_run(stage, "failure")
    return await stage.end_after("workflow_run", "completed")


async def test_a_red_run_is_fixed_where_the_repository_wants_it(hub: LocalHub, tmp_path: Path) -> None:
    script: list[str | ScriptedReply] = [
        ScriptedReply(text=SEE_IT_FAIL, expect=('The workflow "CI" failed on this pull request.',)),
        FIX,
    ]
    async with staged(hub, tmp_path, script, files=FIX_ONLY) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        before = hub.branches(stage.repo)["topic"]
        end = await fail_run(stage)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.git("rev-parse", "topic^") == before
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert len(stage.bot_comments(pull.number)) == 1
        assert end.status.startswith("### ✅ Done, the failed command passes now · Started by CI: [`CI`](")
        proof = "**Proof:** `sh check.sh` ended with exit code 1 before the change and with exit code 0 after it"
        assert proof in end.status
        assert "Co-authored-by" not in stage.git("show", "--no-patch", "--format=%B", "topic")


async def test_a_red_default_branch_is_fixed_by_a_pull_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=EVERYWHERE, edit_seconds=3600.0) as stage:
        before = hub.branches(stage.repo)["main"]
        end_run(stage, "failure", branch="main")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        run = hub.workflow_runs(stage.repo)[-1]
        assert set(stage.bot_branches()) == {f"codepilot/fix-ci-{run.id}"}
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.base_ref, pull.pull.draft) == ("main", False)
        assert hub.branches(stage.repo)["main"] == before
        body = pull.body or ""
        assert COMPLETION in body
        assert "**Proof:** `sh check.sh` ended with exit code 1 before the change and with exit code 0 after it" in body
        assert (
            f"[`CI`]({hub.url}/mona/calc/actions/runs/{run.id}) failed on the branch `main` at {before[:10]}." in body
        )
        assert "because checks failed" in body
        assert "@mona" not in body
        [check] = hub.check_runs(stage.repo)
        assert (check.status, check.conclusion, check.head_sha) == ("completed", "success", before)
        assert (check.title or "").endswith(": Started by CI: CI failed")
        assert "| passed, run by the bot" in (check.summary or "")
        assert sum(call.startswith("PATCH ") and "/check-runs/" in call for call in stage.calls) == 1, stage.calls


async def test_a_red_check_of_another_app_is_fixed(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=FIX_ONLY) as stage:
        stage.pull()
        other = hub.add_app("other-ci")
        hub.check(
            stage.repo, other, head_sha=hub.branches(stage.repo)["topic"], name="build (x86)", conclusion="failure"
        )
        end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
        assert "Started by CI: [`build (x86)`](" in end.status
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


async def test_a_label_enables_fixes_of_one_pull_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX]) as stage:
        number = stage.pull().number
        end_run(stage, "success", branch="main")
        hub.add_label(stage.repo, number, "codepilot:fix-ci", by="mona")
        await stage.end_after("pull_request", "labeled")
        assert (await fail_run(stage)).state is JobState.DONE
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


def fail_jobs(stage: Stage, jobs: Sequence[EndedJob]) -> None:
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
    files = FIX_ONLY | {".github/workflows/ci.yml": WORKFLOW}
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=files) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        annotations = [
            (".github", 1, "Process completed with exit code 1."),
            ("calc.py", 2, f"it is one too many, says {TOKEN}"),
        ]
        green = EndedJob(name="test (3.10)", conclusion="success", steps=STEPS[:1], log="well\n")
        fail_jobs(
            stage,
            [green, EndedJob(name="test (3.11)", conclusion="failure", steps=STEPS, log=LOG, annotations=annotations)],
        )
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_where_a_jobs_own_log_is_gone_the_runs_zip_file_is_read(hub: LocalHub, tmp_path: Path) -> None:
    expected = ("failed job a/b: x of workflow CI: failure", "sh check.sh 3.11\nusing [redacted]\n1 failed")
    async with staged(hub, tmp_path, [ScriptedReply(text=FIX, expect=expected)], files=FIX_ONLY) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        hub.faults.add("GET", "*/actions/jobs/*/logs", "404")
        fail_jobs(stage, [EndedJob(name="a/b: x", conclusion="failure", steps=STEPS, log=LOG)])
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
