"""Which commit a job works on, over all its attempts."""

from __future__ import annotations

import asyncio

from bot.jobs import waiting
from bot.jobs.case import Case

_BASE = "base"
"""The fact that keeps the commit which a job works on."""


async def begun_before(case: Case) -> str | None:
    """The commit that an attempt before this worked on, when it left something to go on with; else None."""
    session = case.house.session_of(case.job)
    goes_on = (
        await waiting.asked(case.memory) is not None
        or await case.house.work.find(case.job.id, case.memory) is not None
        or (session is not None and await asyncio.to_thread(session.exists))
    )
    return await case.memory.recall(_BASE) if goes_on else None


async def begun_on(case: Case, head_sha: str) -> str:
    """The commit that the job works on: of an attempt before this, or from now on `head_sha`."""
    before = await begun_before(case)
    if before is None:
        await case.memory.remember(_BASE, head_sha)
    return before or head_sha
