"""Work that continues in a pull request that is open: for an issue, or after a person's push to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from tests.fakes.agent import Script, execute, reply, wait_for_test, write
from tests.fakes.site import FakeComment, FakeThread
from tests.seam import ASKING, FIX, FIXED_CALC, Seam, open_seam
from tests.stage import BUG, FILES

EXPECTED = ("A pull request for this issue is open already", "-    return a + b + 1")
ANEW: Script = [reply(write("more.txt", "More.\n"), completion="Added more.")]
CONTINUED: Script = [replace(ANEW[0], expect=EXPECTED)]


async def first_fix(stage: Seam) -> tuple[int, FakeThread]:
    """Return the number of an issue, and the pull request that a fix of it has opened."""
    number = stage.issue().number
    end = await stage.ask(number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    [pull] = stage.pulls()
    assert pull.pull is not None
    return number, pull


@pytest.mark.parametrize("command", ["/codepilot fix and write more", "/codepilot write more, too"])
async def test_a_second_fix_continues_in_the_pull_request_of_the_first(tmp_path: Path, command: str) -> None:
    async with open_seam(tmp_path, FIX, CONTINUED) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before = stage.head(branch)
        end = await stage.ask(number, command)
        assert end.state is JobState.DONE, end
        assert f"`#{pull.number}` is open for this issue; I continue there. `--new` opens another." in end.status
        address = f"{stage.hub.url}/{stage.repo.full_name}/pull/{pull.number}"
        assert f"[pull request #{pull.number}]({address})" in end.status
        assert [other.pull.head_ref for other in stage.pulls() if other.pull is not None] == [branch]
        assert stage.head(f"{branch}^") == before
        assert stage.file(branch, "more.txt") == "More."
        link = (await stage.record(end.job_id)).published.pull
        assert link is not None
        assert link.number == pull.number


async def test_the_option_new_opens_another_pull_request_which_counts_from_then_on(tmp_path: Path) -> None:
    further = [[reply(write(f"{name}.txt", "x\n"), completion="Added one.")] for name in ("third", "fourth")]
    async with open_seam(tmp_path, FIX, ANEW, *further) as stage:
        number, first = await first_fix(stage)
        end = await stage.ask(number, "/codepilot fix --new write more")
        assert end.state is JobState.DONE, end
        assert "I continue there." not in end.status
        second = stage.pulls()[-1]
        assert (len(stage.pulls()), second.number > first.number) == (2, True)
        # `retry` opens no third one either.
        for command in ("/codepilot retry", "/codepilot fix and more"):
            await stage.ask(number, command)
            jobs = await stage.queue.jobs_in_thread(stage.repo.id, number)
            end = await stage.ended(jobs[0].job.id)
            assert end.state is JobState.DONE, end
            assert f"`#{second.number}` is open" in end.status
        assert len(stage.pulls()) == 2


async def test_after_a_pull_request_is_merged_a_fix_opens_a_new_one(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, ANEW) as stage:
        number, pull = await first_fix(stage)
        stage.hub.merge(stage.repo, pull.number, by="mona")
        stage.hub.reopen(stage.repo, number, by="mona")
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 2
        assert "I continue there." not in end.status


@pytest.mark.parametrize("state", ["closed", "forged"])
async def test_a_fix_does_not_continue_in_pull_requests_of_others(tmp_path: Path, state: str) -> None:
    async with open_seam(tmp_path, FIX, ANEW) as stage:
        hub = stage.hub
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before, body = stage.head(branch), pull.body or ""
        assert "<!-- codepilot:job=" in body
        if state == "forged":
            hub.edit_thread(stage.repo, pull.number, by="mona", body=re.sub("sig=.{4}", "sig=0000", body))
        else:
            hub.close(stage.repo, pull.number, by="mona")
            # A person's from the same branch, and a fork's from one of the same name.
            hub.open_pull(stage.repo, author="mona", head=branch, title="Mine", body=body)
            hub.add_user("forker")
            fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
            hub.commit(fork, {"evil.txt": "x\n"}, message="Mine", author="forker", branch=branch)
            hub.open_pull(stage.repo, author="forker", head=f"forker:{branch}", title="Mine", body=body)
        count = len(stage.pulls())
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert "I continue there." not in end.status
        assert len(stage.pulls()) == count + 1
        assert stage.head(branch) == before


async def test_a_persons_commits_stay_and_the_base_branchs_settings_count(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "level: auto\n"}
    async with open_seam(tmp_path, FIX, CONTINUED, files=files) as stage:
        number, _ = await first_fix(stage)
        [branch] = stage.bot_branches()
        theirs = {"mine.txt": "Mine.\n", ".github/codepilot.yml": "level: read-only\n"}
        head = stage.hub.commit(stage.repo, theirs, message="Mine", author="mona", branch=branch)
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert stage.head(f"{branch}^") == head
        assert (stage.file(branch, "mine.txt"), stage.file(branch, "more.txt")) == ("Mine.", "More.")


async def test_the_pull_request_is_found_again_when_the_queue_is_lost(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, CONTINUED) as stage:
        number, pull = await first_fix(stage)
        stage.queue = InMemoryEngine(clock=stage.clock)
        stage.ledger = InMemoryLedger(stage.queue, clock=stage.clock)
        await stage.restart()
        end = await stage.ask(number, "/codepilot fix and write more")
        assert f"`#{pull.number}` is open" in end.status
        assert len(stage.pulls()) == 1


async def test_a_pull_request_that_is_closed_during_the_run_gets_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, [reply(wait_for_test()), *ANEW]) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before = stage.head(branch)
        command = stage.say(number, "/codepilot fix and write more")
        await stage.at_work()
        stage.hub.close(stage.repo, pull.number, by="mona")
        await stage.let_go(await stage.job_of(command))
        end = await stage.end_of(command)
        assert f"`#{pull.number}` was closed, or its branch changed, in the meantime" in end.status
        assert stage.head(branch) == before
        assert len(stage.pulls()) == 1


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_push_to_it_voids_the_request_that_waits_in_the_issue(tmp_path: Path, *, delivered: bool) -> None:
    first = [reply(write("calc.py", FIXED_CALC), completion="Fixed it.")]
    asks = [reply(write("more.txt", "More.\n"), execute("echo ran >> ran.txt"), completion="Added more.")]
    async with open_seam(tmp_path, first, asks, operator=ASKING) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        pause = await stage.pause_of(stage.say(number, "/codepilot fix and write more"))
        stage.hub.is_connected = delivered
        head = stage.hub.commit(stage.repo, {"theirs.txt": "x\n"}, message="Mine", author="mona", branch=branch)
        stage.hub.is_connected = True
        if not delivered:
            refused = await stage.ask(number, f"/codepilot approve {pause.request_id}")
            assert refused.state is JobState.REFUSED
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.STOPPED
        assert head[:10] in end.status
        assert stage.head(branch) == head
        assert pull.number == stage.pulls()[-1].number


# A person pushes to the pull request's branch while the agent works.

WAITS_THEN_FIXES: Script = [reply(wait_for_test()), *FIX]


async def fix_at_work(stage: Seam, number: int) -> tuple[FakeComment, str]:
    """Return a fix whose agent waits for the test, and its job."""
    command = stage.say(number, "/codepilot fix")
    await stage.at_work()
    return command, await stage.job_of(command)


def push(stage: Seam, files: Mapping[str, str | bytes | None]) -> str:
    return stage.hub.commit(stage.repo, files, message="Theirs", author="mona", branch="topic")


def assert_unforced(stage: Seam) -> None:
    """Assert that no request has moved a branch by force."""
    moves = [request for request in stage.hub.requests if request.startswith("PATCH") and "git/refs" in request]
    assert moves == []


async def test_a_change_of_other_files_is_made_on_top_of_a_push(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES) as stage:
        command, job_id = await fix_at_work(stage, stage.pull().number)
        theirs = push(stage, {"mine.txt": "Mine.\n"})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert stage.head("topic^") == theirs
        assert stage.file("topic", "mine.txt") == "Mine."
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert stage.changed_paths(theirs, "topic") == ["calc.py"]
        assert "People pushed to `topic` in the meantime; the change was applied on top of that." in end.status
        assert stage.bot_branches() == {}
        assert len(stage.pulls()) == 1
        assert_unforced(stage)


async def test_a_change_that_conflicts_with_a_push_is_a_pull_request_into_the_branch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        before = stage.head("topic")
        command, job_id = await fix_at_work(stage, pull.number)
        theirs = push(stage, {"calc.py": BUG.replace("+ 1", "+ 2")})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert stage.head("topic") == theirs
        [branch] = stage.bot_branches()
        assert branch.startswith(f"codepilot/pull-{pull.number}-")
        assert stage.head(f"{branch}^") == before
        [_, own] = stage.pulls()
        assert own.pull is not None
        assert (own.pull.head_ref, own.pull.base_ref) == (branch, "topic")
        assert "conflicts with that." in end.status
        assert f"pull request #{own.number}" in end.status
        assert_unforced(stage)


async def test_a_branch_that_moves_again_and_again_is_followed_at_most_twice(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES) as stage:
        command, job_id = await fix_at_work(stage, stage.pull().number)
        pushed: list[str] = [push(stage, {"mine.txt": "0\n"})]

        def push_again(call: str) -> None:
            # After the bot has read the branch's head, and before it commits on that.
            if call == "commits.create" and len(pushed) < 12:
                pushed.append(push(stage, {"mine.txt": f"{len(pushed)}\n"}))

        stage.hub.on_call = push_again
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        stage.hub.on_call = None
        assert end.state is JobState.DONE, end
        assert stage.head("topic") == pushed[-1]
        assert len(pushed) == 4
        assert len(stage.bot_branches()) == 1
        assert [pull.pull.base_ref for pull in stage.pulls() if pull.pull] == ["main", "topic"]
        assert_unforced(stage)


async def test_a_person_who_pushes_the_same_change_leaves_nothing_to_publish(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES) as stage:
        command, job_id = await fix_at_work(stage, stage.pull().number)
        theirs = push(stage, {"calc.py": FIXED_CALC})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert "The same change was pushed in the meantime" in end.status
        assert stage.head("topic") == theirs
        assert stage.bot_branches() == {}


async def test_a_change_that_a_label_allowed_for_one_commit_is_not_put_on_another(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES, operator=ASKING) as stage:
        pull = stage.pull()
        stage.hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await stage.end_after("pull_request", "labeled")
        command, job_id = await fix_at_work(stage, pull.number)
        theirs = push(stage, {"mine.txt": "Mine.\n"})
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert stage.head("topic") == theirs
        assert stage.bot_branches() == {}
        assert "Not published" in end.status
        assert f"`{job_id}.patch`" in end.status
        assert "+    return a + b\n" in (stage.kept_patch(job_id) or "")


@pytest.mark.parametrize("gone", ["branch", "closed"])
async def test_a_pull_request_that_ends_while_the_agent_works_is_left_alone(tmp_path: Path, gone: str) -> None:
    async with open_seam(tmp_path, WAITS_THEN_FIXES) as stage:
        pull = stage.pull()
        command, job_id = await fix_at_work(stage, pull.number)
        if gone == "branch":
            stage.hub.delete_branch(stage.repo, "topic")
        else:
            stage.hub.close(stage.repo, pull.number, by="mona")
        await stage.settle()
        if await stage.state_of(job_id) is JobState.RUNNING:
            await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert stage.bot_branches() == {}
        assert ("topic" in stage.repo.branches) == (gone == "closed")
        assert len(stage.bot_comments(pull.number)) == 1
