"""Periodic tasks: start due recipes; sweep caches hourly, and data of ended jobs daily."""

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
from bot.jobs.posts import background
from bot.jobs.repo_settings import default_settings, find_recipes, schedules_by_name
from bot.queue.protocols import JobEngine, Ledger, Schedules

log = logging.getLogger(__name__)
TICK_SECONDS = 20.0

REFRESH_SECONDS = 6 * 3600.0
"""Interval of reading an installation's recipes; events in a repository trigger it earlier."""

TURN_SECONDS = REFRESH_SECONDS / 12
"""Interval of checking whose turn it is, and duration of an incomplete turn."""

_READ_AT_ONCE = 4
"""Installations read in parallel, so that a slow one delays few others."""


class Scheduler:
    """Start due recipes, and refresh schedules; any number of processes may run one."""

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
    async def run(self) -> AsyncIterator[None]:
        due, new = self._repeat(self._schedules.start_due, TICK_SECONDS), self._repeat(self.refresh, TURN_SECONDS)
        async with background(due, new):
            yield

    async def refresh(self) -> None:
        """Read the recipes of installations whose turn it is.

        Raises:
            GitHubError: no answer, or unknown App.
            QueueError: the database failed.
        """
        installed = await self._installations()
        for removed in (await self._schedules.installations()).difference(installed):
            await self._schedules.prune(removed, ())
        slots = asyncio.Semaphore(_READ_AT_ONCE)
        errors = await asyncio.gather(
            *(self._take_turn(installation, slots) for installation in installed), return_exceptions=True
        )
        for error in errors:
            if error is not None:
                raise error

    async def _take_turn(self, installation: int, slots: asyncio.Semaphore) -> None:
        async with slots:
            if not await self._ledger.claim_notice(0, installation, "recipes", seconds=TURN_SECONDS):
                return
            try:
                async with self._github_of(installation) as github:
                    is_read = await self._read(github, installation)
            except GitHubError as error:  # affects one account only
                log.warning("the repositories of installation %d were not read: %s", installation, error)
                is_read = not error.is_transient
            if is_read:
                await self._ledger.suppress_notice(0, installation, "recipes", seconds=REFRESH_SECONDS)

    async def _read(self, github: GitHub, installation: int) -> bool:
        """Read an installation's recipes; return False if a retry may read more."""
        is_read, repos = True, await github.repos.list_installed()
        await self._schedules.prune(installation, [item.id for item in repos])
        for facts in repos:
            repo = Repo(id=facts.id, full_name=facts.full_name, private=facts.private)
            try:
                recipes = () if facts.archived else (await find_recipes(github, facts.full_name)).recipes
                if any(item.on.schedule and item.on.label for item in recipes):  # a label conflict may disable it
                    settings = await default_settings(PhaseReader(github), facts.full_name)
                    recipes = settings.with_recipes(recipes, ()).recipes
            except GitHubError as error:
                log.warning("the recipes of %s were not read: %s", facts.full_name, error)
                is_read = is_read and not error.is_transient
                continue
            await self._schedules.save(repo, installation, schedules_by_name(recipes))
        return is_read

    async def _repeat(self, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        while True:
            try:
                await work()
            except BotError as error:  # due recipes stay due
                log.warning("recipes on schedules: %s", error)
            await asyncio.sleep(seconds)


_MINUTE_SECONDS = 60.0
_HOUR_SECONDS = 3600.0
_HOURS = 24

Sweep = tuple[str, Callable[[], Awaitable[object]]]


@asynccontextmanager
async def run_sweeps(shared: JobServices, engine: JobEngine) -> AsyncIterator[None]:
    """Sweep during the body, which does not wait for it."""
    async with background(
        _sweep_periodically(shared, engine),
        _retry_storing(shared, engine),
        _repeat(("checkouts", shared.workspaces.prepare_checkout)),
        _repeat(("files of ended jobs", shared.workspaces.remove_ended)),
    ):
        yield


def job_sweeps(shared: JobServices, engine: JobEngine) -> tuple[Sweep, ...]:
    """Return the sweeps of files and rows of ended jobs.

    Each reads the live jobs itself, since a sweep may take minutes.
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

    spending: tuple[Sweep, ...] = () if shared.spending is None else (("spending", shared.spending.sweep),)
    return *spending, ("sessions", sessions), ("workspaces", workspaces), ("patches", patches), ("jobs", jobs)


def cache_sweeps(shared: JobServices) -> tuple[Sweep, ...]:
    mirrors: Sweep = ("mirrors", shared.workspaces.tidy)
    cache = shared.setup.cache
    return (mirrors,) if cache is None else (mirrors, ("setup cache", cache.sweep))


async def sweep_all(sweeps: Sequence[Sweep]) -> None:
    """Run sweeps independently; failed ones are retried next time."""
    for name, sweep in sweeps:
        try:
            await sweep()
        except (BotError, SessionError, OSError) as error:
            log.warning("%s: not everything could be swept; the next sweep tries again: %s", name, error)


async def _sweep_periodically(shared: JobServices, engine: JobEngine) -> None:
    while True:
        await sweep_all(job_sweeps(shared, engine))
        for _ in range(_HOURS):
            await sweep_all(cache_sweeps(shared))
            await asyncio.sleep(_HOUR_SECONDS)


async def _retry_storing(shared: JobServices, engine: JobEngine) -> None:
    sweep: Sweep = ("files of waiting jobs", partial(shared.workspaces.store_pending, partial(is_current, engine)))
    while True:
        await sweep_all((sweep,))
        await asyncio.sleep(_MINUTE_SECONDS)


async def _repeat(sweep: Sweep) -> None:
    while True:
        await sweep_all((sweep,))
