"""Commands about other jobs: each does its work at once, and only for people with write access."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Outcome
from bot.domain.job import Job, JobState
from bot.git.change import Change
from bot.git.tree import Tree
from bot.jobs import agent_run, results
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext, JobServices
from bot.publishing.outcome import JobOutcome
from bot.queue.records import StoredJob
from tests.fakes.agent import Script, ask_user, execute, reply, wait_for_test, write
from tests.fakes.site import FakeComment
from tests.seam import ASKING, FIX, FIXED_CALC, NOTHING_LEFT, Seam, open_seam
from tests.stage import BUG

NEEDS_APPROVAL: Script = [reply(write("calc.py", FIXED_CALC), execute("sh deploy.sh"))]
WAITS: Script = [reply(wait_for_test()), NOTHING_LEFT]


async def at_wait(stage: Seam, number: int, body: str = "/codepilot fix") -> tuple[FakeComment, str]:
    """Give a command whose agent waits for the test; return it and its job."""
    command = stage.say(number, body)
    job_id = await stage.job_of(command)
    await stage.at_work()
    return command, job_id


async def stored(stage: Seam, job_id: str) -> StoredJob:
    """Return a job as the queue has it now."""
    job = await stage.queue.get(job_id)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("script", "request_text"),
    [(NEEDS_APPROVAL, "sh deploy.sh"), ([reply(ask_user("Which sum?"))], "Which sum?")],
    ids=["permission", "question"],
)
async def test_stop_ends_a_job_that_waits_for_a_person(tmp_path: Path, script: Script, request_text: str) -> None:
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        assert request_text in stage.bot_comments(issue.number)[0]
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "Stopped by @mona." in end.status
        assert "/codepilot approve" not in end.status
        assert stage.pulls() == []
        late = await stage.ask(issue.number, "/codepilot approve")
        assert await stage.refusal(late) == "no-such-request"
        assert len(stage.providers) == 1
        assert stage.nothing_left()


async def test_stop_ends_the_jobs_that_are_queued_behind(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        issue = stage.issue()
        first, _ = await at_wait(stage, issue.number)
        second = stage.say(issue.number, "/codepilot fix more")
        await stage.job_of(second)
        stop = stage.say(issue.number, "/codepilot stop")
        for command in (first, second):
            end = await stage.end_of(command)
            assert end.state is JobState.STOPPED, end
            assert "Stopped by @mona." in end.status
        assert stage.reactions(stop) == ["+1"]
        # A queued job never gets a model of its own.
        assert len(stage.providers) == 1


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("stop", "nothing-to-stop"),
        ("continue go on", "nothing-to-continue"),
        ("retry", "nothing-to-retry"),
        ("undo", "nothing-to-undo"),
    ],
)
async def test_a_command_without_a_job_to_steer_says_so(tmp_path: Path, command: str, cause: str) -> None:
    async with open_seam(tmp_path) as stage:
        number = stage.pull().number
        await stage.settle()  # the review of the new pull request, which this repository does not want
        before = dict(stage.repo.branches)
        end = await stage.ask(number, f"/codepilot {command}")
        assert await stage.refusal(end) == cause
        assert stage.repo.branches == before
        assert stage.providers == []


async def test_retry_does_the_last_work_again_and_only_when_it_is_over(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage:
        issue = stage.issue()
        command, job_id = await at_wait(stage, issue.number, "/codepilot fix the sum")
        early = await stage.ask(issue.number, "/codepilot retry")
        assert await stage.refusal(early) == "still-alive"
        await stage.let_go(job_id)
        await stage.end_of(command)
        assert stage.pulls() == []
        retry = stage.say(issue.number, "/codepilot retry")
        assert (await stage.end_of(retry)).state is JobState.DONE
        assert stage.reactions(retry) == ["+1"]
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        assert (await stage.ended(newest.job.id)).state is JobState.DONE
        assert newest.job.command == (await stored(stage, job_id)).job.command
        assert len(stage.pulls()) == 1


async def test_a_message_that_comes_after_the_end_of_the_run_is_reported_as_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, messages = results.deliver, list[FakeComment]()
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()

        async def send_first(
            context: JobContext, assignment: Assignment, tree: Tree, run: Outcome, change: Change
        ) -> JobOutcome:
            messages.append(stage.say(issue.number, "/codepilot continue but leave the docs alone"))
            await stage.settle()
            return await deliver(context, assignment, tree, run, change)

        monkeypatch.setattr(agent_run, "deliver", send_first)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert [(await stage.end_of(message)).state for message in messages] == [JobState.DONE]
        assert "This message came too late; send it again: `but leave the docs alone`" in end.status


async def test_a_message_that_comes_while_the_log_of_a_failed_run_is_stored_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, store_log = list[FakeComment](), JobServices.store_log
    async with open_seam(tmp_path, []) as stage:
        issue = stage.issue()

        async def send_first(services: JobServices, job: Job) -> None:
            if not messages and services.has_session(job):  # also called before a run begins
                messages.append(stage.say(issue.number, "/codepilot continue but leave the docs alone"))
                await stage.settle()
            await store_log(services, job)

        monkeypatch.setattr(JobServices, "store_log", send_first)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED, end
        assert [(await stage.end_of(message)).state for message in messages] == [JobState.DONE]
        assert "This message came too late; send it again: `but leave the docs alone`" in end.status


async def test_a_rerun_of_an_old_check_retries_its_job(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [NOTHING_LEFT], [NOTHING_LEFT], [NOTHING_LEFT]) as stage:
        issue = stage.issue()
        first = await stage.ask(issue.number, "/codepilot fix the sum")
        await stage.ask(issue.number, "/codepilot fix the product")
        stage.hub.rerun(stage.check_of(first.job_id), by="mona")
        assert (await stage.end_after("check_run", "rerequested")).state is JobState.DONE
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        assert (await stage.ended(newest.job.id)).state is JobState.DONE
        assert newest.job.command == (await stored(stage, first.job_id)).job.command
        assert len(stage.providers) == 3


async def test_status_reports_a_waiting_job(tmp_path: Path) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        issue = stage.issue()
        nothing = await stage.ask(issue.number, "/codepilot status")
        assert "No job is running in this thread." in nothing.status
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.waits(command)
        status = await stage.ask(issue.number, "/codepilot status")
        assert status.state is JobState.DONE
        assert "for @mona: waiting" in status.status
        assert "/codepilot approve " in status.status
        assert await stage.state_of(job_id) is JobState.WAITING


async def test_status_answers_while_a_job_runs(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        issue = stage.issue()
        command, job_id = await at_wait(stage, issue.number)
        status = await stage.ask(issue.number, "/codepilot status")
        assert "for @mona: running" in status.status
        await stage.let_go(job_id)
        assert (await stage.end_of(command)).state is JobState.DONE


@pytest.mark.parametrize("kind", ["issue", "pull", "pull of the bot"])
async def test_undo_reverts_the_last_commit_of_the_bot_by_a_new_one(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        number = stage.pull().number if kind == "pull" else stage.issue().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        branch = "topic" if kind == "pull" else next(iter(stage.bot_branches()))
        fix = stage.head(branch)
        if kind == "pull of the bot":
            [pull] = stage.pulls()
            number = pull.number
        end = await stage.ask(number, "/codepilot undo")
        assert end.state is JobState.DONE, end
        assert "I reverted commit" in end.status
        assert stage.head(f"{branch}^") == fix
        assert stage.file(branch, "calc.py") == BUG.strip()
        assert stage.changed_paths(f"{fix}^", branch) == []
        assert stage.message(branch).splitlines()[0] == 'Revert "Fix add: it counted one too many"'
        assert "codepilot[bot]" in stage.author(branch)
        assert len(stage.pulls()) == 1
        assert len(stage.providers) == 1


async def test_a_person_who_lost_the_role_meanwhile_reverts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_collaborator(stage.repo, "writer", "write")
        number = stage.pull().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        fix = stage.head("topic")

        def take_role(call: str) -> None:
            if call == "checks.create":  # made before git fetches
                stage.hub.add_collaborator(stage.repo, "writer", "read")

        stage.hub.on_call = take_role
        end = await stage.ask(number, "/codepilot undo", author="writer")
        assert end.state is JobState.FAILED
        assert "write access" in end.status
        assert stage.head("topic") == fix


async def test_undo_leaves_a_commit_alone_after_which_another_was_pushed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        number = stage.pull().number
        await stage.ask(number, "/codepilot fix")
        fix = stage.head("topic")
        theirs = stage.hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        end = await stage.ask(number, "/codepilot undo")
        assert await stage.refusal(end) == "undo-moved"
        assert theirs[:10] in end.status
        assert f"git revert {fix[:10]}" in end.status
        assert stage.head("topic") == theirs


@pytest.mark.parametrize("role", ["none", "triage"])
async def test_a_person_without_write_access_steers_nothing(tmp_path: Path, role: str) -> None:
    operator = ASKING | {"allow_commands": ("sh check.sh",)}
    async with open_seam(tmp_path, FIX, NEEDS_APPROVAL, operator=operator) as stage:
        stage.hub.add_collaborator(stage.repo, "stranger", role)  # type: ignore[arg-type]
        issue = stage.issue()
        assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
        pause = await stage.pause_of(stage.say(issue.number, "/codepilot fix more"))
        branches, comments = dict(stage.repo.branches), stage.bot_comments(issue.number)
        for verb in ("stop", "continue do this", "approve", "deny", "retry", "status", "undo"):
            steering = stage.say(issue.number, f"/codepilot {verb}", author="stranger")
            end = await stage.end_of(steering)
            assert end.state is JobState.REFUSED, verb
            assert stage.reactions(steering) == ["confused"], verb
        assert await stage.still_waits(pause)
        assert stage.queue._entries[pause.job_id].signals == []
        assert stage.bot_comments(issue.number) == comments
        assert stage.repo.branches == branches
        assert len(stage.providers) == 2
