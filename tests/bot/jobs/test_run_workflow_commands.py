"""Commands about earlier work in workflow runs, which share no database."""

from __future__ import annotations

import asyncio
import re
import secrets
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from bot.domain.job import JobState
from bot.jobs.record import JobRecord
from tests.fakes.agent import execute, reply, wait_for_test
from tests.fakes.site import FakeRun
from tests.seam import COMPLETION, FIX, FIXED_CALC, Seam, open_seam
from tests.seam_step import on_seam, run_step
from tests.workflow_runs import WorkflowRun

KEY = {"CODEPILOT_SESSION_KEY": "session-key-of-the-seam-0123456789abcdef"}
WAITS = [reply(wait_for_test()), *FIX]
PLAN = [reply(completion="1. Take the one out.")]


def bodies(stage: Seam, number: int = 1) -> list[str]:
    return [comment.body for comment in stage.hub.comments(stage.repo, number)]


async def say(stage: Seam, body: str, number: int = 1, **variables: str) -> JobState:
    """Comment, and run the step that the comment starts."""
    stage.say(number, body)
    ended = (await run_step(stage, "issue_comment", **{**KEY, **variables})).ended
    assert isinstance(ended, JobState)
    return ended


async def test_the_last_commit_of_an_earlier_run_is_undone(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        [branch] = set(stage.repo.branches) - {"main"}
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert await say(stage, "/codepilot undo") is JobState.DONE
        assert stage.file(branch, "calc.py") == stage.file("main", "calc.py")


async def test_the_commit_is_undone_in_the_bots_pull_request_as_well(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        [pull] = stage.pulls()
        [branch] = set(stage.repo.branches) - {"main"}
        assert await say(stage, "/codepilot undo", pull.number) is JobState.DONE
        assert stage.file(branch, "calc.py") == stage.file("main", "calc.py")


async def test_after_an_undo_the_pull_request_and_the_comments_say_so_and_the_next_run_is_told(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        assert await say(stage, "/codepilot undo it is wrong") is JobState.DONE
        [pull] = stage.pulls()
        assert (pull.state, pull.title) == ("closed", "Undone: Fix add: it counted one too many")
        assert bodies(stage)[1].startswith("↩️ **Undone** by [`mona`](")
        assert "so I closed its pull request" in bodies(stage)[3]
        assert await say(stage, "/codepilot undo") is JobState.REFUSED
        assert "My change is undone already" in bodies(stage)[-1]
        assert await say(stage, "/codepilot retry") is JobState.DONE
        assert "Your last change here was undone" in stage.providers[1].opening
        assert "it is wrong" in stage.providers[1].opening
        assert [each.state for each in stage.pulls()] == ["closed", "open"]


async def test_an_undo_corrects_the_comment_of_an_earlier_run_and_a_retry_is_told_of_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix the sum") is JobState.DONE
        assert await say(stage, "/codepilot undo it broke the sums") is JobState.DONE
        status = bodies(stage)[1]
        assert "↩️ **Undone** by" in status
        assert COMPLETION in status
        assert status.count("codepilot:state=") == 1
        assert [pull.state for pull in stage.pulls()] == ["closed"]
        assert await say(stage, "/codepilot retry") is JobState.DONE
        assert "it broke the sums" in stage.providers[-1].opening
        assert await say(stage, "/codepilot status") is JobState.DONE
        assert ": done, started" in bodies(stage)[-1]


async def test_the_last_work_of_an_earlier_run_is_repeated(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="I could not find it.")], FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix the sum") is JobState.DONE
        assert len(stage.repo.branches) == 1
        assert await say(stage, "/codepilot retry") is JobState.DONE
        assert len(stage.repo.branches) == 2
        assert COMPLETION in bodies(stage)[-1]


async def test_status_names_the_work_of_earlier_runs(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        assert await say(stage, "/codepilot status") is JobState.DONE
        assert "No job is running in this thread. Last: [fix](" in bodies(stage)[-1]
        assert ": done, started" in bodies(stage)[-1]


async def test_a_plan_is_carried_out_by_continue(tmp_path: Path) -> None:
    async with open_seam(tmp_path, PLAN, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot plan") is JobState.DONE
        assert "`/codepilot continue` starts the work on this plan." in bodies(stage)[1]
        assert await say(stage, "/codepilot continue and be quick") is JobState.DONE
        assert COMPLETION in bodies(stage)[-1]
        assert len(stage.repo.branches) == 2


async def test_a_yes_carries_out_a_finished_plan_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, PLAN, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot plan") is JobState.DONE
        assert await say(stage, "/codepilot no") is JobState.REFUSED
        assert "No request is waiting here." in bodies(stage)[-1]
        assert len(stage.repo.branches) == 1
        assert await say(stage, "/codepilot go ahead!") is JobState.DONE
        assert COMPLETION in bodies(stage)[-1]
        assert len(stage.repo.branches) == 2
        assert await say(stage, "/codepilot yes") is JobState.REFUSED
        assert "No request is waiting here. If `yes` is work" in bodies(stage)[-1]
        assert len(stage.providers) == 2


@pytest.mark.parametrize("words", ["approve", "deny", "yes", "no", "cancel"])
async def test_an_answer_or_a_stop_without_anything_to_answer_or_stop_gets_a_sentence(
    tmp_path: Path, words: str
) -> None:
    async with open_seam(tmp_path) as stage:
        stage.issue()
        assert await say(stage, f"/codepilot {words}", CODEPILOT_APPROVALS="artifact") is JobState.REFUSED
        sentence = "No job is running" if words == "cancel" else "There is no waiting run to resume"
        assert sentence in bodies(stage)[-1]
        assert stage.providers == []


async def test_an_answer_to_words_of_two_meanings_offers_what_works_in_the_workflow(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.issue()
        assert await say(stage, "/codepilot hold on") is JobState.DONE
        assert "\n/codepilot stop\n" in bodies(stage)[-1]
        assert "/codepilot approve" not in bodies(stage)[-1]


async def test_an_edit_before_the_agent_begins_counts_in_a_workflow_too(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="Because.")]) as stage:
        stage.issue()
        comment = stage.say(1, "/codepilot fix teh sum")
        stage.hub.edit_comment(comment, by="mona", body="/codepilot ask why?")
        event = next(
            each for each in stage.hub.deliveries if each.action == "created" and each.event == "issue_comment"
        )
        assert (await run_step(stage, "issue_comment", event.payload)).ended is JobState.DONE
        assert "`/codepilot ask` for @mona" in bodies(stage)[1]
        assert len(stage.repo.branches) == 1


@asynccontextmanager
async def working(stage: Seam) -> AsyncIterator[tuple[FakeRun, asyncio.Task[WorkflowRun], asyncio.Event]]:
    """Run a step of `fix` whose agent waits; yield its workflow run, its task, and the event that ends it."""
    stage.issue()
    stage.say(1, "/codepilot fix")
    run, waits, cancelled = stage.hub.start_run(stage.repo), asyncio.Event(), asyncio.Event()
    stage.agents.on_wait, stage.agents.on_go = lambda _play: waits.set(), lambda _play: None
    with on_seam(stage):
        work = asyncio.create_task(
            run_step(stage, "issue_comment", None, 0.05, cancelled, **KEY, GITHUB_RUN_ID=str(run.id))
        )
        await asyncio.wait_for(waits.wait(), 20)
        try:
            yield run, work, cancelled
        finally:
            cancelled.set()
            await work


async def test_stop_cancels_the_run_of_a_job_which_reports_itself(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage, working(stage) as (run, work, cancelled):
        stage.hub.workflow_app.permissions["actions"] = "write"
        stage.hub.on_call = lambda call: cancelled.set() if call == "runs.cancel" else None
        assert await say(stage, "/codepilot stop") is JobState.DONE
        assert run.conclusion == "cancelled"
        ended = await work
        assert ended.ended is JobState.STOPPED
        assert ended.values["conclusion"] == "cancelled"
        assert "### ⏹️ Stopped" in bodies(stage)[1]


@pytest.mark.parametrize("words", ["stop", "cancel", "please stop!"])
async def test_stop_reports_a_run_that_got_no_time_to_do_so(tmp_path: Path, words: str) -> None:
    async with open_seam(tmp_path, WAITS) as stage, working(stage):
        stage.hub.workflow_app.permissions["actions"] = "write"
        assert await say(stage, f"/codepilot {words}") is JobState.DONE
        assert "### ⏹️ Stopped" in bodies(stage)[1]
        assert "Stopped by @mona." in bodies(stage)[1]


async def test_without_the_permission_stop_names_it_and_the_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage, working(stage) as (run, _, _):
        assert await say(stage, "/codepilot stop") is JobState.REFUSED
        assert f"/actions/runs/{run.id}) on its page; or add `actions: write`" in bodies(stage)[-1]
        assert run.conclusion == ""
        assert "### 🛠️ Working on it" in bodies(stage)[1]


async def test_status_names_a_running_job_of_another_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage, working(stage):
        assert await say(stage, "/codepilot status") is JobState.DONE
        assert ": running, started" in bodies(stage)[-1]


async def test_no_message_is_accepted_that_a_running_job_does_not_hear(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage, working(stage):
        assert await say(stage, "/codepilot continue faster") is JobState.REFUSED
        assert "A job in a workflow hears no message while it runs." in bodies(stage)[-1]


async def test_an_internal_error_names_the_log_of_the_workflow_run(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.issue()
        with patch("bot.jobs.pipeline.decide_early", side_effect=RuntimeError):
            assert await say(stage, "/codepilot fix") is JobState.FAILED
        assert re.search(
            r"The log of \[this workflow run\]\(http\S+/actions/runs/\d+\) has the error\.", bodies(stage)[-1]
        )


@pytest.mark.parametrize(
    ("command", "variables", "missing"),
    [
        ("approve", {}, "approvals: artifact"),
        ("deny no", {}, "approvals: artifact"),
        *((verb, {"CODEPILOT_SESSION_KEY": ""}, "session-key") for verb in ("undo", "retry", "status", "stop")),
    ],
)
async def test_a_command_that_cannot_work_names_the_missing_input(
    tmp_path: Path, command: str, variables: dict[str, str], missing: str
) -> None:
    async with open_seam(tmp_path) as stage:
        stage.issue()
        assert await say(stage, f"/codepilot {command}", 1, **variables) is JobState.REFUSED
        assert f"which lacks the input `{missing}`" in bodies(stage)[-1]
        assert await say(stage, "/codepilot help", 1, **variables) is JobState.DONE
        assert f"`/codepilot {command.split(maxsplit=1)[0]}" not in bodies(stage)[-1]


async def test_a_job_whose_run_died_is_reported_and_can_be_repeated(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage, working(stage) as (run, _, _):
        stage.hub.cancel_run(run)
        assert await say(stage, "/codepilot retry") is JobState.DONE
        assert "The workflow run ended before the job could report." in bodies(stage)[1]
        assert COMPLETION in bodies(stage)[-1]


@pytest.mark.parametrize("forged", ["another thread", "another key", "another author"])
async def test_no_work_is_taken_from_the_stamp_of(tmp_path: Path, forged: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        number, author, key = 1, stage.hub.workflow_app.bot.login, KEY
        if forged == "another thread":
            number = stage.issue().number
        elif forged == "another key":
            key = {"CODEPILOT_SESSION_KEY": "another-key-of-the-seam-0123456789abcdef"}
        else:
            author = "mona"
            number = 1
        stamped = bodies(stage)[1]
        for comment in stage.hub.comments(stage.repo, 1):
            if comment.body == stamped and forged == "another author":
                stage.hub.delete_comment(comment, by="mona")
        stage.hub.comment(stage.repo, number, author=author, body=stamped)
        stage.say(number, "/codepilot undo")
        assert (await run_step(stage, "issue_comment", **key)).ended is JobState.REFUSED
        assert "There is no commit of mine in this thread to revert." in bodies(stage, number)[-1]


async def test_words_without_room_in_a_comment_are_to_be_given_again(tmp_path: Path) -> None:
    long = "".join(secrets.choice(string.ascii_letters) for _ in range(19_000))
    async with open_seam(tmp_path, *[[reply(completion="x" * 19_000)]] * 2) as stage:
        stage.issue()
        assert await say(stage, f"/codepilot fix {long}") is JobState.DONE
        assert all(len(body) <= 65_536 for body in bodies(stage))
        with patch("bot.jobs.posts.BODY_LIMIT", 30_000):
            assert await say(stage, f"/codepilot fix {long}") is JobState.DONE
        assert await say(stage, "/codepilot retry") is JobState.REFUSED
        assert "too long to be kept" in bodies(stage)[-1]


async def test_the_commit_of_a_run_that_was_run_again_is_undone(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [], FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.FAILED
        stage.advance(60.0)
        by_people = [each for each in stage.hub.deliveries if each.payload["sender"]["login"] == "mona"]
        stage.hub.deliveries[:] = by_people
        again = await run_step(stage, "issue_comment", **KEY, GITHUB_RUN_ATTEMPT="2")
        assert again.ended is JobState.DONE, again.summary
        [branch] = set(stage.repo.branches) - {"main"}
        assert await say(stage, "/codepilot undo") is JobState.DONE
        assert stage.file(branch, "calc.py") == stage.file("main", "calc.py")


async def test_a_copy_of_an_older_stamp_hides_no_commit(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        pull = stage.pull()
        on = {"path": "topic.txt", "line": 1}
        stage.hub.review_comment(stage.repo, pull.number, author="mona", body="/codepilot fix", **on)
        waits = asyncio.Event()
        stage.agents.on_wait, stage.agents.on_go = lambda _play: waits.set(), lambda _play: None
        run = stage.hub.start_run(stage.repo)
        with on_seam(stage):
            work = asyncio.create_task(run_step(stage, "pull_request_review_comment", **KEY, GITHUB_RUN_ID=str(run.id)))
            await asyncio.wait_for(waits.wait(), 20)
            stale = stage.hub.review_comments(stage.repo, pull.number)[-1].body
            stage.providers[0].go.set()
            assert (await work).ended is JobState.DONE
        stage.hub.comment(stage.repo, pull.number, author=stage.hub.workflow_app.bot.login, body=stale)
        assert await say(stage, "/codepilot undo", pull.number) is JobState.DONE


async def test_the_jobs_of_a_renamed_repository_are_found_under_its_present_name(tmp_path: Path) -> None:
    async with open_seam(tmp_path, PLAN, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot plan") is JobState.DONE
        stage.hub.rename(stage.repo, "sums")
        stage.hub.add_repo("mona/calc", owner="mona", files={"a.txt": "1\n"})
        assert await say(stage, "/codepilot continue") is JobState.DONE
        assert len(stage.repo.branches) == 2


async def test_a_job_that_begins_after_the_run_was_cancelled_does_no_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="I could not find it.")], FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        stage.say(1, "/codepilot retry")
        cancelled = asyncio.Event()
        stage.hub.on_call = lambda _call: cancelled.set()
        run = await run_step(stage, "issue_comment", None, 0.05, cancelled, **KEY)
        assert run.ended is JobState.STOPPED
        assert len(stage.providers) == 1


@asynccontextmanager
async def waiting_beside_running(tmp_path: Path) -> AsyncIterator[Seam]:
    """Yield a stage with a job that waits for approval and one that runs, where `stop` may cancel workflow runs."""
    asks = {"CODEPILOT_NETWORK": "pypi.org", "CODEPILOT_LEVEL": "ask", "CODEPILOT_APPROVALS": "artifact"}
    async with open_seam(tmp_path, [reply(execute("sh check.sh > log"))], WAITS) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix", 1, **asks) is JobState.WAITING
        async with working(stage):
            stage.hub.workflow_app.permissions["actions"] = "write"
            yield stage


async def test_stop_ends_a_job_that_waits_beside_the_running_one(tmp_path: Path) -> None:
    async with waiting_beside_running(tmp_path) as stage:
        assert await say(stage, "/codepilot stop") is JobState.DONE
        stopped = [body for body in bodies(stage) if "### ⏹️ Stopped" in body]
        assert ["Stopped by @mona." in body for body in stopped] == [True, True]


async def test_stop_lets_a_job_with_work_end_after_the_running_one(tmp_path: Path) -> None:
    async with waiting_beside_running(tmp_path) as stage:
        with patch.object(JobRecord, "has_worked", new=True):
            async with asyncio.timeout(20):
                assert await say(stage, "/codepilot stop") is JobState.STOPPED


@pytest.mark.parametrize("mode", ["always", "on-change", "never"])
async def test_work_on_a_plan_is_offered_only_where_a_later_run_finds_the_plan(tmp_path: Path, mode: str) -> None:
    async with open_seam(tmp_path, PLAN) as stage:
        stage.say(stage.issue().number, "/codepilot plan")
        run = await run_step(stage, "issue_comment", **KEY, CODEPILOT_COMMENT=mode)
        assert ("codepilot continue` starts the work on this plan" in run.summary) is (mode == "always")


async def test_an_attempt_of_the_same_run_takes_the_job_of_the_last_one_for_ended(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage, working(stage) as (run, _, _):
        stage.say(1, "/codepilot retry")
        again = {"GITHUB_RUN_ID": str(run.id), "GITHUB_RUN_ATTEMPT": "2"}
        assert (await run_step(stage, "issue_comment", **KEY, **again)).ended is JobState.DONE
        assert COMPLETION in bodies(stage)[-1]


@pytest.mark.parametrize("verb", ["undo", "retry", "status", "stop"])
async def test_work_that_was_stored_with_another_key_is_not_said_to_be_missing(tmp_path: Path, verb: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix") is JobState.DONE
        stage.say(1, f"/codepilot {verb}")
        await run_step(stage, "issue_comment", CODEPILOT_SESSION_KEY="another-key-of-the-seam-0123456789abcdef")
        assert "I cannot read all of my comments here: they were made with another `session-key`" in bodies(stage)[-1]
