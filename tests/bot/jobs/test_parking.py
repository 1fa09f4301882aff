"""A run that ended because the model service is down waits, ends, or is what somebody made of it meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import AsyncRuntime, Outcome, Policy, RunLimits, Status
from bot.domain.job import JobState
from bot.jobs.agent_run import parked, policy_of, taken_up
from bot.jobs.approvals import is_waited_out
from bot.jobs.context import Ending, JobContext
from bot.jobs.status import StatusReporter
from bot.publishing.view import Progress
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of

DOWN = Outcome(status=Status.MODEL_UNAVAILABLE, reason="HTTP 503", steps=3)
DAY = 86_400.0


@dataclass(slots=True)
class _Reporter:
    """Keeps the views that it is asked for."""

    progress: Progress = field(default_factory=lambda: Progress(awaits="the model service"))
    views: list[dict[str, Any]] = field(default_factory=list)

    def now(self, **changes: Any) -> None:  # noqa: ANN401 - whatever a StatusView takes
        self.views.append(changes)


async def _context(*, is_long_running: bool = True, patience: float = DAY) -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    return context_of(engine, job, services=SimpleNamespace(is_long_running=is_long_running, model_patience=patience))


async def _parked(context: JobContext, outcome: Outcome, *, stopped: str = "") -> tuple[Ending | Outcome, _Reporter]:
    reporter = _Reporter()
    return await parked(context, cast("StatusReporter", reporter), outcome, stopped=stopped), reporter


async def test_a_job_waits_for_the_model_and_not_for_a_person() -> None:
    context = await _context()
    ending, reporter = await _parked(context, DOWN)
    assert isinstance(ending, Ending)
    assert (ending.state, ending.request_id) == (JobState.WAITING, "")
    assert ending.until > time.time()
    assert await is_waited_out(context.record, ending.until)
    assert [each["state"] for each in reporter.views] == ["parked"]
    assert reporter.progress.awaits == ""


async def test_a_job_that_has_waited_for_long_enough_ends_and_says_so() -> None:
    outcome, _ = await _parked(await _context(patience=1.0), DOWN)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.MODEL_UNAVAILABLE
    assert "HTTP 503" in (outcome.reason or "")


async def test_a_workflows_step_waits_for_nothing() -> None:
    context = await _context(is_long_running=False)
    assert (await _parked(context, DOWN))[0] is DOWN
    assert (await context.record.read()).outage is None


@pytest.mark.parametrize("status", [Status.MODEL_UNAVAILABLE, Status.STOPPED])
async def test_a_job_that_was_stopped_meanwhile_does_not_wait(status: Status) -> None:
    outcome, _ = await _parked(await _context(), replace(DOWN, status=status), stopped="Stopped by @mona.")
    assert outcome == replace(DOWN, status=Status.STOPPED, reason="Stopped by @mona.")


@pytest.mark.parametrize("stopped", ["", "Stopped by @mona."])
@pytest.mark.parametrize("status", [Status.FINISHED, Status.FAILED, Status.PAUSED])
async def test_what_a_run_came_to_before_a_stop_stands(status: Status, stopped: str) -> None:
    outcome = replace(DOWN, status=status)
    assert (await _parked(await _context(), outcome, stopped=stopped))[0] is outcome


async def test_only_a_run_that_has_waited_before_asks_a_silent_model_no_longer() -> None:
    context, policy = await _context(), Policy(limits=RunLimits(outage_seconds=600.0))
    assert await policy_of(context, policy) == policy
    await _parked(context, DOWN)
    after = await policy_of(context, policy)
    assert (after.limits.outage_seconds, after.limits.max_steps) == (0.0, policy.limits.max_steps)


@pytest.mark.parametrize(
    ("outcome", "resumed"),
    [(None, True), (DOWN, True), (replace(DOWN, status=Status.FINISHED), False)],
    ids=["cut off", "after an outage", "finished"],
)
async def test_what_a_run_has_come_to_is_not_done_again(outcome: Outcome | None, *, resumed: bool) -> None:
    went_on = Outcome(status=Status.FINISHED, summary="It went on.")

    async def resume() -> Outcome:
        return went_on

    runtime = cast("AsyncRuntime", SimpleNamespace(outcome=outcome, resume=resume))
    assert await taken_up(runtime) is (went_on if resumed else outcome)
