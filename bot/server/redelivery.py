"""Have GitHub redeliver failed deliveries: it does not do so by itself when the bot is down, or answers 503.

One receiver at a time has the turn to sweep the App's deliveries (`DeliverySweeps`): by a locked file on one machine,
by an advisory lock of PostgreSQL among many.
"""

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
from bot.events.triggers import router
from bot.git.filesystem import run_thread, try_lock
from bot.github.app import AppDeliveries, Attempt
from bot.github.types import GitHubError
from bot.jobs.status import background
from bot.queue.store import SWEEPS, JobStore, Transaction, insert

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
        """Have each delivery redelivered that failed since the last sweep; return their number.

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
            unheard = [each for each in failed_deliveries(found) if tries.get(each.guid, 0) < _MOST_TRIES]
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


def failed_deliveries(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the newest attempt of each delivery of a handled event without a successful one, oldest first.

    Args:
        attempts: newest first.
    """
    heard: set[str] = set()
    newest: dict[str, Attempt] = {}
    for each in attempts:
        if not each.unheard:
            heard.add(each.guid)
        elif each.event in router.actions:
            newest.setdefault(each.guid, each)
    return [each for each in reversed(newest.values()) if each.guid not in heard]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptDeliveries:
    """The result of a sweep for failed deliveries.

    Attributes:
        at: when the last sweep began that saw to all of them, in seconds since the epoch; 0 for never.
        tries: how often a delivery was asked for again, by its GUID.
    """

    at: float = 0.0
    tries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepTurn:
    """The right of one process to sweep.

    Attributes:
        swept: the result of the turn before.
        leave: stores the result of this one; without it the next turn begins where this one did.
    """

    swept: SweptDeliveries
    leave: Callable[[SweptDeliveries], Awaitable[None]]


class DeliverySweeps(Protocol):
    """Gives the turn to one process at a time; a process that dies, or loses its connection, loses it."""

    def turn(self) -> AbstractAsyncContextManager[SweepTurn | None]:
        """Have the turn while the body runs; None while another process has it.

        Raises:
            QueueError: the database cannot be used.
            OSError: the directory cannot be used.
        """
        ...


_SWEPT = TypeAdapter(SweptDeliveries)


def _decode_swept(body: bytes | str) -> SweptDeliveries:
    """Return the stored result; the one of no sweep where it is missing or cut off."""
    try:
        return _SWEPT.validate_json(body)
    except ValidationError:
        return SweptDeliveries()


_MOST_BYTES = 1024 * 1024


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

        async def leave(swept: SweptDeliveries) -> None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _SWEPT.dump_json(swept), 0)

        try:
            yield SweepTurn(_decode_swept(os.pread(descriptor, _MOST_BYTES, 0)), leave)
        finally:
            os.close(descriptor)


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
        with self._store.map_errors():
            rows = await asyncio.to_thread(self._store.engine.connect)
        try:
            with self._store.map_errors():
                has_turn = await run_thread(_begin, rows)  # a connection is for one thread at a time
            yield SweepTurn(await self._store.run(self._read), self._leave) if has_turn else None
        finally:
            await asyncio.to_thread(_end, rows)

    @staticmethod
    def _read(tx: Transaction) -> SweptDeliveries:
        body = tx.rows.execute(sa.select(SWEEPS.c.body).where(SWEEPS.c.name == "deliveries")).scalar()
        return _decode_swept(body or "")

    async def _leave(self, swept: SweptDeliveries) -> None:
        body = _SWEPT.dump_json(swept).decode()

        def put(tx: Transaction) -> None:
            row = insert(tx, SWEEPS).values(name="deliveries", body=body)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["name"], set_={"body": body}))

        await self._store.run(put)


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
