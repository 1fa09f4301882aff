"""Starts recipes when they are due, and keeps up to date which repositories have some."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bot.domain.errors import BotError
from bot.domain.job import Repo
from bot.engine.protocols import Ledger, Schedules
from bot.github import GitHub, GitHubError
from bot.jobs.background import background
from bot.jobs.phase_reader import PhaseReader
from bot.jobs.recipes import crons_of, find_recipes
from bot.jobs.repo_settings import on_default_branch

log = logging.getLogger(__name__)

TICK_SECONDS = 20.0
REFRESH_SECONDS = 6 * 3600.0
"""How often the recipes of an installation's repositories are read; events in a repository have its own read before."""
LOOK_SECONDS = REFRESH_SECONDS / 12
"""How often to look whose turn it is; and how long a turn lasts that came to no end."""
_AT_ONCE = 4
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
            await self._schedules.keep_only(gone, ())
        slots = asyncio.Semaphore(_AT_ONCE)
        ended = await asyncio.gather(*(self._take_turn(each, slots) for each in installed), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _take_turn(self, installation: int, slots: asyncio.Semaphore) -> None:
        """Read an installation's recipes if it is their turn.

        The turn is a short one until all is read: what failed, or ended with its process, is read at the next look.
        """
        async with slots:
            if not await self._ledger.may_tell(0, installation, "recipes", seconds=LOOK_SECONDS):
                return
            try:
                async with self._github_of(installation) as github:
                    is_read = await self._read(github, installation)
            except GitHubError as error:  # of one account; the others have schedules, too
                log.warning("the repositories of installation %d were not read: %s", installation, error)
                is_read = not error.passing
            if is_read:
                await self._ledger.hold_back(0, installation, "recipes", seconds=REFRESH_SECONDS)

    async def _read(self, github: GitHub, installation: int) -> bool:
        """Whether all was read that could be."""
        is_read, repos = True, await github.repos.installed()
        await self._schedules.keep_only(installation, [each.id for each in repos])
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
            await self._schedules.keep(repo, installation, crons_of(recipes))
        return is_read

    async def _keep(self, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        while True:
            try:
                await work()
            except BotError as error:  # what is due stays due
                log.warning("recipes on schedules: %s", error)
            await asyncio.sleep(seconds)
