"""Further attempts of a job: they find a changed world, and repeat no work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.git.change import Change
from bot.git.tree import Tree
from bot.jobs import acknowledger
from bot.jobs.context import JobContext
from bot.queue.records import StoredJob
from localhub import LocalHub
from tests.durable import runnable
from tests.pauses import ASKING, pause_of
from tests.stage import COMPLETION, FIX, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

DONE = "```completion\nNothing left.\n```\n"
NEEDS_A_YES = acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC)


async def put_off(stage: Stage, job_id: str) -> StoredJob | None:
    """The job, once it waits to be tried again and no attempt is counted."""
    stored = await stage.queue.get(job_id)
    return stored if stored and (stored.state, stored.attempts) == (JobState.QUEUED, 0) else None


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


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The service ends, once, between the end of a run and the moment when its work is kept; set when it may."""
    reached = asyncio.Event()
    change = Tree.change

    async def hang(tree: Tree, is_wanted: Callable[[str], bool]) -> Change:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return await change(tree, is_wanted)

    monkeypatch.setattr(Tree, "change", hang)
    return reached


async def test_a_run_that_had_finished_is_published_and_not_made_again(
    hub: LocalHub, tmp_path: Path, cut_off: asyncio.Event
) -> None:
    async with staged(hub, tmp_path, [NEEDS_A_YES], [DONE], operator=ASKING) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)
        first.say(issue.number, f"/codepilot approve {pause.short_id}")
        await asyncio.wait_for(cut_off.wait(), 30)
        job_id = await first.job_of(command)
    async with staged(hub, tmp_path, after=first, operator=ASKING) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert end.status.startswith("### ⚠️ Not verified"), end.status
        assert "Nothing left." in end.status
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
