"""Have GitHub repeat failed deliveries, which it does not do by itself: the bot was down, or answered 503."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from bot.domain.errors import BotError
from bot.domain.job import Repo
from bot.events.triggers import TRIGGERS
from bot.git.filesystem import in_thread, try_lock
from bot.github.app import AppDeliveries, Attempt
from bot.github.client import GitHub
from bot.github.types import GitHubError
from bot.jobs.access import PhaseReader
from bot.jobs.repo_settings import crons_of, find_recipes, on_default_branch
from bot.jobs.status import background
from bot.queue.protocols import Ledger, Schedules
from bot.queue.store import SWEEPS, JobStore, Transaction, insert

# ---- Turns among many receivers to look for failed deliveries, and the memory of the last look.


_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptDeliveries:
    """How far failed deliveries were looked for.

    Attributes:
        at: when the last sweep began that saw to all of them, in seconds since the epoch; 0 for never.
        tries: how often a delivery was asked for again, by its GUID.
    """

    at: float = 0.0
    tries: Mapping[str, int] = field(default_factory=dict)


_SWEPT = TypeAdapter(SweptDeliveries)


def dumped(swept: SweptDeliveries) -> bytes:
    """As it is stored."""
    return _SWEPT.dump_json(swept)


def loaded(body: bytes | str) -> SweptDeliveries:
    """What was stored; that nothing was looked for yet, where it is empty, was cut off, or is another version's."""
    try:
        return _SWEPT.validate_json(body)
    except ValidationError:
        return SweptDeliveries()


class SweepTurn(Protocol):
    """The right of one process to sweep.

    Attributes:
        swept: what the turn before left.
    """

    swept: SweptDeliveries

    async def leave(self, swept: SweptDeliveries) -> None:
        """Leave this for the next turn; without it the next one begins where this one did."""
        ...


class DeliverySweeps(Protocol):
    """Gives the turn to one process at a time; a process that dies, or loses its connection, loses it."""

    def turn(self) -> AbstractAsyncContextManager[SweepTurn | None]:
        """Have the turn while the body runs; None while another process has it.

        Raises:
            QueueError: the database cannot be used.
            OSError: the directory cannot be used.
        """
        ...


class FileDeliverySweeps:
    """Turns among the processes of one machine: a locked file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[SweepTurn | None]:
        """See `DeliverySweeps.turn`."""
        descriptor = try_lock(self._path)
        if descriptor is None:
            yield None
            return
        try:
            yield _FileTurn(descriptor)
        finally:
            os.close(descriptor)


class _FileTurn:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.swept = loaded(os.pread(descriptor, _MOST_BYTES, 0))

    async def leave(self, swept: SweptDeliveries) -> None:
        """See `SweepTurn.leave`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, dumped(swept), 0)


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


# ---- Give one receiver of a PostgreSQL database at a time the turn to look for failed deliveries.


_CLASS, _DELIVERIES = 0x636F6465, 1
"""The advisory lock of the turn; the database releases it when the process that holds it dies."""


class PostgresDeliverySweeps:
    """Implements `DeliverySweeps`.

    Args:
        store: a PostgreSQL database; the caller closes it.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[SweepTurn | None]:
        """See `DeliverySweeps.turn`."""
        with self._store.checked():
            rows = await asyncio.to_thread(self._store.engine.connect)
        try:
            with self._store.checked():
                has_turn = await in_thread(_begin, rows)  # a connection is for one thread at a time
            yield await self._store.run(lambda tx: _DurableTurn(self._store, _last(tx))) if has_turn else None
        finally:
            await asyncio.to_thread(_end, rows)


class _DurableTurn:
    def __init__(self, store: JobStore, swept: SweptDeliveries) -> None:
        self._store, self.swept = store, swept

    async def leave(self, swept: SweptDeliveries) -> None:
        """See `SweepTurn.leave`."""
        body = dumped(swept).decode()

        def put(tx: Transaction) -> None:
            row = insert(tx, SWEEPS).values(name="deliveries", body=body)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["name"], set_={"body": body}))

        await self._store.run(put)


def _last(tx: Transaction) -> SweptDeliveries:
    body = tx.rows.execute(sa.select(SWEEPS.c.body).where(SWEEPS.c.name == "deliveries")).scalar()
    return loaded(body or "")


def _begin(rows: Connection) -> bool:
    got = rows.scalar(sa.select(sa.func.pg_try_advisory_lock(_CLASS, _DELIVERIES)))
    rows.commit()  # the lock belongs to the session, so nothing has to stay open
    return bool(got)


def _end(rows: Connection) -> None:
    # A server notices only later that a session has ended, and a pool would keep it, and the lock with it.
    with suppress(SQLAlchemyError):
        rows.scalar(sa.select(sa.func.pg_advisory_unlock_all()))
    rows.invalidate()
    rows.close()


# ---- Starts recipes when they are due, and keeps up to date which repositories have some.


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
