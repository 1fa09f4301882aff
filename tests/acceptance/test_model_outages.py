"""The model service is down: the job waits without a worker, and goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent_runtime import Provider, RunLimits
from agent_runtime.providers.models import ModelOptions
from bot.domain.job import JobState
from localhub import LocalHub
from tests.agent_runtime.providers.answers import OUTAGES
from tests.agent_runtime.providers.conversations import Naps, provider_on
from tests.model_server import Fails, ModelServer, Received, Reply
from tests.stage import COMPLETION, FIX, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

DOWN = Fails(503, "overloaded_error", "Back soon")
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


async def test_a_job_outlives_an_outage_and_a_restart_and_nothing_is_paid_for_twice(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with ModelServer([WRITES, DOWN, GARBLED, FINISH]) as server:
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
            assert stored.until - stored.enqueued_at > 80
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
