"""The model service is down: the job waits without a worker, and goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Provider, RunLimits
from agent_runtime.providers.models import ModelOptions
from bot.domain.job import JobState
from localhub import LocalHub
from tests.agent_runtime.providers.answers import OUTAGES
from tests.agent_runtime.providers.conversations import Naps, provider_on
from tests.durable import signals_of
from tests.model_server import Fails, ModelServer, Received, Reply
from tests.stage import COMPLETION, FIX, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

DOWN = Fails(503, "overloaded_error", "Back soon")
BUSY = Fails(429, "rate_limit_error", "Slow down", retry_after="3600")
GARBLED = OUTAGES["bytes that are no UTF-8"]
WRITES = acting('write_file("calc.py")\nexecute("main", "echo once >> notes.txt")', FIXED_CALC)
FINISH = acting('execute("main", "sh check.sh", check=True)', completion=COMPLETION)
AT_ONCE = RunLimits(outage_seconds=0.0)


def asking(server: ModelServer) -> Callable[[], Provider]:
    """Makes models that ask the server with the vendor's own SDK, and wait for nothing."""
    return lambda: provider_on(server, "anthropic", ModelOptions(retry=Naps().retry(attempts=1)))


@asynccontextmanager
async def facing(
    replies: Sequence[Reply] | Callable[[Received], Reply],
    hub: LocalHub,
    directory: Path,
    **settings: Any,  # noqa: ANN401 - what a stage takes
) -> AsyncIterator[tuple[ModelServer, Stage]]:
    """The bot at work with a model service that answers so."""
    async with ModelServer(replies) as server, staged(hub, directory, provider=asking(server), **settings) as stage:
        yield server, stage


async def status_of(stage: Stage, job_id: str) -> str:
    """The status comment of a job as it stands."""
    stored = await stage.queue.get(job_id)
    assert stored is not None
    number = stored.job.thread.number
    [body] = stage.bot_comments(number)
    return body


@pytest.mark.parametrize("fault", [DOWN, BUSY, GARBLED], ids=["down", "asks for an hour", "bytes that are no UTF-8"])
async def test_a_job_outlives_an_outage_and_a_restart_and_nothing_is_paid_for_twice(
    hub: LocalHub, tmp_path: Path, fault: Reply
) -> None:
    async with ModelServer([WRITES, fault, fault, FINISH]) as server:
        options: dict[str, Any] = {"provider": asking(server), "limits": AT_ONCE}
        async with staged(hub, tmp_path, **options) as first:
            issue = first.issue()
            command = first.say(issue.number, "/codepilot fix")
            job_id = await first.waits(command)
            told = await status_of(first, job_id)
            assert "Waiting for the model service" in told
            assert "retries at" in told
            stored = await first.queue.get(job_id)
            assert stored is not None
            assert stored.until is not None
            assert stored.until - stored.enqueued_at > (3500 if fault is BUSY else 80)
        async with staged(hub, tmp_path, after=first, **options) as stage:
            await stage.queue.wake(job_id)  # as the queue does when the time has come
            await eventually(lambda: len(server.requests) == 3)
            await stage.waits(command)
            await stage.queue.wake(job_id)
            end = await stage.ended(job_id)
            assert end.state is JobState.DONE, end
            assert COMPLETION in end.status
            [pull] = stage.pulls()
            assert pull.pull is not None
            [branch] = stage.bot_branches()
            assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
            assert stage.file(branch, "notes.txt") == "once"
            assert len(stage.bot_comments(issue.number)) == 1
            assert stage.nothing_left()
        assert len(server.requests) == 4
        assert not server.unexpected


async def test_who_waits_can_be_asked_about_told_something_and_stopped(hub: LocalHub, tmp_path: Path) -> None:
    async with facing([WRITES, DOWN, DOWN], hub, tmp_path, limits=AT_ONCE) as (server, stage):
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.waits(command)
        status = await stage.ask(issue.number, "/codepilot status")
        assert "waiting for the model service" in status.status
        assert (await stage.ask(issue.number, "/codepilot continue use tabs")).state is JobState.DONE
        await stage.queue.wake(job_id)
        await eventually(lambda: len(server.requests) == 3)
        assert "use tabs" in server.requests[-1].body.decode()
        await stage.waits(command)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.ended(job_id)
        assert end.state is JobState.STOPPED, end
        [(branch, _)] = stage.bot_branches().items()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_what_was_answered_before_an_outage_is_not_waited_for_any_more(hub: LocalHub, tmp_path: Path) -> None:
    asks = acting('ask_user("Tabs or spaces?")')
    async with facing([asks, DOWN], hub, tmp_path, limits=AT_ONCE) as (_, stage):
        number = stage.pull().number
        command = stage.say(number, "/codepilot fix")
        job_id = await stage.waits(command)
        assert (await stage.ask(number, "/codepilot continue tabs")).state is JobState.DONE
        await eventually(lambda: "Waiting for the model service" in "".join(stage.bot_comments(number)) or None)
        await stage.waits(command)
        told = await stage.ask(number, "/codepilot continue of width 4")
        assert told.state is JobState.DONE, told
        hub.commit(stage.repo, {"README.md": "# Mine\n"}, message="Meanwhile", author="mona", branch="topic")
        assert (await stage.end_after("pull_request", "synchronize")).state is JobState.DONE
        assert [each.text for each in await signals_of(stage.queue, job_id)] == ["of width 4"]


async def test_a_job_whose_patience_is_over_fails_and_its_work_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    operator = {"model_patience": 60}
    async with facing([WRITES, DOWN], hub, tmp_path, limits=AT_ONCE, operator=operator) as (_, stage):
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "CODEPILOT_MODEL_PATIENCE" in end.status
        assert "Back soon" in end.status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_the_comment_tells_that_the_model_is_waited_for(hub: LocalHub, tmp_path: Path) -> None:
    back = asyncio.Event()

    def reply(_: Received) -> Reply:
        return FIX if back.is_set() else DOWN

    async with facing(reply, hub, tmp_path, edit_seconds=0.1) as (_, stage):
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await eventually(lambda: "the model service does not answer" in "".join(stage.bot_comments(issue.number)))
        job_id = await stage.job_of(command)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.ended(job_id)
        assert end.state is JobState.STOPPED
