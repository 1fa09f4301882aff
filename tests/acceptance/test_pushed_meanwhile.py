"""A person pushes to the pull request's branch while the agent works, and git merges the change or finds a conflict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.stage import BUG, COMPLETION, FIX, WAIT_FOR_GO, Stage, acting, staged

WAITS_THEN_FIXES = [acting(WAIT_FOR_GO), FIX]


async def at_work(stage: Stage, number: int) -> tuple[Comment, str]:
    """A fix whose agent waits for the file `go`, and its job."""
    command = stage.say(number, "/codepilot fix")
    job_id = await stage.job_of(command)
    await stage.at_work()
    return command, job_id


def push(stage: Stage, files: Mapping[str, str | None]) -> str:
    return stage.hub.commit(stage.repo, files, message="Theirs", author="mona", branch="topic")


def unforced(stage: Stage) -> bool:
    """Return whether no request of the bot moved a branch by force."""
    return not any(call.startswith("PATCH") and "/git/refs" in call for call in stage.calls)


async def test_a_change_in_another_part_of_the_same_file_is_merged(hub: LocalHub, tmp_path: Path) -> None:
    files = {"calc.py": f"{BUG}\n\n# one\n# two\n# three\n# four\n", "check.sh": "echo 1 passed\n"}
    script = [
        acting(WAIT_FOR_GO),
        acting('execute("main", "sed -i s/.+.1$// calc.py", check=True)', completion=COMPLETION),
    ]
    async with staged(hub, tmp_path, script, files=files) as stage:
        pull = stage.pull()
        command, job_id = await at_work(stage, pull.number)
        theirs = push(stage, {"calc.py": files["calc.py"].replace("# four", "# five")})
        await stage.let_go(job_id)
        assert (await stage.end_of(command)).state is JobState.DONE
        head = hub.branches(stage.repo)["topic"]
        assert stage.git("rev-parse", f"{head}^") == theirs
        merged = stage.file(head, "calc.py")
        assert "# five" in merged
        assert "+ 1" not in merged


async def test_a_change_that_conflicts_goes_to_a_branch_of_its_own_with_a_pull_request_into_theirs(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        before = hub.branches(stage.repo)["topic"]
        command, job_id = await at_work(stage, pull.number)
        theirs = push(stage, {"calc.py": BUG.replace("+ 1", "+ 2")})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert hub.branches(stage.repo)["topic"] == theirs
        [(branch, sha)] = stage.bot_branches().items()
        assert branch.startswith(f"codepilot/pull-{pull.number}-")
        assert stage.git("rev-parse", f"{sha}^") == before
        [_, made] = stage.pulls()
        assert made.pull is not None
        assert (made.pull.head_ref, made.pull.base_ref) == (branch, "topic")
        assert "conflicts with that." in end.status
        assert f"pull request #{made.number}" in end.status
        assert unforced(stage)
