"""A job whose model service is down: lets it wait without a worker, or ends it when it has waited for long enough."""

from __future__ import annotations

from dataclasses import replace

from agent_runtime import AsyncRuntime, Outcome, Policy, Status
from bot.domain.job import JobState
from bot.jobs import model_outage
from bot.jobs.context import Ending, JobContext
from bot.reporting.reporter import StatusReporter


async def parked(context: JobContext, reporter: StatusReporter, outcome: Outcome, *, stopped: str) -> Ending | Outcome:
    """Let a job wait when its run ended for the model's sake.

    Args:
        context: the job.
        reporter: reports it.
        outcome: how its run ended its leg.
        stopped: who has stopped the job, as a sentence; empty when nobody has.

    Returns:
        That the job waits; or how its run ended for good, which of a job that was stopped says who has.
    """
    if stopped and outcome.status in {Status.STOPPED, Status.MODEL_UNAVAILABLE}:
        return replace(outcome, status=Status.STOPPED, reason=stopped)
    if outcome.status is not Status.MODEL_UNAVAILABLE:
        return outcome
    if not context.services.comes_back:  # nobody tries again later
        return outcome
    patience = context.services.model_patience
    outage = await model_outage.wait_out(context.record, outcome, patience=patience)
    if outage is None:
        return replace(outcome, reason=model_outage.given_up(outcome, patience))
    reporter.progress = replace(reporter.progress, awaits="")
    reason = model_outage.told(outage, outcome.reason or "", patience=patience)
    view = reporter.now(state="parked", reason=reason)
    return Ending(state=JobState.WAITING, reason=outcome.reason or "", view=view, until=outage.until)


async def policy_of(context: JobContext, policy: Policy) -> Policy:
    """What a run may do and spend; one that waited for the model before does not hold a worker up by waiting again."""
    if await model_outage.last_outage(context.record) is None:
        return policy
    return replace(policy, limits=replace(policy.limits, outage_seconds=0.0))


async def taken_up(runtime: AsyncRuntime) -> Outcome:
    """The leg after a process that ended at any moment, or after an outage: what it came to stands, else it goes on."""
    outcome = runtime.outcome
    if outcome is None or outcome.status is Status.MODEL_UNAVAILABLE:
        return await runtime.resume()
    return outcome
