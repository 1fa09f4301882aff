"""Calls like one that was approved for the rest of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_runtime import PendingCall, is_covered
from bot.jobs import approvals
from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext


def approves_alike(context: JobContext, assignment: Assignment) -> Callable[..., Awaitable[bool | None]]:
    """A handler of requests for permission that approves what fits a pattern which was approved in this run.

    What was approved is looked up for each call: a push invalidates it during the run, and it survives the process.

    Args:
        context: the job.
        assignment: what it may do, and where.
    """
    grant = assignment.grant
    moved = context.job.thread.kind == "pull" and assignment.here.thread.head_sha != grant.bound_to_sha

    async def approve(pending: PendingCall, **_: object) -> bool | None:
        patterns = () if moved else await approvals.approved_alike(context.record)
        return True if is_covered(grant.policy, patterns, pending) else None

    return approve
