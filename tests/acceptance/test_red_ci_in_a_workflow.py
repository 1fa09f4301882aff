"""Red CI through the Action: a workflow on `workflow_run` is what asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import LocalHub
from tests.origin import git
from tests.stage import FILES, FIX, FIXED_CALC, SEE_IT_FAIL, acting
from tests.workflow_runs import Workflows


def after_a_failed_run(
    hub: LocalHub, directory: Path, *, branch: str, files: Mapping[str, str] | None = None, of_fork: bool = False
) -> Workflows:
    """A repository whose workflow of Codepilot is to run because another workflow has failed on a branch."""
    flows = Workflows.of(hub, directory, {**FILES, **(files or {})})
    home, author = flows.repo, "mona"
    if of_fork:
        author = hub.add_user("forker").login
        home = hub.add_repo("forker/calc", owner="forker", fork_of=flows.repo)
    if branch != "main":
        hub.commit(home, {"topic.txt": "A topic.\n"}, message="Add a topic", author=author, branch=branch)
        hub.open_pull(flows.repo, author=author, head=f"forker:{branch}" if of_fork else branch, title="Add a topic")
    hub.workflow_run(
        flows.repo,
        head_sha=hub.branches(home)[branch],
        head_branch=branch,
        head_repository=home,
        conclusion="failure",
        actor=author,
        event="push" if branch == "main" else "pull_request",
    )
    return flows


@pytest.mark.parametrize("branch", ["topic", "main"])
async def test_a_workflow_on_failed_runs_fixes_them(hub: LocalHub, tmp_path: Path, branch: str) -> None:
    flows = after_a_failed_run(hub, tmp_path, branch=branch)
    end = await flows.run("workflow_run", [SEE_IT_FAIL, FIX])
    assert end.ended is JobState.DONE, end
    repo, summary = flows.repo, end.summary
    made = branch if branch != "main" else f"codepilot/fix-ci-{hub.workflow_runs(repo)[-1].id}"
    assert git(repo.path, "show", f"{made}:calc.py") == FIXED_CALC.strip()
    assert "Started by CI: [`CI`](" in summary
    assert "@mona" not in summary
    pulls = [each for each in hub.issues(repo) if each.pull is not None]
    assert len(pulls) == 1
    assert len(hub.comments(repo, 1)) == (1 if branch == "topic" else 0)


async def test_the_proof_runs_where_the_agents_commands_start(hub: LocalHub, tmp_path: Path) -> None:
    below = {f"packages/calc/{path}": text for path, text in FILES.items()}
    flows = after_a_failed_run(hub, tmp_path, branch="topic", files={**below, "check.sh": "exit 3\n"})
    script = [SEE_IT_FAIL, FIX.replace('write_file("', 'write_file("packages/calc/')]
    end = await flows.run("workflow_run", script, **{"INPUT_WORKING-DIRECTORY": "packages/calc"})
    assert end.ended is JobState.DONE, end
    assert git(flows.repo.path, "show", "topic:packages/calc/calc.py") == FIXED_CALC.strip()


async def test_the_repositorys_file_narrows_what_a_workflow_does(hub: LocalHub, tmp_path: Path) -> None:
    only = {".github/codepilot.yml": "fix_ci: [default-branch]\n"}
    flows = after_a_failed_run(hub, tmp_path, branch="topic", files=only)
    end = await flows.run("workflow_run", [SEE_IT_FAIL, FIX])
    assert end.ended is JobState.DONE
    assert hub.comments(flows.repo, 1) == []
    assert set(hub.branches(flows.repo)) == {"main", "topic"}


async def test_why_nothing_is_done_is_told_once_over_all_runs(hub: LocalHub, tmp_path: Path) -> None:
    flows = after_a_failed_run(hub, tmp_path, branch="topic")
    hub.commit(flows.repo, {"more.txt": "More.\n"}, message="Go on", author="mona", branch="topic")
    ends = [await flows.run("workflow_run", [SEE_IT_FAIL, FIX]) for _ in range(2)]
    assert [each.ended for each in ends] == [JobState.REFUSED] * 2
    [told] = hub.comments(flows.repo, 1)
    assert "the branch has moved on to" in told.body
    assert all("the branch has moved on to" in each.summary for each in ends)


async def test_a_fork_is_diagnosed_twice_however_often_it_fails(hub: LocalHub, tmp_path: Path) -> None:
    flows = after_a_failed_run(hub, tmp_path, branch="topic", of_fork=True)
    diagnosis = acting("pass", completion="`add` is off by one.")
    ends = [await flows.run("workflow_run", [diagnosis]) for _ in range(3)]
    assert [each.ended for each in ends] == [JobState.DONE, JobState.DONE, JobState.REFUSED]
    assert len(hub.comments(flows.repo, 1)) == 2
    assert "I have explained failed checks here 2 times," in ends[-1].summary


async def test_words_in_comments_of_other_workflows_do_not_count_as_explanations(hub: LocalHub, tmp_path: Path) -> None:
    flows = after_a_failed_run(hub, tmp_path, branch="topic", of_fork=True)
    for words in ("CI asked: `CI` failed", f"<!-- codepilot:ci=j1 sig={'0' * 32} -->") * 2:
        hub.comment(flows.repo, 1, author=flows.runner.login, body=f"### {words}")
    end = await flows.run("workflow_run", [acting("pass", completion="`add` is off by one.")])
    assert end.ended is JobState.DONE, end
