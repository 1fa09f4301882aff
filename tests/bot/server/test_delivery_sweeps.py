"""Of the receivers of one database one at a time looks for failed deliveries, and goes on where the last one was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import Event

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bot.domain.errors import QueueError
from bot.queue.store import JobStore
from bot.server import redelivery
from bot.server.redelivery import PostgresDeliverySweeps, SweptDeliveries
from tests.postgres import postgres_server, postgres_url
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

LEFT = SweptDeliveries(at=12.5, tries={"guid": 3})


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[tuple[JobStore, JobStore]]:
    """Those of two receivers."""
    both = JobStore(postgres_url), JobStore(postgres_url)
    yield both
    for store in both:
        await store.close()


async def test_one_receiver_has_the_turn_and_the_next_goes_on_where_it_was(stores: tuple[JobStore, JobStore]) -> None:
    first, second = map(PostgresDeliverySweeps, stores)
    async with first.turn() as turn:
        assert turn is not None
        assert turn.swept == SweptDeliveries()
        async with second.turn() as none:
            assert none is None
        await turn.leave(LEFT)
    async with second.turn() as turn:
        assert turn is not None
        assert turn.swept == LEFT


async def test_a_receiver_that_loses_its_connection_loses_the_turn(stores: tuple[JobStore, JobStore]) -> None:
    first, second = map(PostgresDeliverySweeps, stores)
    others = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid != pg_backend_pid()"
    )

    async def has_it() -> bool | None:
        async with second.turn() as turn:
            return turn is not None or None

    async with first.turn():
        await stores[1].run(lambda tx: tx.rows.execute(others).all())
        taken_over: bool = await eventually(has_it)
        assert taken_over


async def test_a_database_that_is_gone_is_named(postgres_url: str) -> None:
    store = JobStore(postgres_url)
    sweeps = PostgresDeliverySweeps(store)
    await store.close()
    store.engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(QueueError):
        async with sweeps.turn():
            pass


async def test_what_fails_in_a_turn_is_not_taken_for_the_database(stores: tuple[JobStore, JobStore]) -> None:
    with pytest.raises(ConnectionResetError):
        async with PostgresDeliverySweeps(stores[0]).turn():
            raise ConnectionResetError
    async with PostgresDeliverySweeps(stores[1]).turn() as turn:
        assert turn is not None


async def test_the_connection_of_a_turn_that_is_cancelled_is_used_by_one_thread_at_a_time(
    stores: tuple[JobStore, JobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, end, begun, ended = redelivery._begin, redelivery._end, Event(), Event()
    ended_meanwhile = []

    def slow_begin(rows: Connection) -> bool:
        begun.set()
        ended_meanwhile.append(ended.wait(0.2))
        return begin(rows)

    def told_end(rows: Connection) -> None:
        ended.set()
        end(rows)

    monkeypatch.setattr(redelivery, "_begin", slow_begin)
    monkeypatch.setattr(redelivery, "_end", told_end)

    async def take() -> None:
        async with PostgresDeliverySweeps(stores[0]).turn():
            pass

    taking = asyncio.create_task(take())
    await eventually(begun.is_set)
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert ended.is_set()
    assert ended_meanwhile == [False]
