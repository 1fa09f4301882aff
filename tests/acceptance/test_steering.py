"""Commands about other jobs: each does its work at once, and only for who may command."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import MessageInjected, Outcome
from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import Job, JobState
from bot.git.change import Change
from bot.git.tree import Tree
from bot.jobs import agent_run, results
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext, JobServices
from bot.jobs.state import Inbox
from bot.publishing.outcome import JobOutcome
from bot.queue.records import Signal, StoredJob
from localhub import Comment, LocalHub
from tests.durable import signals_of
from tests.pauses import ASKING, check_of
from tests.sandboxes import processes_with
from tests.stage import BUG, COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

DONE = "```completion\nNothing left.\n```\n"
NEEDS_A_YES = acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC)
ASKS = acting('ask_user("Which sum?")')


async def at_wait(stage: Stage, number: int, said: str = "/codepilot fix") -> tuple[Comment, str]:
    """A command whose agent waits for the file `go`, and its job."""
    command = stage.say(number, said)
    job_id = await stage.job_of(command)
    await stage.at_work()
    return command, job_id


async def test_stop_ends_a_running_command_and_keeps_what_was_done(hub: LocalHub, tmp_path: Path) -> None:
    marker = f"marker-{tmp_path.name}"
    runs = acting(f'write_file("calc.py")\nexecute("main", "sh -c \'sleep 600; true\' {marker}")', FIXED_CALC)
    async with staged(hub, tmp_path, [runs]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await eventually(lambda: len(processes_with(marker)) > 0, within=60)
        stop = stage.say(issue.number, "/codepilot stop")
        # The sleep takes ten minutes: an end within the helper's half minute can only be the stop's doing.
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "Stopped by @mona." in end.status
        assert stage.reactions(stop) == ["+1"]
        assert stage.pulls() == []
        [(branch, sha)] = stage.bot_branches().items()
        assert branch.endswith("-wip")
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert f"`{branch}`" in end.status
        assert "[unfinished work](" in end.status
        assert not processes_with(marker)
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()


async def test_what_was_stopped_is_kept_as_a_patch_where_branches_are_not_wanted(hub: LocalHub, tmp_path: Path) -> None:
    runs = acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)
    files = {"calc.py": BUG, ".github/codepilot.yml": "wip_branches: false\n"}
    async with staged(hub, tmp_path, [runs], files=files) as stage:
        command, job_id = await at_wait(stage, stage.issue().number)
        await eventually(lambda: (stage.files_of(job_id) / "calc.py").read_text() == FIXED_CALC)
        stage.say(command.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert stage.nothing_published()
        assert f"`{job_id}.patch`" in end.status
        assert "+    return a + b\n" in (stage.data / "patches" / f"{job_id}.patch").read_text(encoding="utf-8")


@pytest.mark.parametrize(("script", "asked"), [(NEEDS_A_YES, "make mischief"), (ASKS, "Which sum?")])
async def test_stop_ends_a_job_that_waits_for_a_person(hub: LocalHub, tmp_path: Path, script: str, asked: str) -> None:
    async with staged(hub, tmp_path, [script], operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        assert asked in stage.bot_comments(issue.number)[0]
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


async def test_stop_ends_the_jobs_that_are_queued_behind(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO)]) as stage:
        issue = stage.issue()
        first, _ = await at_wait(stage, issue.number)
        second = stage.say(issue.number, "/codepilot fix more")
        await stage.job_of(second)
        stage.say(issue.number, "/codepilot stop")
        for command in (first, second):
            end = await stage.end_of(command)
            assert end.state is JobState.STOPPED, end
            assert "Stopped by @mona." in end.status
        # A queued job never gets a model of its own.
        assert len(stage.providers) == 1


async def test_stop_with_nothing_under_way_says_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot stop")
        assert await stage.refusal(end) == "nothing-to-stop"


async def test_continue_reaches_the_running_job_at_its_next_step(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Signal] = []
    put = Inbox.put

    def overheard(inbox: Inbox, signal: Signal) -> None:
        put(inbox, signal)
        heard.append(signal)

    monkeypatch.setattr(Inbox, "put", overheard)
    next_step = ScriptedReply(text=FIX, expect=("@mona says, while you work: mind the minus",))
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), next_step]) as stage:
        issue = stage.issue()
        command, job_id = await at_wait(stage, issue.number)
        message = stage.say(issue.number, "/codepilot continue mind the minus")
        assert (await stage.end_of(message)).state is JobState.DONE
        assert stage.reactions(message) == ["+1"]

        await eventually(lambda: heard)
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert any(isinstance(each, MessageInjected) for each in stage.events)
        # One comment: what was told to the job has a reaction and no answer of its own.
        assert len(stage.bot_comments(issue.number)) == 1


async def test_continue_answers_the_question_that_waits(hub: LocalHub, tmp_path: Path) -> None:
    goes_on = ScriptedReply(text=FIX, expect=("The sum of two.",))
    async with staged(hub, tmp_path, [ASKS], [goes_on], operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        stage.say(issue.number, "/codepilot continue The sum of two.")
        # What the agent then asks for is a yes to its command: the answer itself was no such yes.
        await eventually(lambda: "sh check.sh" in stage.bot_comments(issue.number)[0] or None, within=60)
        await stage.waits(command)
        assert len(stage.providers) == 2
        assert stage.nothing_published()


async def test_continue_with_nothing_under_way_says_what_to_do(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot continue go on")
        assert await stage.refusal(end) == "nothing-to-continue"


async def test_retry_does_the_last_work_again_and_only_when_it_is_over(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), DONE], [FIX]) as stage:
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
        await eventually(stage.pulls, within=30)
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        assert (await stage.ended(newest.job.id)).state is JobState.DONE
        assert newest.job.command == (await stored(stage, job_id)).job.command


async def test_a_message_that_comes_too_late_for_the_run_is_said_to_have(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = results.deliver
    late: list[Comment] = []

    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()

        async def slowly(
            context: JobContext, assignment: Assignment, tree: Tree, run: Outcome, change: Change
        ) -> JobOutcome:
            late.append(stage.say(issue.number, "/codepilot continue but leave the docs alone"))
            await stage.end_of(late[0])
            return await deliver(context, assignment, tree, run, change)

        monkeypatch.setattr(agent_run, "deliver", slowly)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "This message came too late; send it again: `but leave the docs alone`" in end.status


async def test_a_message_that_comes_while_the_log_of_a_failed_run_is_kept_is_not_lost(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(hub, tmp_path, []) as stage:
        issue = stage.issue()
        late, keep_log = list[Comment](), JobServices.store_log

        async def slowly(services: JobServices, job: Job) -> None:
            if not late and services.has_session(job):  # also called before a run begins
                late.append(stage.say(issue.number, "/codepilot continue but leave the docs alone"))
                assert (await stage.end_of(late[0])).state is JobState.DONE
            await keep_log(services, job)

        monkeypatch.setattr(JobServices, "store_log", slowly)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED, end
        assert "This message came too late; send it again: `but leave the docs alone`" in end.status


async def test_running_an_old_check_again_retries_the_job_that_it_is_of(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [DONE], [DONE], [DONE]) as stage:
        issue = stage.issue()
        first = await stage.ask(issue.number, "/codepilot fix the sum")
        await stage.ask(issue.number, "/codepilot fix the product")
        stage.hub.rerun(check_of(stage, first.job_id), by="mona")
        assert (await stage.end_after("check_run", "rerequested")).state is JobState.DONE
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        assert (await stage.ended(newest.job.id)).state is JobState.DONE
        assert newest.job.command == (await stored(stage, first.job_id)).job.command


async def test_retry_with_nothing_done_says_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot retry")
        assert await stage.refusal(end) == "nothing-to-retry"


async def test_status_tells_of_what_runs_and_waits(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), DONE], [NEEDS_A_YES], operator=ASKING) as stage:
        issue = stage.issue()
        nothing = await stage.ask(issue.number, "/codepilot status")
        assert "No job is running in this thread." in nothing.status
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        told = await stage.ask(issue.number, "/codepilot status")
        assert told.state is JobState.DONE
        assert "for @mona: waiting" in told.status
        assert "/codepilot approve " in told.status
        assert (await stored(stage, await stage.job_of(command))).state is JobState.WAITING


async def test_status_answers_while_a_job_runs(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), DONE]) as stage:
        command, job_id = await at_wait(stage, stage.issue().number)
        told = await stage.ask(command.number, "/codepilot status")
        assert "for @mona: running" in told.status
        await stage.let_go(job_id)
        assert (await stage.end_of(command)).state is JobState.DONE


@pytest.mark.parametrize("kind", ["issue", "pull", "the bot's own pull"])
async def test_undo_takes_the_bots_last_commit_back_by_a_new_one(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        number = stage.pull().number if kind == "pull" else stage.issue().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        branch = "topic" if kind == "pull" else next(iter(stage.bot_branches()))
        made = hub.branches(stage.repo)[branch]
        if kind == "the bot's own pull":
            [pull] = stage.pulls()
            number = pull.number
        end = await stage.ask(number, "/codepilot undo")
        assert end.state is JobState.DONE, end
        assert "I reverted commit" in end.status
        undone = hub.branches(stage.repo)[branch]
        assert stage.git("rev-parse", f"{undone}^") == made
        assert stage.file(undone, "calc.py") == BUG.strip()
        assert stage.git("rev-parse", f"{undone}^{{tree}}") == stage.git("rev-parse", f"{made}^^{{tree}}")
        assert stage.git("log", "-1", "--format=%s", undone) == 'Revert "Fix add: it counted one too many"'
        assert stage.git("log", "-1", "--format=%an %cn", undone) == "codepilot[bot] GitHub"
        assert len(stage.pulls()) == 1
        assert len(stage.providers) == 1


async def test_who_lost_their_role_while_git_was_at_it_takes_nothing_back(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.add_user("writer")
        hub.add_collaborator(stage.repo, "writer", "write")
        number = stage.pull().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        made = hub.branches(stage.repo)["topic"]

        def at_work(call: str) -> None:
            if call.startswith("POST") and call.endswith("/check-runs"):  # made before git fetches
                hub.add_collaborator(stage.repo, "writer", "read")

        stage.on_call = at_work
        end = await stage.ask(number, "/codepilot undo", author="writer")
        assert end.state is JobState.FAILED
        assert "write access" in end.status
        assert hub.branches(stage.repo)["topic"] == made


async def test_undo_leaves_a_commit_alone_that_somebody_pushed_after(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        number = stage.pull().number
        await stage.ask(number, "/codepilot fix")
        made = hub.branches(stage.repo)["topic"]
        theirs = hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        end = await stage.ask(number, "/codepilot undo")
        assert await stage.refusal(end) == "undo-moved"
        assert theirs[:10] in end.status
        assert f"git revert {made[:10]}" in end.status
        assert hub.branches(stage.repo)["topic"] == theirs


async def test_undo_where_the_bot_did_nothing_says_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        number = stage.pull().number
        before = hub.branches(stage.repo)
        end = await stage.ask(number, "/codepilot undo")
        assert await stage.refusal(end) == "nothing-to-undo"
        assert hub.branches(stage.repo) == before


@pytest.mark.parametrize("role", ["none", "triage"])
async def test_who_may_not_write_steers_nothing(hub: LocalHub, tmp_path: Path, role: str) -> None:
    async with staged(
        hub, tmp_path, [FIX], [NEEDS_A_YES], operator=ASKING | {"allow_commands": ("sh check.sh",)}
    ) as stage:
        hub.add_user("stranger")
        hub.add_collaborator(stage.repo, "stranger", "triage" if role == "triage" else "none")
        issue = stage.issue()
        assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
        command = stage.say(issue.number, "/codepilot fix more")
        job_id = await stage.waits(command)
        before, said = hub.branches(stage.repo), stage.bot_comments(issue.number)
        for verb in ("stop", "continue do this", "approve", "deny", "retry", "status", "undo"):
            steering = stage.say(issue.number, f"/codepilot {verb}", author="stranger")
            end = await stage.end_of(steering)
            assert end.state is JobState.REFUSED, verb
            assert stage.reactions(steering) == ["confused"], verb
        assert (await stored(stage, job_id)).state is JobState.WAITING
        assert await signals_of(stage.queue, job_id) == []
        assert stage.bot_comments(issue.number) == said
        assert hub.branches(stage.repo) == before
        assert len(stage.providers) == 2


async def stored(stage: Stage, job_id: str) -> StoredJob:
    """A job as the queue has it now."""
    found = await stage.queue.get(job_id)
    assert found is not None
    return found
