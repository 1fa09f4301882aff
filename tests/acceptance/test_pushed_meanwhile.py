"""A person pushes to the pull request's branch while the agent works: theirs always stays (threat 44)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.pauses import ASKING
from tests.stage import BUG, COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged

WAITS_THEN_FIXES = [acting(WAIT_FOR_GO), FIX]


async def at_work(stage: Stage, number: int) -> tuple[Comment, str]:
    """A fix whose agent waits for the file `go`, and its job."""
    command = stage.say(number, "/codepilot fix")
    job_id = await stage.job_of(command)
    await stage.at_work()
    return command, job_id


def push(stage: Stage, files: Mapping[str, str | None], *, author: str = "mona") -> str:
    """Somebody pushes to the pull request's branch."""
    return stage.hub.commit(stage.repo, files, message="Theirs", author=author, branch="topic")


def unforced(stage: Stage) -> bool:
    """Whether no request of the bot's moved a branch by force."""
    return not any(call.startswith("PATCH") and "/git/refs" in call for call in stage.calls)


async def test_a_change_beside_theirs_is_made_again_on_top(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        command, job_id = await at_work(stage, pull.number)
        theirs = push(stage, {"mine.txt": "Mine.\n"})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        head = hub.branches(stage.repo)["topic"]
        assert stage.git("rev-parse", f"{head}^") == theirs
        assert stage.file(head, "mine.txt") == "Mine."
        assert stage.file(head, "calc.py") == FIXED_CALC.strip()
        assert stage.git("diff", "--name-only", theirs, head) == "calc.py"
        assert "People pushed to `topic` in the meantime; the change was applied on top of that." in end.status
        assert stage.bot_branches() == {}
        assert len(stage.pulls()) == 1
        assert unforced(stage)


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


async def test_a_branch_that_moves_again_and_again_is_followed_at_most_twice(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        command, job_id = await at_work(stage, pull.number)
        pushed: list[str] = [push(stage, {"mine.txt": "0\n"})]

        def again(call: str) -> None:
            # Told of after the bot has read where the branch stands, and before it can commit on that.
            if call.startswith("GET") and call.endswith("/git/ref/heads/topic") and len(pushed) < 12:
                pushed.append(push(stage, {"mine.txt": f"{len(pushed)}\n"}))

        stage.on_call = again
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        stage.on_call = None
        assert end.state is JobState.DONE, end
        assert hub.branches(stage.repo)["topic"] == pushed[-1]
        assert len(stage.bot_branches()) == 1
        assert [each.pull.base_ref for each in stage.pulls() if each.pull] == ["main", "topic"]
        assert unforced(stage)


async def test_the_same_change_pushed_by_a_person_leaves_nothing_to_publish(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        command, job_id = await at_work(stage, pull.number)
        theirs = push(stage, {"calc.py": FIXED_CALC})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert "The same change was pushed in the meantime" in end.status
        assert hub.branches(stage.repo)["topic"] == theirs
        assert stage.bot_branches() == {}


async def test_what_a_label_allowed_for_one_commit_is_not_put_on_another(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES, operator=ASKING) as stage:
        pull = stage.pull()
        hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await stage.end_after("pull_request", "labeled")
        command, job_id = await at_work(stage, pull.number)
        theirs = push(stage, {"mine.txt": "Mine.\n"})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert hub.branches(stage.repo)["topic"] == theirs
        assert stage.bot_branches() == {}
        assert "Not published" in end.status
        assert f"`{job_id}.patch`" in end.status
        assert "+    return a + b\n" in (stage.data / "patches" / f"{job_id}.patch").read_text(encoding="utf-8")


@pytest.mark.parametrize("gone", ["branch", "closed"])
async def test_a_pull_request_that_ends_while_the_agent_works_is_left_alone(
    hub: LocalHub, tmp_path: Path, gone: str
) -> None:
    async with staged(hub, tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        command, job_id = await at_work(stage, pull.number)
        if gone == "branch":
            stage.git("update-ref", "-d", "refs/heads/topic")
            hub.sync(stage.repo, author="mona")
        else:
            hub.close(stage.repo, pull.number, by="mona")
        (stage.files_of(job_id) / "go").touch()
        end = await stage.end_of(command)
        assert end.state in {JobState.STOPPED, JobState.DONE, JobState.FAILED}
        assert stage.bot_branches() == {}
        assert ("topic" in hub.branches(stage.repo)) == (gone == "closed")
        assert len(stage.bot_comments(pull.number)) == 1
