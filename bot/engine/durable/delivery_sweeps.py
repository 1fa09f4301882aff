"""Give one receiver of a PostgreSQL database at a time the turn to look for failed deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from bot.engine.delivery_sweeps import SweepTurn, SweptDeliveries, dumped, loaded
from bot.engine.durable.store import JobStore, Transaction, insert
from bot.engine.durable.tables import SWEEPS
from bot.workspace.locks import in_thread

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
