"""The places of live workers: each holds a lock that goes when its process dies or loses the database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import psycopg

from bot.domain.errors import QueueError
from bot.engine.durable.store import SILENCE, JobStore
from bot.workspace.locks import try_lock

ADVISORY_CLASS = 0x636F64
"""Tells the locks of workers from all other advisory locks of the database."""
_MOST = 10_000


class Slots(Protocol):
    """The places; a number is one worker's for as long as it lives."""

    async def take(self) -> int:
        """Take the lowest free place for this process.

        Raises:
            QueueError: there is none, or the database cannot be reached.
        """
        ...

    async def still_taken(self) -> bool:
        """Whether this process still has its place."""
        ...

    def vacant(self, number: int) -> AbstractAsyncContextManager[bool]:
        """Whether nobody is in a place: who was there is dead. Nobody takes it while the body runs."""
        ...

    async def close(self) -> None:
        """Leave the place."""
        ...


class FileSlots:
    """Places as locked files, for the processes of one machine.

    Args:
        folder: where the locks are; the same for all workers of a database.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    async def take(self) -> int:
        """See `Slots.take`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(_MOST):
            self._descriptor = try_lock(self._path(number))
            if self._descriptor is not None:
                return number
        raise QueueError(f"{_MOST} workers use the job database already")

    async def still_taken(self) -> bool:
        """See `Slots.still_taken`; the kernel takes no lock from a process that lives."""
        return True

    @asynccontextmanager
    async def vacant(self, number: int) -> AsyncIterator[bool]:
        """See `Slots.vacant`."""
        descriptor = try_lock(self._path(number))
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def close(self) -> None:
        """See `Slots.close`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.lock"


class PostgresSlots:
    """Places as advisory locks of a session, for the workers of any number of machines.

    Args:
        url: the database's address, as `JobStore.url` gives it.
    """

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "", 1)
        self._session: psycopg.AsyncConnection | None = None
        self._use = asyncio.Lock()
        self._taken: int | None = None

    async def take(self) -> int:
        """See `Slots.take`."""
        try:
            self._session = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            for name, value in SILENCE.items():
                await self._session.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
            for number in range(_MOST):
                if await self._locked("pg_try_advisory_lock", number):
                    self._taken = number
                    return number
        except psycopg.Error as error:
            raise QueueError(f"the job database cannot be reached: {error}") from error
        raise QueueError(f"{_MOST} workers use the job database already")

    async def still_taken(self) -> bool:
        """See `Slots.still_taken`."""
        try:
            return self._session is not None and await self._asked("SELECT true")
        except QueueError:
            return False

    @asynccontextmanager
    async def vacant(self, number: int) -> AsyncIterator[bool]:
        """See `Slots.vacant`."""
        free = await self._locked("pg_try_advisory_lock", number)
        try:
            yield free
        finally:
            if free:
                await self._locked("pg_advisory_unlock", number)

    async def close(self) -> None:
        """See `Slots.close`."""
        if self._session is not None:
            # The server notices a closed connection a moment later only. A connection that is lost holds no lock.
            with suppress(QueueError):
                if self._taken is not None:
                    await self._locked("pg_advisory_unlock", self._taken)
            await self._session.close()
            self._session = None

    async def _locked(self, function: str, number: int) -> bool:
        return await self._asked(f"SELECT {function}(%s, %s)", ADVISORY_CLASS, number)

    async def _asked(self, question: str, *values: int) -> bool:
        if self._session is None:
            raise QueueError("this worker has not taken a place yet")
        try:
            async with self._use:
                row = await (await self._session.execute(question.encode(), values)).fetchone()
        except psycopg.Error as error:
            raise QueueError(f"the connection to the job database was lost: {error}") from error
        return bool(row and row[0])


def slots_of(store: JobStore) -> Slots:
    """The places of a database's workers: locks in PostgreSQL, or files beside an SQLite file."""
    return PostgresSlots(store.url) if store.path is None else FileSlots(store.path.resolve().parent / "workers")
