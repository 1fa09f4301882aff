"""Pin the commit that a job works on, and what was allowed for that commit only, over all its attempts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.gate.decision import Grant
from bot.jobs import approvals
from bot.jobs.context import JobContext


async def resume_base(context: JobContext) -> str | None:
    """The commit that an attempt before this worked on, when it left something to go on with; else None."""
    goes_on = (
        await approvals.asked(context.record) is not None
        or await context.services.work.find(context.job.id, context.record) is not None
        or await asyncio.to_thread(context.services.has_session, context.job)
    )
    return (await context.record.read()).base_sha if goes_on else None


async def pin_base(context: JobContext, grant: Grant) -> Grant:
    """The grant for the commit that the job works on: that of an attempt before this, or from now on the grant's own.

    What one attempt did under a label for that commit follows no other commit in a later one.
    """
    before = await resume_base(context)
    base = before or grant.bound_to_sha
    bound = not grant.replay or (before is not None and (await context.record.read()).bound)
    await context.record.update(lambda record: replace(record, base_sha=base, bound=bound))
    return replace(grant, bound_to_sha=base, replay=not bound)
