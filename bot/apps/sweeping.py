"""Remove what has been kept long enough: caches every hour, and what ended jobs left at the start and once a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from agent_runtime import SessionError
from bot.domain.errors import BotError
from bot.engine.protocols import JobEngine
from bot.jobs.background import background
from bot.jobs.services import JobServices
from bot.pipeline.reopening import is_current

log = logging.getLogger(__name__)

_MINUTE_SECONDS = 60.0
_HOUR_SECONDS = 3600.0
_HOURS = 24

Sweep = tuple[str, Callable[[], Awaitable[object]]]
"""The name of what is swept, for the log, and the function that does it."""


@asynccontextmanager
async def kept_swept(shared: JobServices, engine: JobEngine) -> AsyncIterator[None]:
    """Sweep while the body runs, which waits for no sweep: the blob store may be slow, or away."""
    async with background(_keep_swept(shared, engine), _keep_stored(shared, engine)):
        yield


def of_jobs(shared: JobServices, engine: JobEngine) -> tuple[Sweep, ...]:
    """What ended jobs and killed workers leave.

    Each asks for itself which jobs are live: another sweep may take minutes, in which further jobs begin.
    """

    async def sessions() -> None:
        if shared.sessions is not None:
            await asyncio.to_thread(shared.sessions.sweep, await engine.live_ids())

    async def workspaces() -> None:
        await shared.workspaces.sweep(await engine.live_ids())

    async def patches() -> None:
        await asyncio.to_thread(shared.work.sweep, shared.keep_days, keep=await engine.live_ids())

    async def jobs() -> None:
        await engine.sweep(shared.keep_days)

    return ("sessions", sessions), ("workspaces", workspaces), ("patches", patches), ("jobs", jobs)


def of_caches(shared: JobServices) -> tuple[Sweep, ...]:
    """What a later job would make again."""
    mirrors: Sweep = ("mirrors", shared.workspaces.tidy)
    cache = shared.setup.cache
    return (mirrors,) if cache is None else (mirrors, ("setup cache", cache.sweep))


async def sweep_all(sweeps: Sequence[Sweep]) -> None:
    """Run each, whether or not another one fails: what is kept too long harms nobody, and the next time tries again."""
    for name, sweep in sweeps:
        try:
            await sweep()
        except (BotError, SessionError, OSError) as error:
            log.warning("%s: not everything could be swept; the next sweep tries again: %s", name, error)


async def _keep_swept(shared: JobServices, engine: JobEngine) -> None:
    while True:
        await sweep_all(of_jobs(shared, engine))
        for _ in range(_HOURS):
            await sweep_all(of_caches(shared))
            await asyncio.sleep(_HOUR_SECONDS)


async def _keep_stored(shared: JobServices, engine: JobEngine) -> None:
    """Store files of waiting jobs that the blob store did not take."""
    owed: Sweep = ("files of waiting jobs", partial(shared.workspaces.store_owed, partial(is_current, engine)))
    while True:
        await sweep_all((owed,))
        await asyncio.sleep(_MINUTE_SECONDS)
