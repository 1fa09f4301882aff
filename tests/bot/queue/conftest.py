"""The databases that the tests of the engine run over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.queue.store import JobStore
from bot.queue.worker import open_slots
from tests.bot.queue.running import Running
from tests.durable import job_tables, jobs_url
from tests.postgres import postgres_server, postgres_url

__all__ = ["job_tables", "jobs_url", "postgres_server", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without jobs; on SQLite, without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'queue.sqlite'}"
    return str(request.getfixturevalue("jobs_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'queue.sqlite'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def running(database: str, tmp_path: Path) -> AsyncIterator[Running]:
    """An engine, and a worker that has not begun."""
    store = JobStore(database)
    running = Running(store, open_slots(store))
    yield running
    await running.stop()
    await store.close()
