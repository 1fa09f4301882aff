"""A further fix of an issue goes on in the pull request that is open for it, through the App and through the Action."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.jobs.record import StoredRecord
from localhub import Issue, LocalHub
from tests.pauses import ASKING, pause_of
from tests.stage import FILES, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.workflow_runs import Workflows

MORE = acting('write_file("more.txt")', "More.\n", completion="Added more.")
EXPECTED = ("A pull request for this issue is open already", "-    return a + b + 1")
ON = [ScriptedReply(text=MORE, expect=EXPECTED)]
ANEW = [ScriptedReply(text=MORE)]


async def first_fix(stage: Stage) -> tuple[int, Issue]:
    """An issue, and the pull request that a fix of it opened."""
    number = stage.issue().number
    end = await stage.ask(number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    [pull] = stage.pulls()
    assert pull.pull is not None
    return number, pull


def heads(stage: Stage) -> list[str]:
    return [each.pull.head_ref for each in stage.pulls() if each.pull is not None]


@pytest.mark.parametrize("said", ["/codepilot fix and write more", "/codepilot write more, too"])
async def test_a_second_fix_goes_on_in_the_first_ones_pull_request(hub: LocalHub, tmp_path: Path, said: str) -> None:
    async with staged(hub, tmp_path, [FIX], ON) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before = hub.branches(stage.repo)[branch]
        end = await stage.ask(number, said)
        assert end.state is JobState.DONE, end
        assert f"`#{pull.number}` is open for this issue; I continue there. `--new` opens another." in end.status
        assert f"[pull request #{pull.number}]({hub.url}/{stage.repo.full_name}/pull/{pull.number})" in end.status
        assert heads(stage) == [branch]
        assert stage.git("rev-parse", f"{branch}^") == before
        assert stage.file(branch, "more.txt") == "More."
        link = (await StoredRecord(stage.queue, end.job_id).read()).published.pull
        assert link is not None
        assert link.number == pull.number


async def test_another_one_is_opened_when_that_is_asked_for(hub: LocalHub, tmp_path: Path) -> None:
    further = [[acting(f'write_file("{name}.txt")', "x\n", completion="Added one.")] for name in ("third", "fourth")]
    async with staged(hub, tmp_path, [FIX], ANEW, *further) as stage:
        number, first = await first_fix(stage)
        end = await stage.ask(number, "/codepilot fix --new write more")
        assert end.state is JobState.DONE, end
        assert "I continue there." not in end.status
        second = stage.pulls()[-1]
        assert (len(stage.pulls()), second.number > first.number) == (2, True)
        assert second.pull is not None
        # The newest one counts from now on; `retry` opens no third one either.
        for command in ("/codepilot retry", "/codepilot fix and more"):
            said = stage.say(number, command)
            await stage.end_of(said)
            jobs = await stage.queue.jobs_in_thread(stage.repo.id, number)
            end = await stage.ended(jobs[0].job.id)
            assert end.state is JobState.DONE, end
            assert f"`#{second.number}` is open" in end.status
        assert len(stage.pulls()) == 2


async def test_after_a_pull_request_is_merged_a_fix_opens_a_new_one(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], ANEW) as stage:
        number, pull = await first_fix(stage)
        hub.merge(stage.repo, pull.number, by="mona")
        hub.reopen(stage.repo, number, by="mona")
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 2
        assert "I continue there." not in end.status


@pytest.mark.parametrize("state", ["closed", "forged"])
async def test_pull_requests_that_are_not_the_bots_are_left_alone(hub: LocalHub, tmp_path: Path, state: str) -> None:
    async with staged(hub, tmp_path, [FIX], ANEW) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before, body = hub.branches(stage.repo)[branch], pull.body or ""
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
        known = len(stage.pulls())
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert "I continue there." not in end.status
        assert len(stage.pulls()) == known + 1
        assert hub.branches(stage.repo)[branch] == before


async def test_what_people_pushed_to_it_stays_and_the_base_branchs_file_counts(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "level: auto\n"}
    async with staged(hub, tmp_path, [FIX], ON, files=files) as stage:
        number, _ = await first_fix(stage)
        [branch] = stage.bot_branches()
        theirs = {"mine.txt": "Mine.\n", ".github/codepilot.yml": "level: read-only\n"}
        hub.commit(stage.repo, theirs, message="Mine", author="mona", branch=branch)
        head = hub.branches(stage.repo)[branch]
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert stage.git("rev-parse", f"{branch}^") == head
        assert (stage.file(branch, "mine.txt"), stage.file(branch, "more.txt")) == ("Mine.", "More.")


async def test_it_is_found_again_when_the_queue_is_lost(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path / "first", [FIX]) as stage:
        number, pull = await first_fix(stage)
    async with staged(hub, tmp_path / "second", ON, after=stage) as later:
        end = await later.ask(number, "/codepilot fix and write more")
        assert f"`#{pull.number}` is open" in end.status
        assert len(later.pulls()) == 1


async def test_a_pull_request_that_is_closed_under_the_run_gets_nothing(hub: LocalHub, tmp_path: Path) -> None:
    slow = [acting(WAIT_FOR_GO), MORE]
    async with staged(hub, tmp_path, [FIX], slow) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        before = hub.branches(stage.repo)[branch]
        stage.events.clear()
        job = await stage.job_of(stage.say(number, "/codepilot fix and write more"))
        await stage.at_work()
        hub.close(stage.repo, pull.number, by="mona")
        await stage.let_go(job)
        end = await stage.ended(job)
        assert f"`#{pull.number}` was closed, or its branch changed, in the meantime" in end.status
        assert hub.branches(stage.repo)[branch] == before
        assert len(stage.pulls()) == 1


ASKS = acting('write_file("more.txt")\nexecute("main", "echo ran >> ran.txt")', "More.\n", completion="Added more.")


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_push_to_it_voids_what_waits_for_approval_in_the_issue(
    hub: LocalHub, tmp_path: Path, *, delivered: bool
) -> None:
    first = acting('write_file("calc.py")', FIXED_CALC, completion="Fixed it.")
    async with staged(hub, tmp_path, [first], [ASKS], operator=ASKING) as stage:
        number, pull = await first_fix(stage)
        [branch] = stage.bot_branches()
        pause = await pause_of(stage, stage.say(number, "/codepilot fix and write more"))
        if not delivered:
            hub.set_webhook(stage.app, "http://127.0.0.1:9/lost", "lost")
        head = hub.commit(stage.repo, {"theirs.txt": "x\n"}, message="Mine", author="mona", branch=branch)
        if not delivered:
            hub.set_webhook(stage.app, f"{stage.address}/webhook", "acceptance-webhook-secret-4f1c")
            refused = await stage.ask(number, f"/codepilot approve {pause.request_id}")
            assert refused.state is JobState.REFUSED
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.STOPPED
        assert head[:10] in end.status
        assert hub.branches(stage.repo)[branch] == head
        assert pull.number == stage.pulls()[-1].number


async def test_the_action_goes_on_in_it_too(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    issue = hub.open_issue(flows.repo, author="mona", title="Adding is off by one")
    for said, script in (("/codepilot fix", FIX), ("/codepilot fix and write more", MORE)):
        hub.comment(flows.repo, issue.number, author="mona", body=said)
        run = await flows.run("issue_comment", [script])
        assert run.ended is JobState.DONE, run.summary
        assert "/pull/2" in run.outputs
    [pull] = [each for each in hub.issues(flows.repo) if each.pull is not None]
    assert f"`#{pull.number}` is open for this issue" in hub.comments(flows.repo, issue.number)[-1].body
    [branch] = set(hub.branches(flows.repo)) - {"main"}
    assert branch.startswith(f"codepilot/issue-{issue.number}-")
