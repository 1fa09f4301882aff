"""Periodic tasks of a process beside its jobs: start due recipes, and sweep old data.

Caches are swept every hour; the data of ended jobs, at the start and once a day.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from agent_runtime import SessionError
from bot.domain.errors import BotError
from bot.domain.job import Repo
from bot.github.client import GitHub
from bot.github.types import GitHubError
from bot.jobs.access import PhaseReader
from bot.jobs.agent_run import is_current
from bot.jobs.context import JobServices
from bot.jobs.repo_settings import crons_of, find_recipes, on_default_branch
from bot.jobs.status import background
from bot.queue.protocols import JobEngine, Ledger, Schedules

log = logging.getLogger(__name__)
TICK_SECONDS = 20.0

REFRESH_SECONDS = 6 * 3600.0
"""How often the recipes of an installation's repositories are read; events in a repository have its own read before."""

LOOK_SECONDS = REFRESH_SECONDS / 12
"""How often to look whose turn it is; and how long a turn lasts that came to no end."""

_READ_AT_ONCE = 4
"""Installations whose recipes are read at the same time: a slow one holds up few others."""


class Scheduler:
    """Looks at the clock, and at the repositories, in one process of any number.

    Args:
        schedules: when recipes are due.
        ledger: gives the turn to read an installation's repositories to one process.
        installations: the ids of the App's installations.
        github_of: a client for an installation.
    """

    def __init__(
        self,
        schedules: Schedules,
        ledger: Ledger,
        installations: Callable[[], Awaitable[tuple[int, ...]]],
        github_of: Callable[[int], GitHub],
    ) -> None:
        self._schedules = schedules
        self._ledger = ledger
        self._installations = installations
        self._github_of = github_of

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start what is due, and read what is new, while the body runs."""
        due, new = self._keep(self._schedules.start_due, TICK_SECONDS), self._keep(self.refresh, LOOK_SECONDS)
        async with background(due, new):
            yield

    async def refresh(self) -> None:
        """Read the recipes of all repositories whose turn it is.

        Raises:
            GitHubError: GitHub did not answer, or does not know the App.
            QueueError: the database cannot be used.
        """
        installed = await self._installations()
        for gone in (await self._schedules.installations()).difference(installed):
            await self._schedules.prune(gone, ())
        slots = asyncio.Semaphore(_READ_AT_ONCE)
        ended = await asyncio.gather(*(self._take_turn(each, slots) for each in installed), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _take_turn(self, installation: int, slots: asyncio.Semaphore) -> None:
        """Read an installation's recipes if it is their turn.

        The turn is a short one until all is read: what failed, or ended with its process, is read at the next look.
        """
        async with slots:
            if not await self._ledger.claim_notice(0, installation, "recipes", seconds=LOOK_SECONDS):
                return
            try:
                async with self._github_of(installation) as github:
                    is_read = await self._read(github, installation)
            except GitHubError as error:  # of one account; the others have schedules, too
                log.warning("the repositories of installation %d were not read: %s", installation, error)
                is_read = not error.passing
            if is_read:
                await self._ledger.suppress_notice(0, installation, "recipes", seconds=REFRESH_SECONDS)

    async def _read(self, github: GitHub, installation: int) -> bool:
        """Read the recipes of an installation; return whether nothing is left that a later try may read."""
        is_read, repos = True, await github.repos.installed()
        await self._schedules.prune(installation, [each.id for each in repos])
        for facts in repos:
            repo = Repo(id=facts.id, full_name=facts.full_name, private=facts.private)
            try:
                recipes = () if facts.archived else (await find_recipes(github, facts.full_name)).recipes
                if any(each.on.schedule and each.on.label for each in recipes):  # its label may have it refused
                    asked = await on_default_branch(PhaseReader(github), facts.full_name)
                    recipes = asked.with_recipes(recipes, ()).recipes
            except GitHubError as error:
                log.warning("the recipes of %s were not read: %s", facts.full_name, error)
                is_read = is_read and not error.passing
                continue
            await self._schedules.save(repo, installation, crons_of(recipes))
        return is_read

    async def _keep(self, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        while True:
            try:
                await work()
            except BotError as error:  # what is due stays due
                log.warning("recipes on schedules: %s", error)
            await asyncio.sleep(seconds)


_MINUTE_SECONDS = 60.0
_HOUR_SECONDS = 3600.0
_HOURS = 24

Sweep = tuple[str, Callable[[], Awaitable[object]]]
"""The name of what is swept, for the log, and the function that does it."""


@asynccontextmanager
async def sweeping(shared: JobServices, engine: JobEngine) -> AsyncIterator[None]:
    """Sweep while the body runs, which waits for no sweep: the blob store may be slow, or away."""
    async with background(_keep_swept(shared, engine), _keep_stored(shared, engine)):
        yield


def job_sweeps(shared: JobServices, engine: JobEngine) -> tuple[Sweep, ...]:
    """Return the sweeps of the files and rows that ended jobs and killed workers leave.

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


def cache_sweeps(shared: JobServices) -> tuple[Sweep, ...]:
    """Return the sweeps of caches, which a later job fills again."""
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
        await sweep_all(job_sweeps(shared, engine))
        for _ in range(_HOURS):
            await sweep_all(cache_sweeps(shared))
            await asyncio.sleep(_HOUR_SECONDS)


async def _keep_stored(shared: JobServices, engine: JobEngine) -> None:
    """Store files of waiting jobs that the blob store did not take."""
    owed: Sweep = ("files of waiting jobs", partial(shared.workspaces.store_pending, partial(is_current, engine)))
    while True:
        await sweep_all((owed,))
        await asyncio.sleep(_MINUTE_SECONDS)
