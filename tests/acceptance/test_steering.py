"""Commands about other jobs: each does its work at once, and only for who may command."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import MessageInjected
from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.jobs.state import Inbox
from bot.queue.records import Signal, StoredJob
from localhub import Comment, LocalHub
from tests.pauses import ASKING
from tests.sandboxes import processes_with
from tests.stage import BUG, COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

DONE = "```completion\nNothing left.\n```\n"
NEEDS_A_YES = acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC)


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


async def test_status_tells_of_what_runs_and_waits(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [NEEDS_A_YES], operator=ASKING) as stage:
        issue = stage.issue()
        nothing = await stage.ask(issue.number, "/codepilot status")
        assert "No job is running in this thread." in nothing.status
        command = stage.say(issue.number, "/codepilot fix")
        await stage.waits(command)
        answer = await stage.ask(issue.number, "/codepilot status")
        assert answer.state is JobState.DONE
        assert "for @mona: waiting" in answer.status
        assert "/codepilot approve " in answer.status
        assert (await stored(stage, await stage.job_of(command))).state is JobState.WAITING


async def test_undo_takes_the_bots_last_commit_back_by_a_new_one(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        number = stage.pull().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        made = hub.branches(stage.repo)["topic"]
        end = await stage.ask(number, "/codepilot undo")
        assert end.state is JobState.DONE, end
        assert "I reverted commit" in end.status
        undone = hub.branches(stage.repo)["topic"]
        assert stage.git("rev-parse", f"{undone}^") == made
        assert stage.file(undone, "calc.py") == BUG.strip()
        assert stage.git("rev-parse", f"{undone}^{{tree}}") == stage.git("rev-parse", f"{made}^^{{tree}}")
        assert stage.git("log", "-1", "--format=%s", undone) == 'Revert "Fix add: it counted one too many"'
        assert stage.git("log", "-1", "--format=%an %cn", undone) == "codepilot[bot] GitHub"
        assert len(stage.pulls()) == 1
        assert len(stage.providers) == 1


async def stored(stage: Stage, job_id: str) -> StoredJob:
    """A job as the queue has it now."""
    entry = await stage.queue.get(job_id)
    assert entry is not None
    return entry
