"""Have GitHub repeat failed deliveries, which it does not do by itself: the bot was down, or answered 503."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from bot.domain.errors import BotError
from bot.engine.delivery_sweeps import DeliverySweeps, SweptDeliveries
from bot.github import AppDeliveries, Attempt, GitHubError
from bot.intake.triggers import TRIGGERS
from bot.jobs.background import background

log = logging.getLogger(__name__)

SWEEP_SECONDS = 300.0

MOST_SECONDS = 24 * 3600.0
"""What is older is not asked for again. After a day, the person has seen that nothing came, and has moved on.
GitHub itself keeps deliveries for three days."""

_MARGIN_SECONDS = 600.0
"""What the sweep before may not have seen yet: an attempt is listed once it has ended."""
_MOST_LISTED = 3_000
_MOST_ASKED = 100
_MOST_TRIES = 12


class Redelivery:
    """Sweeps the App's deliveries, when it is this process's turn.

    Args:
        open_deliveries: the App's deliveries.
        sweeps: gives the turn to one of the receivers.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        open_deliveries: Callable[[], AbstractAsyncContextManager[AppDeliveries]],
        sweeps: DeliverySweeps,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_deliveries = open_deliveries
        self._sweeps = sweeps
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweep now and every few minutes while the body runs; it must be listening already."""
        async with background(self._keep_sweeping()):
            yield

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self.sweep()
            except (BotError, OSError) as error:  # the next sweep looks as far back as this one should have
                log.warning("failed deliveries were not checked: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Have everything delivered again that was not heard since the last sweep; give back how much it was.

        Raises:
            GitHubError: GitHub did not answer, or does not know the App.
            QueueError: the database cannot be used.
            OSError: the data directory cannot be written.
        """
        async with self._sweeps.turn() as turn:
            if turn is None:
                return 0
            now, before = self._clock(), turn.swept
            found = await self._listed(since=max(now - MOST_SECONDS, before.at - _MARGIN_SECONDS))
            listed = {each.guid for each in found}
            tries = {guid: count for guid, count in before.tries.items() if guid in listed}
            unheard = [each for each in never_heard(found) if tries.get(each.guid, 0) < _MOST_TRIES]
            asked = unheard[:_MOST_ASKED]
            at = before.at
            try:
                await self._ask(asked, tries)
                at = now if len(asked) == len(unheard) else at
            finally:
                await turn.leave(SweptDeliveries(at=at, tries=tries))
            return len(asked)

    async def _listed(self, *, since: float) -> list[Attempt]:
        """All attempts since then, the newest first."""
        async with self._open_deliveries() as deliveries:
            found: list[Attempt] = []
            async for attempt in deliveries.attempts():
                if attempt.at < since:
                    break
                if len(found) == _MOST_LISTED:
                    log.warning("only the last %d deliveries are checked for failures", _MOST_LISTED)
                    break
                found.append(attempt)
        return found

    async def _ask(self, unheard: Iterable[Attempt], tries: dict[str, int]) -> None:
        """Have each delivered again, and count that in `tries`."""
        async with self._open_deliveries() as deliveries:
            for each in unheard:
                tries[each.guid] = tries.get(each.guid, 0) + 1
                try:
                    await deliveries.redeliver(each.id)
                except GitHubError as error:
                    if error.passing:
                        raise
                    log.warning("delivery %s cannot be redelivered: %s", each.guid, error)
                else:
                    log.info("delivery %s (%s) failed and is requested again", each.guid, each.event)


def never_heard(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The newest attempt of each delivery that somebody listens to and nobody has heard, oldest first.

    Args:
        attempts: newest first.
    """
    heard: set[str] = set()
    newest: dict[str, Attempt] = {}
    for each in attempts:
        if not each.unheard:
            heard.add(each.guid)
        elif each.event in TRIGGERS:
            newest.setdefault(each.guid, each)
    return [each for each in reversed(newest.values()) if each.guid not in heard]
