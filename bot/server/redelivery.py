"""Request redelivery of failed deliveries, which GitHub does not do itself. Start at `Redelivery`.

One receiver at a time sweeps (`SweepTurns`).
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
from bot.jobs.posts import background
from bot.queue.store import SWEEPS, JobStore, Transaction, insert

log = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0

MAX_AGE_SECONDS = 24 * 3600.0
"""Maximum age: later, users have moved on. GitHub keeps deliveries for three days."""

_MARGIN_SECONDS = 600.0
"""Overlap with the previous sweep, since attempts are listed only when they have ended."""

_MAX_LISTED = 3_000
_MAX_REQUESTS = 100
_MAX_TRIES = 12


class Redelivery:
    """Sweep the App's deliveries when it is this process's turn."""

    def __init__(
        self,
        open_deliveries: Callable[[], AbstractAsyncContextManager[AppDeliveries]],
        sweeps: SweepTurns,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_deliveries = open_deliveries
        self._sweeps = sweeps
        self._clock = clock

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Sweep periodically during the body; the server must listen already."""
        async with background(self._sweep_periodically()):
            yield

    async def _sweep_periodically(self) -> None:
        while True:
            try:
                await self.sweep()
            except (BotError, OSError) as error:  # the next sweep looks as far back as this one should have
                log.warning("failed deliveries were not checked: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Request redelivery of deliveries that failed since the last sweep; return their number.

        Raises:
            GitHubError: no answer, or unknown App.
            QueueError: the database failed.
            OSError: the data directory failed.
        """
        async with self._sweeps.take() as turn:
            if turn is None:
                return 0
            now, state = self._clock(), turn.state
            attempts = await self._list_attempts(since=max(now - MAX_AGE_SECONDS, state.at - _MARGIN_SECONDS))
            listed = {attempt.guid for attempt in attempts}
            tries = {guid: count for guid, count in state.tries.items() if guid in listed}
            failed = [attempt for attempt in failed_deliveries(attempts) if tries.get(attempt.guid, 0) < _MAX_TRIES]
            chosen = failed[:_MAX_REQUESTS]
            at = state.at
            try:
                await self._redeliver(chosen, tries)
                at = now if len(chosen) == len(failed) else at
            finally:
                await turn.save(SweepState(at=at, tries=tries))
            return len(chosen)

    async def _list_attempts(self, *, since: float) -> list[Attempt]:
        async with self._open_deliveries() as deliveries:
            attempts: list[Attempt] = []
            async for attempt in deliveries.attempts():
                if attempt.at < since:
                    break
                if len(attempts) == _MAX_LISTED:
                    log.warning("only the last %d deliveries are checked for failures", _MAX_LISTED)
                    break
                attempts.append(attempt)
        return attempts

    async def _redeliver(self, attempts: Iterable[Attempt], tries: dict[str, int]) -> None:
        async with self._open_deliveries() as deliveries:
            for attempt in attempts:
                tries[attempt.guid] = tries.get(attempt.guid, 0) + 1
                try:
                    await deliveries.redeliver(attempt.id)
                except GitHubError as error:
                    if error.is_transient:
                        raise
                    log.warning("delivery %s cannot be redelivered: %s", attempt.guid, error)
                else:
                    log.info("delivery %s (%s) failed and is requested again", attempt.guid, attempt.event)


def failed_deliveries(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the latest attempt of each handled delivery without success, oldest first; `attempts` is newest first."""
    succeeded: set[str] = set()
    latest: dict[str, Attempt] = {}
    for attempt in attempts:
        if not attempt.failed:
            succeeded.add(attempt.guid)
        elif attempt.event in router.actions:
            latest.setdefault(attempt.guid, attempt)
    return [attempt for attempt in reversed(latest.values()) if attempt.guid not in succeeded]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """State of the sweeps.

    Attributes:
        at: start of the last complete sweep, in seconds since the epoch; 0 for none.
        tries: redelivery requests by GUID.
    """

    at: float = 0.0
    tries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepTurn:
    """The right to sweep."""

    state: SweepState
    save: Callable[[SweepState], Awaitable[None]]


class SweepTurns(Protocol):
    """Assign the turn to one process; it is lost with the process or its connection."""

    def take(self) -> AbstractAsyncContextManager[SweepTurn | None]:
        """Hold the turn during the body; None if another process has it.

        Raises:
            QueueError: the database failed.
            OSError: the directory failed.
        """


_SWEPT = TypeAdapter(SweepState)


def _decode_state(body: bytes | str) -> SweepState:
    try:
        return _SWEPT.validate_json(body)
    except ValidationError:
        return SweepState()


_MAX_BYTES = 1024 * 1024


class FileSweepTurns:
    """Turns of one machine's processes, by a locked file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def take(self) -> AsyncIterator[SweepTurn | None]:
        descriptor = try_lock(self._path)
        if descriptor is None:
            yield None
            return

        async def save(state: SweepState) -> None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _SWEPT.dump_json(state), 0)

        try:
            yield SweepTurn(_decode_state(os.pread(descriptor, _MAX_BYTES, 0)), save)
        finally:
            os.close(descriptor)


_LOCK_CLASS, _LOCK_ID = 0x636F6465, 1
"""Advisory lock of the turn."""


class PostgresSweepTurns:
    """Turns by an advisory lock; the caller closes the store."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    @asynccontextmanager
    async def take(self) -> AsyncIterator[SweepTurn | None]:
        with self._store.map_errors():
            rows = await asyncio.to_thread(self._store.engine.connect)
        try:
            with self._store.map_errors():
                has_turn = await run_thread(_try_lock, rows)  # a connection is for one thread at a time
            yield SweepTurn(await self._store.run(self._read), self._save) if has_turn else None
        finally:
            await asyncio.to_thread(_unlock, rows)

    @staticmethod
    def _read(tx: Transaction) -> SweepState:
        body = tx.rows.execute(sa.select(SWEEPS.c.body).where(SWEEPS.c.name == "deliveries")).scalar()
        return _decode_state(body or "")

    async def _save(self, state: SweepState) -> None:
        body = _SWEPT.dump_json(state).decode()

        def put(tx: Transaction) -> None:
            row = insert(tx, SWEEPS).values(name="deliveries", body=body)
            tx.rows.execute(row.on_conflict_do_update(index_elements=["name"], set_={"body": body}))

        await self._store.run(put)


def _try_lock(rows: Connection) -> bool:
    is_locked = rows.scalar(sa.select(sa.func.pg_try_advisory_lock(_LOCK_CLASS, _LOCK_ID)))
    rows.commit()  # the lock belongs to the session, so nothing has to stay open
    return bool(is_locked)


def _unlock(rows: Connection) -> None:
    # A server notices the end of a session late, and a pool would keep the session and its lock.
    with suppress(SQLAlchemyError):
        rows.scalar(sa.select(sa.func.pg_advisory_unlock_all()))
    rows.invalidate()
    rows.close()
