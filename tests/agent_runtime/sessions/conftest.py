"""The stores that every session test runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import InMemorySession
from tests.agent_runtime.sessions.stores import Store
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sessions.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind that outlives its process."""
    store = _store(request.param, request, tmp_path)
    yield store
    store.close()


@pytest.fixture(params=["memory", "file", "sqlite", "postgresql"])
def session(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[InMemorySession | FileSession | DatabaseSession]:
    """An empty session of each kind."""
    if request.param == "memory":
        yield InMemorySession()
        return
    store = _store(request.param, request, tmp_path)
    yield store.session()
    store.close()


def _store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if kind == "file":
        return Store(session_dir=tmp_path / "sessions")
    url = f"sqlite:///{tmp_path / 'sessions.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    return Store(db_url=url)
