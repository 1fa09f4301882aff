"""Changes that a second attempt or segment of a job finds, and effects that it must not repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.github.types import GitHubError
from bot.jobs import agent_run, reports, waiting
from bot.jobs.context import JobContext
from bot.jobs.record import RecordedEnding, Request, StoredRecord
from bot.publishing.outcome import JobOutcome
from tests.fakes.agent import Script, ask_user, execute, reply, wait_for_test, write
from tests.fakes.github import outage, rate_limited
from tests.fakes.workspaces import FakeTree
from tests.seam import ASKING, COMPLETION, FIX, FIXED_CALC, NOTHING_LEFT, open_seam
from tests.stage import BUG

DEPLOY = execute("sh deploy.sh")
NEEDS_APPROVAL: Script = [reply(write("calc.py", FIXED_CALC), DEPLOY), NOTHING_LEFT]


async def test_a_published_change_is_reported_without_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        with monkeypatch.context() as patched:
            patched.setattr(reports, "render_report", stage.hang)
            await stage.settle()
        assert len(stage.pulls()) == 1
        await stage.restart()
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert len(stage.providers) == 1
        assert len(stage.pulls()) == 1
        assert stage.kept_patch(end.job_id) is None


async def test_a_revert_is_reported_without_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        pull = stage.pull()
        assert (await stage.ask(pull.number, "/codepilot fix")).state is JobState.DONE
        fix, render = stage.head("topic"), reports.render_report

        async def hang(context: JobContext, outcome: JobOutcome) -> RecordedEnding | None:
            if not context.job.is_from_event:  # of the review that the repository does not want
                await stage.hang()
            return await render(context, outcome)

        with monkeypatch.context() as patched:
            patched.setattr(reports, "render_report", hang)
            command = stage.say(pull.number, "/codepilot undo")
            await stage.settle()
        assert stage.head("topic^") == fix
        await stage.restart()
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert f"I reverted commit `{fix[:10]}`." in end.status
        assert stage.head("topic^") == fix
        assert stage.file("topic", "calc.py") == BUG.strip()


async def test_a_stop_that_arrives_while_a_job_begins_to_wait_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_request = waiting.store_request
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        issue = stage.issue()

        async def store_and_stop(record: StoredRecord, request: Request) -> None:
            await store_request(record, request)
            stage.say(issue.number, "/codepilot stop")
            await stage.settle()

        monkeypatch.setattr(waiting, "store_request", store_and_stop)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.STOPPED, end
        assert "Stopped by @mona." in end.status


async def test_a_deleted_status_comment_is_made_again(tmp_path: Path) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await stage.pause_of(command)
        comments = stage.hub.comments(stage.repo, issue.number)
        [status, _notice] = [comment for comment in comments if comment.author_id == stage.app.bot.id]
        stage.hub.delete_comment(status, by="mona")
        assert stage.bot_comments(issue.number) == []
        stage.say(issue.number, f"/codepilot deny {pause.short_id}")
        end = await stage.end_of(command)
        assert "Nothing left to do." in " ".join(stage.bot_comments(issue.number)), end


async def test_a_label_stays_bound_to_the_head_when_unfinished_work_goes_elsewhere(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), wait_for_test())]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        pull = stage.pull()
        stage.hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await stage.end_after("pull_request", "labeled")
        command = stage.say(pull.number, "/codepilot fix")
        await stage.job_of(command)
        await stage.at_work()
        stage.say(pull.number, "/codepilot stop")
        await stage.end_of(command)
        assert stage.bot_branches()
        second = await stage.ask(pull.number, "/codepilot explain")
        assert second.state is JobState.FAILED  # it has no script
        assert "I removed the label" not in second.status
        assert list(stage.hub.issue(stage.repo, pull.number).labels) == ["codepilot:auto"]


async def test_an_author_who_lost_the_role_meanwhile_publishes_no_review(tmp_path: Path) -> None:
    script = [reply(completion="It adds a topic.\n\n```json\n[]\n```")]
    async with open_seam(tmp_path, script) as stage:
        stage.hub.add_collaborator(stage.repo, "rev", "write")
        pull = stage.pull()

        def take_role(call: str) -> None:
            if call == "reviews.list_for_pull":
                stage.hub.add_collaborator(stage.repo, "rev", "read")

        stage.hub.on_call = take_role
        end = await stage.ask(pull.number, "/codepilot review", author="rev")
        assert "Only people with write access" in end.status
        assert pull.pull is not None
        assert pull.pull.reviews == []


async def test_the_permission_of_a_label_for_one_commit_follows_no_other_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [reply(write("calc.py", FIXED_CALC), DEPLOY, completion=COMPLETION)]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        pull = stage.pull()
        stage.hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await stage.end_after("pull_request", "labeled")
        command = stage.say(pull.number, "/codepilot fix")
        with monkeypatch.context() as patched:
            patched.setattr(agent_run, "deliver", stage.hang)
            await stage.settle()
            assert stage.providers[0].commands == [DEPLOY.command]
            theirs = stage.hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
            await stage.end_after("pull_request", "synchronize")
        await stage.restart()
        end = await stage.end_of(command)
        assert stage.head("topic") == theirs
        assert "moved while the bot was working" in end.status


async def test_an_approval_that_is_handled_twice_does_not_approve_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [reply(DEPLOY), reply(execute("sh drop.sh"))]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        first = await stage.pause_of(stage.say(issue.number, "/codepilot fix"))
        with monkeypatch.context() as patched:
            patched.setattr(JobContext, "react", stage.hang)
            approval = await stage.job_of(stage.say(issue.number, "/codepilot approve"))
            second = await stage.next_pause(first)
            assert await stage.state_of(approval) is JobState.RUNNING
        await stage.restart()
        assert (await stage.ended(approval)).state is JobState.DONE
        assert await stage.still_waits(second)
        assert stage.providers[0].commands == [DEPLOY.command]


@pytest.mark.parametrize(("error", "seconds"), [(outage(), 0), (rate_limited(150), 150)], ids=["outage", "pause"])
async def test_a_pause_for_github_is_kept_and_counts_as_no_attempt_that_died(
    tmp_path: Path, error: GitHubError, seconds: int
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.fail("threads.snapshot", error)
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        start = stage.clock()
        await stage.settle()
        assert stage.hub.take_fault("threads.snapshot") is None
        stored = await stage.queue.get(job_id)
        assert stored is not None
        assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
        assert (await stage.record(job_id)).service_outage is not None
        assert stage.queue._entries[job_id].held_until >= start + seconds
        assert (await stage.ended(job_id)).state is JobState.DONE


@pytest.mark.parametrize("approved", [False, True], ids=["at once", "after an approval"])
async def test_a_finished_run_is_published_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, approved: bool
) -> None:
    script, operator = (NEEDS_APPROVAL, ASKING) if approved else (FIX, {})
    async with open_seam(tmp_path, script, operator=operator) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        if approved:
            pause = await stage.pause_of(command)
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        with monkeypatch.context() as patched:
            patched.setattr(FakeTree, "change", stage.hang)
            await stage.settle()
            assert await stage.state_of(await stage.job_of(command)) is JobState.RUNNING
        await stage.restart()
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ✅ Done, an ad-hoc check passed"), end.status
        assert (COMPLETION if not approved else "Nothing left to do.") in end.status
        [play] = stage.providers
        assert play.remaining == 0
        assert len(stage.pulls()) == 1
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_run_that_starts_over_after_an_approval_and_is_cut_off_starts_over_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = [reply(write("calc.py", FIXED_CALC), completion=COMPLETION)]
    async with open_seam(tmp_path, NEEDS_APPROVAL, again, operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await stage.pause_of(command)
        stage.workspaces.lose(pause.job_id)
        with monkeypatch.context() as patched:
            patched.setattr(agent_run, "_prepare", stage.hang)
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
            await stage.settle()
            assert await stage.state_of(pause.job_id) is JobState.RUNNING
        await stage.restart()
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status


@pytest.mark.parametrize("kind", ["question", "permission"])
async def test_a_request_that_was_not_shown_yet_is_shown_and_takes_no_answer_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    request = ask_user("Which port?") if kind == "question" else DEPLOY
    last = replace(NOTHING_LEFT, expect=("8080",)) if kind == "question" else NOTHING_LEFT
    async with open_seam(tmp_path, [reply(request), last], operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        with monkeypatch.context() as patched:
            patched.setattr(waiting, "store_request", stage.hang)
            await stage.settle()
            assert await stage.state_of(await stage.job_of(command)) is JobState.RUNNING
        await stage.restart()
        pause = await stage.pause_of(command)
        assert ("Which port?" if kind == "question" else "sh deploy.sh") in pause.status
        answer = "continue 8080" if kind == "question" else f"deny {pause.short_id}"
        stage.say(issue.number, f"/codepilot {answer}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert "Nothing left to do." in end.status
        assert len(stage.providers) == 1
