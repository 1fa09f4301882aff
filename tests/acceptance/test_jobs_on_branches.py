"""A job without a thread begins at a branch's head, ends in a pull request against it, and comments nowhere."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.commands import Fix
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from localhub import LocalHub
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, Stage, staged


def branch_job(stage: Stage, branch: str) -> Job:
    mona = stage.hub.add_user("mona")
    return Job(
        id="onbranch",
        delivery_id="delivery-of-onbranch",
        repo=Repo(id=stage.repo.id, full_name=stage.repo.full_name, private=False),
        thread=Thread.of_branch(branch),
        actor=Actor(id=mona.id, login=mona.login),
        origin=Origin(kind="workflow", id=1),
        command=Fix(goal="Make `add` right."),
        installation=stage.hub.install(stage.app, stage.repo),
    )


async def test_a_fix_begins_at_the_branch_and_ends_in_a_pull_request_against_it(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=FIX, expect=("Make `add` right.",), expect_not=("issue #0", "pull request #0"))]
    async with staged(hub, tmp_path, script, files=FILES | {".github/codepilot.yml": "base: main\n"}) as stage:
        hub.commit(stage.repo, {"next.txt": "x\n"}, message="Next", author="mona", branch="release/2")
        head = hub.branches(stage.repo)["release/2"]
        await stage.queue.accept(branch_job(stage, "release/2"))
        end = await stage.ended("onbranch")
        assert end.state is JobState.DONE, end
        [(branch, sha)] = stage.bot_branches().items()
        assert branch == "codepilot/branch-onbranch"
        assert stage.git("rev-parse", f"{sha}^") == head
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.base_ref, pull.pull.head_ref) == ("release/2", branch)
        assert "For the branch `release/2`" in (pull.body or "")
        assert "#0" not in (pull.body or "")
        assert stage.git("log", "-1", "--format=%B", sha).splitlines()[2] == "Codepilot job onbranch, branch release/2."
        # There is no thread to say anything in; the check run on the branch's head says it all.
        assert not [call for call in stage.calls if "/issues/" in call or "reactions" in call]
        [check] = [each for each in hub.check_runs(stage.repo) if each.head_sha == head]
        assert (check.status, check.conclusion) == ("completed", "success")
        assert COMPLETION in (check.summary or "")
