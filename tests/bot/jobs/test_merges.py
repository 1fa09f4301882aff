"""Merging the base branch into a pull request, in whole jobs."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from bot.domain.access import Bounds
from bot.domain.job import Job, JobState
from bot.github.client import GitHub
from bot.github.types import PullFacts
from bot.jobs.access import AccessCheck, check_access
from bot.jobs.admission import decide
from bot.jobs.context import JobContext
from bot.permissions.levels import Grant, Refusal
from bot.queue.records import Signal
from tests.fakes.agent import Do, Script, Wait, execute, reply, write
from tests.fakes.github import FakePulls
from tests.seam import FIX, Seam, open_seam

RESOLVE = "/codepilot resolve"
RESOLVED = "Both sides.\n"
SCRIPT: Script = [reply(write("notes.txt", RESOLVED), execute("sh check.sh", output="1 passed"), completion="- done")]
CONFLICT = "conflict (content) in notes.txt"


def diverge(
    stage: Seam, ours: str | None = "Ours.\n", theirs: str | None = "Theirs.\n", path: str = "notes.txt"
) -> int:
    """Open a pull request whose branch and base both change a file; return its number."""
    stage.hub.commit(stage.repo, {path: "Before.\n"}, message="Add notes", author="mona", branch="main")
    number = stage.pull().number
    stage.hub.commit(stage.repo, {path: ours}, message="Change notes", author="mona", branch="topic")
    stage.hub.commit(stage.repo, {path: theirs, "base.txt": "x\n"}, message="Change them", author="mona", branch="main")
    return number


def merged(stage: Seam, head: str, base: str) -> None:
    """Assert that the branch is at one new commit of both sides."""
    commit = stage.repo.commits[stage.head("topic")]
    assert commit.parents == (head, base)
    assert stage.file("topic", "base.txt") == "x"
    assert commit.message.startswith("Merge branch 'main' into topic\n")


async def test_a_conflict_is_resolved_in_one_commit_of_both_sides(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        number = diverge(stage)
        head, base = stage.head("topic"), stage.head("main")
        end = await stage.ask(number, f"{RESOLVE} keep both")
        merged(stage, head, base)
        [play] = stage.providers
        [task] = play.tasks
    assert end.state is JobState.DONE
    assert "Done, an ad-hoc check passed" in end.status
    assert f"Merged `main` at {base[:10]}. Conflicts: `notes.txt` (content)." in end.status
    assert stage.file("topic", "notes.txt") == RESOLVED.strip()
    assert "How it is to be resolved: keep both" in task.goal
    [quote] = [quote for quote in task.quotes if quote.source.startswith("conflict")]
    assert quote.source == CONFLICT
    assert f"the merge of origin/main at {base[:10]} under way" in play.facts[0]


async def test_the_checks_of_a_merge_are_run_again_by_the_host(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        stage.commands["sh check.sh"] = 1
        number, head = diverge(stage), stage.head("topic")
        end = await stage.ask(number, RESOLVE)
        assert stage.head("topic") != head
    assert "Checks fail" in end.status
    assert "| ▫️ | `sh check.sh` | passed, superseded by a later run |" in end.status
    assert "| ❌ | `sh check.sh` | exit code 1, run by the bot, ad hoc |" in end.status


@pytest.mark.parametrize("text", ["fix resolve the merge conflicts with main", "fix Merge main into this branch."])
async def test_a_fix_that_asks_for_the_merge_is_one(tmp_path: Path, text: str) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        number = diverge(stage)
        head, base = stage.head("topic"), stage.head("main")
        await stage.ask(number, f"/codepilot {text}")
        merged(stage, head, base)


async def test_a_merge_without_conflicts_needs_no_agent(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        number = diverge(stage, ours="Before.\n")
        head, base = stage.head("topic"), stage.head("main")
        end = await stage.ask(number, RESOLVE)
        merged(stage, head, base)
        assert not stage.providers
    assert (end.state, stage.file("topic", "notes.txt")) == (JobState.DONE, "Theirs.")
    assert "There were no conflicts, so no agent ran, and nothing was checked" in end.status


async def test_a_branch_that_contains_the_base_is_left_alone(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        number = stage.pull().number
        head = stage.head("topic")
        end = await stage.ask(number, RESOLVE)
        assert (end.state, stage.head("topic")) == (JobState.DONE, head)
        assert "Already up to date" in end.status
        assert not stage.providers


async def test_a_completion_is_refused_while_markers_are_left(tmp_path: Path) -> None:
    script = [
        reply(completion="- notes.txt: done"),
        reply(write("notes.txt", RESOLVED), completion="Done.", expect="Conflict markers are left in `notes.txt`"),
    ]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(diverge(stage), RESOLVE)
        assert stage.file("topic", "notes.txt") == RESOLVED.strip()
    assert end.state is JobState.DONE
    assert "Not verified" in end.status


async def test_leftovers_are_not_published(tmp_path: Path) -> None:
    script = [reply(completion="Done.")] * 3
    async with open_seam(tmp_path, script) as stage:
        number = diverge(stage)
        head = stage.head("topic")
        end = await stage.ask(number, RESOLVE)
        assert stage.head("topic") == head
    assert "Not published" in end.status
    assert "Conflict markers are left in" in end.status


async def test_a_file_without_a_conflict_needs_a_reason_that_the_comment_shows(tmp_path: Path) -> None:
    edits = (write("notes.txt", RESOLVED), write("base.txt", "changed\n"))
    script = [
        reply(*edits, completion="Done."),
        reply(completion="- base.txt: it counts the notes", expect="are not as git merged them: `base.txt`"),
    ]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(diverge(stage), RESOLVE)
        assert stage.file("topic", "base.txt") == "changed"
    assert "`base.txt` had no conflict and is not as git merged it: it counts the notes" in end.status


async def test_many_files_without_a_conflict_are_all_listed(tmp_path: Path) -> None:
    names = [f"new{number}.py" for number in range(9)]
    completion = "\n".join(f"- {name}: needed" for name in names)
    edits = (write("notes.txt", RESOLVED), *(write(name, "x\n") for name in names))
    async with open_seam(tmp_path, [reply(*edits, completion=completion)]) as stage:
        end = await stage.ask(diverge(stage), RESOLVE)
    assert "`new3.py` had no conflict and is not as git merged it: needed" in end.status
    assert "Nor are these, for the reasons above: `new4.py`, `new5.py`, `new6.py`, `new7.py`, `new8.py`." in end.status


async def test_a_conflict_that_stays_as_git_left_it_needs_a_reason(tmp_path: Path) -> None:
    script = [
        reply(completion="Done."),
        reply(completion="- notes.txt: kept, since it is still used", expect="are as git left them: `notes.txt`"),
    ]
    async with open_seam(tmp_path, script) as stage:
        number = diverge(stage, theirs=None)
        head, base = stage.head("topic"), stage.head("main")
        end = await stage.ask(number, RESOLVE)
        merged(stage, head, base)
        assert stage.file("topic", "notes.txt") == "Ours."
    assert "Conflicts: `notes.txt` (modify/delete)." in end.status


async def test_a_protected_file_of_the_base_needs_no_approval_and_one_of_the_agent_does(tmp_path: Path) -> None:
    workflow, script = ".github/workflows/ci.yml", [reply(write("notes.txt", RESOLVED), completion="Done.")]
    async with open_seam(tmp_path, script) as stage:
        number = diverge(stage)
        stage.hub.commit(stage.repo, {workflow: "on: push\n"}, message="Add CI", author="mona", branch="main")
        assert (await stage.ask(number, RESOLVE)).state is JobState.DONE
        assert stage.file("topic", workflow) == "on: push"
    script = [reply(write(workflow, "on: [push, pull_request]\n"), completion="Done.")]
    async with open_seam(tmp_path / "second", script) as stage:
        number = diverge(stage, path=workflow)
        head, base = stage.head("topic"), stage.head("main")
        comment = stage.say(number, RESOLVE)
        job_id = await stage.waits(comment)
        assert stage.head("topic") == head
        await stage.ask(number, "/codepilot approve")
        end = await stage.ended(job_id)
        merged(stage, head, base)
        assert end.state is JobState.DONE


@pytest.mark.parametrize("side", ["Ours.\n", "Theirs.\n"])
async def test_a_protected_file_that_is_as_one_side_has_it_needs_no_approval(tmp_path: Path, side: str) -> None:
    async with open_seam(tmp_path, [reply(write("uv.lock", side), completion="- uv.lock: of one side")]) as stage:
        number = diverge(stage, path="uv.lock")
        head, base = stage.head("topic"), stage.head("main")
        assert (await stage.ask(number, RESOLVE)).state is JobState.DONE
        merged(stage, head, base)
        assert f"{stage.file('topic', 'uv.lock')}\n" == side


async def test_a_branch_that_moved_is_not_overwritten(tmp_path: Path) -> None:
    stage: Seam

    def push() -> None:
        stage.hub.commit(stage.repo, {"theirs.txt": "x\n"}, message="Go on", author="mona", branch="topic")

    script = [reply(write("notes.txt", RESOLVED), Do(call=push), completion="Done.")]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(diverge(stage), RESOLVE)
        assert "<<<<<<<" not in stage.file("topic", "notes.txt")
        assert stage.file("topic", "notes.txt") == "Ours."
        assert stage.file("topic", "theirs.txt") == "x"
    assert "Not published" in end.status
    assert "Give the command again to merge into that." in end.status


@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_base_branch_that_was_replaced_meanwhile_is_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    stage: Seam

    def retarget() -> None:
        stage.hub.commit(stage.repo, {"release.txt": "x\n"}, message="Release", author="mona", branch="release")
        [pull] = [thread.pull for thread in stage.repo.threads.values() if thread.pull]
        pull.base_ref, pull.base_sha = "release", stage.head("release")

    def retarget_and_check(github: GitHub, job: Job, *, bounds: Bounds) -> Awaitable[AccessCheck]:
        retarget()
        return check_access(github, job, bounds=bounds)

    script = [reply(write("notes.txt", RESOLVED), Do(call=retarget), completion="Done.")]
    async with open_seam(tmp_path, script) as stage:
        number = diverge(stage, ours="Before.\n" if is_clean else "Ours.\n")
        head = stage.head("topic")
        if is_clean:
            monkeypatch.setattr("bot.jobs.merges.check_access", retarget_and_check)
        end = await stage.ask(number, RESOLVE)
        assert stage.head("topic") == head
    assert "The base branch is now `release`, not `main`." in end.status


async def test_a_commit_that_was_pushed_before_the_process_died_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_seam(tmp_path) as stage:
        number = diverge(stage, ours="Before.\n")
        head, base = stage.head("topic"), stage.head("main")
        with monkeypatch.context() as patched:
            patched.setattr("bot.publishing.publish.CommitSender.record_sent", stage.hang)
            comment = stage.say(number, RESOLVE)
            await stage.settle()
        first = stage.head("topic")
        signed = {".github/codepilot.yml": "commit:\n  sign_off: true\n"}
        stage.hub.commit(stage.repo, signed, message="Configure", author="mona", branch="main")
        await stage.restart()
        end = await stage.end_of(comment)
        merged(stage, head, base)
        assert (end.state, stage.head("topic")) == (JobState.DONE, first)
    assert "I merged `main`" in end.status


async def test_the_report_of_a_merge_names_the_commit_that_was_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_seam(tmp_path) as stage:
        number = diverge(stage, ours="Before.\n")
        base = stage.head("main")
        with monkeypatch.context() as patched:
            patched.setattr("bot.publishing.publish._finish", stage.hang)
            comment = stage.say(number, RESOLVE)
            await stage.settle()
        for branch in ("topic", "main"):
            stage.hub.commit(stage.repo, {f"{branch}.txt": "x\n"}, message="Go on", author="mona", branch=branch)
        await stage.restart()
        end = await stage.end_of(comment)
    assert f"I merged `main` at {base[:10]}" in end.status


async def test_a_merge_that_is_stopped_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(context: JobContext, *arguments: Any, **options: Any) -> Grant | Refusal:  # noqa: ANN401 - passed on
        context.state.inbox.put(Signal(kind="stop", text="Stopped by @mona.", by="mona", id="stop"))
        return await decide(context, *arguments, **options)

    async with open_seam(tmp_path) as stage:
        number = diverge(stage, ours="Before.\n")
        head = stage.head("topic")
        monkeypatch.setattr("bot.jobs.merges.decide", stop)
        end = await stage.ask(number, RESOLVE)
        assert stage.head("topic") == head
    assert end.state is JobState.STOPPED
    assert "Stopped by @mona." in end.status


async def test_a_merge_goes_on_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        number = diverge(stage)
        head, base = stage.head("topic"), stage.head("main")
        with monkeypatch.context() as patched:
            patched.setattr("bot.publishing.publish.CommitSender.send", stage.hang)
            comment = stage.say(number, RESOLVE)
            await stage.settle()
        stage.hub.commit(stage.repo, {"later.txt": "x\n"}, message="Go on", author="mona", branch="main")
        await stage.restart()
        end = await stage.end_of(comment)
        merged(stage, head, base)
        assert len(stage.providers) == 1
    assert end.state is JobState.DONE


@pytest.mark.parametrize("is_lost", [False, True], ids=["files kept", "files lost"])
async def test_a_restart_in_the_run_merges_the_same_commits(tmp_path: Path, *, is_lost: bool) -> None:
    script = [reply(write("notes.txt", RESOLVED), Wait()), reply(completion="- notes.txt: both")]
    async with open_seam(tmp_path, script, SCRIPT) as stage:
        number = diverge(stage)
        head, base = stage.head("topic"), stage.head("main")
        comment = stage.say(number, RESOLVE)
        await stage.at_work()
        await stage.restart()
        stage.hub.commit(stage.repo, {"later.txt": "x\n"}, message="Go on", author="mona", branch="main")
        if is_lost:
            stage.workspaces.lose(await stage.job_of(comment))
        end = await stage.end_of(comment)
        assert end.state is JobState.DONE, end.status
        merged(stage, head, base)
        assert len(stage.providers) == (2 if is_lost else 1)


async def test_a_dry_run_only_describes_the_merge(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        number = diverge(stage)
        head = stage.head("topic")
        end = await stage.ask(number, f"{RESOLVE} --dry-run")
        assert stage.head("topic") == head
    assert "A commit `Merge branch 'main' into topic` on the branch `topic`." in end.status


async def test_only_the_base_branch_of_a_pull_request_is_merged(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, RESOLVE)
        assert await stage.refusal(end) == "no-pull"
        end = await stage.ask(stage.pull().number, "/codepilot fix merge develop into this branch")
        assert await stage.refusal(end) == "merge-branch"


@pytest.mark.parametrize(
    ("rule", "branch"),
    [("required_signatures", "topic"), ("required_signatures", "main"), ("required_linear_history", "topic")],
)
async def test_rules_that_forbid_the_commit_end_the_job_before_the_work(tmp_path: Path, rule: str, branch: str) -> None:
    async with open_seam(tmp_path) as stage:
        number = diverge(stage)
        stage.hub.add_rules(stage.repo, rule, branches=branch)
        end = await stage.ask(number, RESOLVE)
        assert (end.state, len(stage.providers)) == (JobState.REFUSED, 0)
    assert f"A rule of this repository forbids my commit on `{branch}`" in end.status


async def test_a_base_that_needs_a_linear_history_can_be_merged(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SCRIPT) as stage:
        number = diverge(stage)
        stage.hub.add_rules(stage.repo, "required_linear_history", branches="main")
        assert (await stage.ask(number, RESOLVE)).state is JobState.DONE


async def test_a_workflow_that_both_sides_changed_needs_the_permission_before_the_work(tmp_path: Path) -> None:
    workflow, text = ".github/workflows/ci.yml", "".join(f"# {number}\n" for number in range(20))
    async with open_seam(tmp_path) as stage:
        stage.hub.commit(stage.repo, {workflow: text}, message="Add CI", author="mona", branch="main")
        number = diverge(stage)
        for branch, line in (("topic", "# 1"), ("main", "# 18")):
            changed = {workflow: text.replace(f"{line}\n", f"{line} of {branch}\n")}
            stage.hub.commit(stage.repo, changed, message="Change CI", author="mona", branch=branch)
        stage.app.permissions = {**stage.app.permissions, "workflows": "read"}
        end = await stage.ask(number, RESOLVE)
        assert (end.state, len(stage.providers)) == (JobState.REFUSED, 0)
    assert "The merge combines both sides of a workflow file." in end.status


OWN = {".github/codepilot.yml": "resolve_own_conflicts: true\n"}
AGAIN: Script = [
    reply(write("calc.py", "def add(x, y):\n    return x + y\n"), execute("sh check.sh"), completion="- calc.py: both")
]


async def open_own_pull(stage: Seam) -> int:
    """Let the bot open a pull request; return its number."""
    stage.hub.commit(stage.repo, OWN, message="Configure", author="mona", branch="main")
    await stage.ask(stage.issue().number, "/codepilot fix")
    [thread] = stage.pulls()
    return thread.number


def merge_another(stage: Seam, files: dict[str, str], branch: str) -> None:
    """Merge a pull request of a person's into the base."""
    stage.hub.commit(stage.repo, files, message="Change it", author="mona", branch=branch)
    number = stage.hub.open_pull(stage.repo, author="mona", head=branch, title="Change it", body="").number
    stage.hub.merge(stage.repo, number, by="mona")


async def settle_held(stage: Seam) -> None:
    """Run jobs, also those that are held back."""
    await stage.settle()
    stage.advance(600.0)
    await stage.settle()


RENAMED = {"calc.py": "def add(x, y):\n    return x + y + 1\n"}


async def test_an_own_pull_request_that_conflicts_after_a_merge_is_resolved_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, AGAIN) as stage:
        number = await open_own_pull(stage)
        [(branch, head)] = stage.bot_branches().items()
        merge_another(stage, RENAMED, "rename")
        base = stage.head("main")
        await settle_held(stage)
        assert stage.repo.commits[stage.head(branch)].parents == (head, base)
        assert len(stage.providers) == 2
        assert "Co-authored-by" not in stage.message(branch)
        [status] = stage.bot_comments(number)
    assert "Conflict with the base branch" in status


@pytest.mark.parametrize(
    ("config", "files"),
    [("resolve_own_conflicts: true\n", {"other.txt": "x\n"}), ("level: auto\n", RENAMED)],
    ids=["no conflict", "not enabled"],
)
async def test_nothing_is_merged_without_a_conflict_or_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, files: dict[str, str]
) -> None:
    monkeypatch.setitem(OWN, ".github/codepilot.yml", config)
    async with open_seam(tmp_path, FIX) as stage:
        number = await open_own_pull(stage)
        before = stage.bot_branches()
        merge_another(stage, files, "other")
        await settle_held(stage)
        assert stage.bot_branches() == before
        assert not stage.bot_comments(number)
        assert len(stage.providers) == 1


async def test_git_knows_of_no_conflict_where_github_does_not_know_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FakePulls.get

    async def get(pulls: FakePulls, repo: str, number: int) -> PullFacts:
        return (await read(pulls, repo, number)).model_copy(update={"mergeable": None})

    async with open_seam(tmp_path, FIX) as stage:
        number = await open_own_pull(stage)
        before = stage.bot_branches()
        monkeypatch.setattr(FakePulls, "get", get)
        merge_another(stage, {"other.txt": "x\n"}, "other")
        await settle_held(stage)
        assert stage.bot_branches() == before
        assert not stage.bot_comments(number)
