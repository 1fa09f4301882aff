"""What a second attempt, or a second leg, of a job finds changed, and what it must not do once more."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.git.change import Change
from bot.git.tree import Tree
from bot.jobs import acknowledger, agent_run, reports, waiting
from bot.jobs.context import JobContext
from bot.jobs.record import RecordedEnding, Request, StoredRecord
from bot.jobs.state import Inbox
from bot.publishing.outcome import JobOutcome
from bot.queue.records import Signal, StoredJob
from localhub import LocalHub
from tests.durable import runnable
from tests.pauses import ASKING, next_pause, pause_of, still_waits
from tests.stage import BUG, COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Script, Stage, acting, staged
from tests.waiting import eventually

DONE = "```completion\nNothing left.\n```\n"
WORKFLOW = ".github/workflows/ci.yml"
PROTECTED = acting(f'write_file("{WORKFLOW}")', "on: push\njobs: {}\n", completion="Had CI check it.")
NEEDS_A_YES = acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC)


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """GitHub does not answer any more once a job has ended well; set when it is asked."""
    asked = asyncio.Event()
    render = reports.render_report

    async def hang(context: JobContext, outcome: JobOutcome) -> RecordedEnding | None:
        if outcome.state is JobState.DONE and not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return await render(context, outcome)

    monkeypatch.setattr(reports, "render_report", hang)
    return asked


async def put_off(stage: Stage, job_id: str) -> StoredJob | None:
    """The job, once it waits to be tried again and no attempt is counted."""
    stored = await stage.queue.get(job_id)
    return stored if stored and (stored.state, stored.attempts) == (JobState.QUEUED, 0) else None


async def test_what_was_published_but_not_told_is_told_without_another_run(
    hub: LocalHub, tmp_path: Path, unheard: asyncio.Event
) -> None:
    async with staged(hub, tmp_path, [FIX]) as first:
        command = first.say(first.issue().number, "/codepilot fix")
        await asyncio.wait_for(unheard.wait(), 30)
        job_id = await first.job_of(command)
    async with staged(hub, tmp_path, after=first) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.providers == []
        assert len(stage.pulls()) == 1
        assert not list((stage.data / "patches").iterdir())


async def test_an_undo_that_was_done_but_not_told_is_told(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(hub, tmp_path, [FIX]) as first:
        pull = first.pull()
        assert (await first.ask(pull.number, "/codepilot fix")).state is JobState.DONE
        made = hub.branches(first.repo)["topic"]
        sent, render = asyncio.Event(), reports.render_report

        async def hang(context: JobContext, outcome: JobOutcome) -> RecordedEnding | None:
            if not context.job.is_from_event:  # of the review that nobody wanted
                sent.set()
                await asyncio.Event().wait()
            return await render(context, outcome)

        with monkeypatch.context() as patched:
            patched.setattr(reports, "render_report", hang)
            command = first.say(pull.number, "/codepilot undo")
            await asyncio.wait_for(sent.wait(), 30)
            job_id = await first.job_of(command)
    async with staged(hub, tmp_path, after=first) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert f"I reverted commit `{made[:10]}`." in end.status
        assert stage.git("rev-parse", "topic^") == made
        assert stage.file("topic", "calc.py") == BUG.strip()


async def test_a_stop_that_is_heard_while_a_job_begins_to_wait_ends_it(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Signal] = []
    put, ask = Inbox.put, waiting.store_request

    def overheard(inbox: Inbox, signal: Signal) -> None:
        put(inbox, signal)
        heard.append(signal)

    async with staged(hub, tmp_path, [NEEDS_A_YES], operator=ASKING) as stage:
        issue = stage.issue()

        async def slowly(record: StoredRecord, asked: Request) -> None:
            await ask(record, asked)
            stage.say(issue.number, "/codepilot stop")
            await eventually(lambda: heard)

        monkeypatch.setattr(Inbox, "put", overheard)
        monkeypatch.setattr(waiting, "store_request", slowly)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.STOPPED, end
        assert "Stopped by @mona." in end.status


async def test_a_status_comment_that_somebody_deleted_is_made_again(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [NEEDS_A_YES], [DONE], operator=ASKING) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await pause_of(stage, command)
        [status, _notice] = [e for e in hub.comments(stage.repo, issue.number) if e.author_id == stage.app.bot.id]
        hub.delete_comment(status, by="mona")
        stage.say(issue.number, f"/codepilot deny {pause.short_id}")
        end = await stage.end_of(command)
        assert "Nothing left." in " ".join(stage.bot_comments(issue.number)), end


async def test_an_approved_tree_is_not_put_on_top_of_what_was_pushed_since(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(hub, tmp_path, [PROTECTED]) as stage:
        pull = stage.pull()
        command = stage.say(pull.number, "/codepilot fix")
        pause = await pause_of(stage, command)
        pushed: list[str] = []

        def push(call: str) -> None:
            # After the head was looked at for the approval and before the commit is sent.
            if "/app/installations/" in call and not pushed:
                theirs = {"theirs.txt": "x\n"}
                pushed.append(hub.commit(stage.repo, theirs, message="Theirs", author="mona", branch="topic"))

        stage.on_call = push
        stage.say(pull.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert hub.branches(stage.repo)["topic"] == pushed[0]
        assert "moved while the bot was working" in end.status


async def test_a_label_stays_bound_to_the_head_when_unfinished_work_goes_elsewhere(
    hub: LocalHub, tmp_path: Path
) -> None:
    script = [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]
    async with staged(hub, tmp_path, script, operator=ASKING) as stage:
        pull = stage.pull()
        hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await stage.end_after("pull_request", "labeled")
        command = stage.say(pull.number, "/codepilot fix")
        await stage.at_work()
        stage.say(pull.number, "/codepilot stop")
        await stage.end_of(command)
        assert stage.bot_branches()
        retried = await stage.ask(pull.number, "/codepilot explain")
        assert retried.state is not JobState.DONE
        assert "I removed the label" not in retried.status
        assert hub.issue(stage.repo, pull.number).labels == ("codepilot:auto",)


async def test_a_reviewer_who_lost_the_role_meanwhile_publishes_no_review(hub: LocalHub, tmp_path: Path) -> None:
    reply = "````completion\nIt adds a topic.\n\n```json\n[]\n```\n````\n"
    async with staged(hub, tmp_path, ["```codepilot\nlist_files('.')\n```\n", reply]) as stage:
        hub.add_collaborator(stage.repo, "rev", "write")
        pull = stage.pull()

        def leave(call: str) -> None:
            if call.endswith(f"/pulls/{pull.number}/reviews") and call.startswith("GET"):
                hub.add_collaborator(stage.repo, "rev", "read")

        stage.on_call = leave
        end = await stage.ask(pull.number, "/codepilot review", author="rev")
        assert "Only people with write access" in end.status
        assert not [each for each in hub.reviews(stage.repo, pull.number) if each.author_id == stage.app.bot.id], end


async def test_what_a_label_allowed_for_one_commit_follows_no_other_after_a_restart(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC), FIX]
    finished = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        finished.set()
        await asyncio.Event().wait()

    async with staged(hub, tmp_path, script, operator=ASKING) as first:
        pull = first.pull()
        hub.add_label(first.repo, pull.number, "codepilot:auto", by="mona")
        await first.end_after("pull_request", "labeled")
        with monkeypatch.context() as patched:
            patched.setattr(agent_run, "deliver", hang)
            command = first.say(pull.number, "/codepilot fix")
            await asyncio.wait_for(finished.wait(), 30)
            job_id = await first.job_of(command)
            theirs = hub.commit(first.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
            await first.end_after("pull_request", "synchronize")
    async with staged(hub, tmp_path, operator=ASKING, after=first) as stage:
        end = await stage.ended(job_id)
        assert hub.branches(stage.repo)["topic"] == theirs
        assert "moved while the bot was working" in end.status


async def test_a_yes_that_is_dealt_with_twice_is_no_yes_to_what_is_asked_next(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [NEEDS_A_YES], [acting('execute("main", "make trouble")')]
    async with staged(hub, tmp_path, *script, operator=ASKING) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(JobContext, "react", hang)
            yes = first.say(issue.number, "/codepilot approve")
            approved = await first.job_of(yes)
            patched.setattr(JobContext, "react", hang)
            following = await next_pause(first, pause)
    async with staged(hub, tmp_path, operator=ASKING, after=first) as stage:
        assert (await stage.ended(approved)).state is JobState.DONE
        assert await still_waits(stage, following)


async def test_a_job_stays_held_while_its_greeting_may_still_be_on_its_way(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(_: JobContext) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(acknowledger, "react_to_command", hang)
    monkeypatch.setattr(acknowledger, "REACTION_SECONDS", 0.01)
    async with staged(hub, tmp_path, held=True) as stage:
        await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        await eventually(lambda: "not acknowledged:" in caplog.text)
        assert await runnable(stage.queue) == []


async def test_an_outage_of_githubs_is_no_attempt_that_died(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], held=True) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        hub.faults.add("POST", "*/graphql", "503", times=99)
        await stage.queue.release_hold(job_id)
        stage.open_for_work.set()

        async def put_off() -> StoredJob | None:
            stored = await stage.queue.get(job_id)
            silent = (await StoredRecord(stage.queue, job_id).read()).service_outage
            return stored if silent and stored and (stored.state, stored.attempts) == (JobState.QUEUED, 0) else None

        held: StoredJob = await eventually(put_off, within=30)
        assert held.job.id == job_id
        hub.faults.clear()
        await stage.queue.release_hold(job_id)
        assert (await stage.ended(job_id)).state is JobState.DONE


async def test_a_pause_that_github_asks_for_is_kept_and_costs_no_worker(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(hub, tmp_path, [FIX], held=True) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        hub.faults.add("POST", "*/graphql", "secondary_rate_limited", times=9, retry_after=150)
        await stage.queue.release_hold(job_id)
        stage.open_for_work.set()
        # What is left of it, which on a busy machine is less.
        await eventually(lambda: re.search(r"; trying again in 1[2-5]\d s", caplog.text))
        held: StoredJob = await eventually(partial(put_off, stage, job_id))
        assert held.job.id == job_id
        assert await runnable(stage.queue) == []


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The service ends, once, between the end of a run and the moment when its work is kept; set when it may."""
    reached = asyncio.Event()
    change = Tree.change

    async def hang(tree: Tree, *, unfinished: bool = False) -> Change:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return await change(tree, unfinished=unfinished)

    monkeypatch.setattr(Tree, "change", hang)
    return reached


@pytest.mark.parametrize("approved", [False, True], ids=["at once", "after an approval"])
async def test_a_run_that_had_finished_is_published_and_not_made_again(
    hub: LocalHub, tmp_path: Path, cut_off: asyncio.Event, *, approved: bool
) -> None:
    scripts: list[Script] = [[NEEDS_A_YES], [DONE]] if approved else [[FIX]]
    level = ASKING if approved else {}
    async with staged(hub, tmp_path, *scripts, operator=level) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        if approved:
            pause = await pause_of(first, command)
            first.say(issue.number, f"/codepilot approve {pause.short_id}")
        await asyncio.wait_for(cut_off.wait(), 30)
        job_id = await first.job_of(command)
    async with staged(hub, tmp_path, after=first, operator=level) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ⚠️ Not verified" if approved else "### ✅ Done, an ad-hoc check passed"), (
            end.status
        )
        assert (COMPLETION if not approved else "Nothing left.") in end.status
        assert sum(provider.remaining for provider in stage.providers) == 0
        assert len(stage.pulls()) == 1
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_run_that_a_newer_version_has_gone_on_with_is_left_to_it(
    hub: LocalHub, tmp_path: Path, cut_off: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(hub, tmp_path, [FIX]) as first:
        command = first.say(first.issue().number, "/codepilot fix")
        await asyncio.wait_for(cut_off.wait(), 30)
        job_id = await first.job_of(command)
    [log] = (first.data / "sessions" / job_id).glob("*.jsonl")
    readable = log.read_bytes()
    log.write_bytes(readable + b'{"kind":"Dreamt"}\n')
    async with staged(hub, tmp_path, after=first) as older:
        await eventually(lambda: "which a newer Codepilot wrote" in caplog.text, within=30)
        held: StoredJob = await eventually(partial(put_off, older, job_id))
        assert held.job.id == job_id
    log.write_bytes(readable)
    async with staged(hub, tmp_path, after=first) as stage:
        await stage.queue.release_hold(job_id)
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status


async def test_a_run_that_begins_again_after_an_approval_and_is_cut_off_begins_once_more(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(hub, tmp_path, [NEEDS_A_YES], operator=ASKING) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)
    (first.data / "workspaces").rename(tmp_path / "lost")
    preparing = asyncio.Event()

    async def hang(*_: object) -> None:
        preparing.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(agent_run, "_prepare", hang)
        async with staged(hub, tmp_path, operator=ASKING, after=first) as second:
            second.say(issue.number, f"/codepilot approve {pause.short_id}")
            await asyncio.wait_for(preparing.wait(), 30)
    again = [acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)]
    async with staged(hub, tmp_path, again, operator=ASKING, after=first) as stage:
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status


@pytest.mark.parametrize("kind", ["question", "permission"])
async def test_a_request_that_was_not_told_yet_is_told_and_nobody_answers_it_before(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asks = acting('print("they said", ask_user("Which port?"))') if kind == "question" else NEEDS_A_YES
    reached = asyncio.Event()

    async def hang(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(waiting, "store_request", hang)
        async with staged(hub, tmp_path, [asks], operator=ASKING) as first:
            issue = first.issue()
            command = first.say(issue.number, "/codepilot fix")
            await asyncio.wait_for(reached.wait(), 30)
    answered = ScriptedReply(text=DONE, expect=("they said 8080",)) if kind == "question" else DONE
    async with staged(hub, tmp_path, [], [answered], after=first, operator=ASKING) as stage:
        pause = await pause_of(stage, command)
        assert ("Which port?" if kind == "question" else "make mischief") in pause.status
        say = "continue 8080" if kind == "question" else f"deny {pause.short_id}"
        stage.say(issue.number, f"/codepilot {say}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert "Nothing left." in end.status
