"""What `undo` leaves true: the next run, the pull request and the comment of the commit that was undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs.steering import retry_id
from tests.fakes.agent import Script, execute, reply, wait_for_test, write
from tests.fakes.github import forbidden
from tests.fakes.site import FakeThread
from tests.seam import FIX, NOTHING_LEFT, End, Seam, open_seam

MORE: Script = [
    reply(write("more.py", "more = 1\n"), execute("sh check.sh", 1, output="1 failed"), completion="Add more"),
    reply(completion="Add more"),
]
WHY = "it breaks `sub` for everybody"


async def fixed(stage: Seam) -> tuple[FakeThread, FakeThread]:
    """Fix an issue; return it and the pull request."""
    issue = stage.issue()
    assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
    [pull] = stage.pulls()
    return issue, pull


def text_of(pull: FakeThread) -> str:
    return pull.body or ""


async def retried(stage: Seam, number: int) -> End:
    """Give `retry`, and run the job that it stores."""
    retry = await stage.ask(number, "/codepilot retry")
    assert retry.state is JobState.DONE, retry
    job = await stage.queue.get(retry.job_id)
    assert job is not None
    return await stage.ended(retry_id(job.job))


@pytest.mark.parametrize("verb", ["retry", "fix"])
@pytest.mark.parametrize("why", [WHY, ""])
async def test_work_after_an_undo_is_told_what_was_undone_by_whom_and_why(tmp_path: Path, verb: str, why: str) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        issue, _ = await fixed(stage)
        commit = stage.head(next(iter(stage.bot_branches())))
        assert (await stage.ask(issue.number, f"/codepilot undo {why}".strip())).state is JobState.DONE
        end = await (retried(stage, issue.number) if verb == "retry" else stage.ask(issue.number, "/codepilot fix"))
        assert end.state is JobState.DONE
        told = stage.providers[1].opening
        assert "Your last change here was undone" in told
        assert f"why @mona undid your commit {commit[:10]}" in told
        assert (WHY if why else "(no reason was given)") in told
        assert "-    return a + b" in told  # of the patch that undid it


async def test_retry_after_an_undo_does_the_work_again_in_a_new_pull_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        issue, first = await fixed(stage)
        await stage.ask(issue.number, "/codepilot undo")
        end = await retried(stage, issue.number)
        assert end.state is JobState.DONE
        assert [pull.state for pull in stage.pulls()] == ["closed", "open"]
        second = stage.pulls()[1]
        assert second.pull is not None
        assert first.pull is not None
        assert second.pull.head_ref != first.pull.head_ref
        assert stage.changed_paths("main", second.pull.head_ref) == ["more.py"]
        assert f"Fixes #{issue.number}" in text_of(second)


async def test_retry_repeats_an_undo_that_failed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, _ = await fixed(stage)
        stage.hub.fail("commits.create", forbidden())
        assert (await stage.ask(issue.number, "/codepilot undo")).state is JobState.FAILED
        end = await retried(stage, issue.number)
        assert "I reverted commit" in end.status
        assert len(stage.providers) == 1


@pytest.mark.parametrize("place", ["issue", "pull"])
async def test_a_pull_request_of_the_bot_without_a_change_is_closed_and_says_why(tmp_path: Path, place: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, pull = await fixed(stage)
        assert pull.pull is not None
        branch, fix = pull.pull.head_ref, stage.head(pull.pull.head_ref)
        end = await stage.ask(issue.number if place == "issue" else pull.number, "/codepilot undo")
        assert pull.state == "closed"
        assert pull.title == "Undone: Fix add: it counted one too many"
        assert f"@mona undid commit {fix[:10]}, and nothing of the change is left" in text_of(pull)
        assert "Fixes #" not in text_of(pull)
        assert "check passed" not in text_of(pull)
        for text in (text_of(pull), end.status):
            assert f"`{branch}`" in text
            assert "/codepilot retry` or another `/codepilot fix` " in text
        assert f"in issue {issue.number}; it opens" in text_of(pull)
        assert ("here" if place == "issue" else f"in issue {issue.number}") + "; it opens" in end.status
        assert "so I closed its pull request" in end.status
        assert f"/pull/{pull.number})" in end.status
        # The branch and its commits stay.
        assert stage.head(f"{branch}^") == fix


async def test_the_comment_of_the_work_that_was_undone_says_so(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, pull = await fixed(stage)
        end = await stage.ask(pull.number, "/codepilot undo")
        undo = (await stage.record(end.job_id)).comment.posted
        assert undo is not None
        [status] = stage.bot_comments(issue.number)
        assert status.startswith(f"↩️ **Undone** by [`mona`]({undo.url}).\n\n### ✅ Done, an ad-hoc check passed")


async def test_a_pull_request_that_people_opened_stays_as_it_is(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        pull = stage.pull()
        before = pull.title, pull.body
        await stage.ask(pull.number, "/codepilot fix")
        end = await stage.ask(pull.number, "/codepilot undo")
        assert "I reverted commit" in end.status
        assert (pull.title, pull.body, pull.state) == (*before, "open")
        assert "pulls.describe" not in stage.calls


@pytest.mark.parametrize("part", ["title", "body"])
async def test_a_description_that_people_edited_is_not_overwritten(tmp_path: Path, part: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, pull = await fixed(stage)
        text = f"{getattr(pull, part)} Edited."
        stage.hub.edit_thread(stage.repo, pull.number, by="mona", **{part: text})
        edited = pull.title, pull.body
        end = await stage.ask(issue.number, "/codepilot undo")
        assert (pull.title, pull.body, pull.state) == (*edited, "closed")
        assert "Somebody edited the description" in end.status


async def test_a_pull_request_with_a_change_left_lists_its_later_commits(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        issue, pull = await fixed(stage)
        assert text_of(pull).startswith("**✅ Done, an ad-hoc check passed.**")
        assert "as of the first commit" in text_of(pull)
        assert pull.pull is not None
        await stage.ask(issue.number, "/codepilot fix more")
        more = stage.head(pull.pull.head_ref)
        later = "**Commits since then**, which the text below does not cover:\n\n"
        fix = f"- {more[:10]}, for @mona: ❌ Checks fail\n"
        assert text_of(pull).startswith(f"{later}{fix}\n**✅ Done, an ad-hoc check passed.**")
        await stage.ask(issue.number, "/codepilot undo")
        undo = f"- {stage.head(pull.pull.head_ref)[:10]} undid {more[:10]}, for @mona\n"
        assert text_of(pull).startswith(f"{later}{fix}{undo}\n**✅ Done, an ad-hoc check passed.**")
        assert pull.state == "open"
        assert pull.title == "Fix add: it counted one too many"
        assert f"Fixes #{issue.number}" in text_of(pull)  # which the first commit still does


async def test_the_next_fix_goes_on_in_the_closed_pull_request_if_people_reopen_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        issue, pull = await fixed(stage)
        await stage.ask(issue.number, "/codepilot undo")
        stage.hub.reopen(stage.repo, pull.number, by="mona")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert len(stage.pulls()) == 1, end
        assert pull.title == "Fix add: it counted one too many"
        assert text_of(pull).startswith("**Commits since then**")
        assert "❌ Checks fail" in text_of(pull).partition("**Undone.**")[0]


async def test_the_undo_of_an_undo_that_closed_the_pull_request_is_refused(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, pull = await fixed(stage)
        await stage.ask(issue.number, "/codepilot undo")
        branches = stage.bot_branches()
        end = await stage.ask(issue.number, "/codepilot undo")
        assert await stage.refusal(end) == "undone-already"
        assert f"pull request {pull.number}" in end.status
        assert stage.bot_branches() == branches


async def test_a_pull_request_on_which_another_job_is_to_work_stays_open(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, [reply(wait_for_test()), NOTHING_LEFT]) as stage:
        issue, pull = await fixed(stage)
        waiting = stage.say(pull.number, "/codepilot fix")
        await stage.at_work()
        await stage.ask(issue.number, "/codepilot undo")
        assert pull.state == "open"
        assert "undid" in text_of(pull)
        await stage.let_go(await stage.job_of(waiting))


async def test_a_pull_request_that_github_does_not_let_the_bot_close_is_named(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, pull = await fixed(stage)
        stage.hub.fail("pulls.describe", forbidden())
        end = await stage.ask(issue.number, "/codepilot undo")
        assert end.state is JobState.DONE
        assert "I could not correct its pull request." in end.status
        assert pull.state == "open"
