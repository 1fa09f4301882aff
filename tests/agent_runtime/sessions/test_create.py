from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.sessions.create import create_session
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import InMemorySession


def test_a_session_is_made_by_the_name_of_its_store(tmp_path: Path) -> None:
    assert isinstance(create_session(), InMemorySession)
    in_files = create_session("file", "s", "me", session_dir=tmp_path)
    assert isinstance(in_files, FileSession)
    assert in_files.path.parent == tmp_path
    assert (in_files.session_id, in_files.agent_name) == ("s", "me")
    in_rows = create_session("db", "s", "me", db_url=f"sqlite:///{tmp_path / 'x.db'}")
    assert isinstance(in_rows, DatabaseSession)
    assert not in_rows.exists()


def test_an_unknown_store_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"'fiel'.*'file'\?.*: db, file, memory"):
        create_session("fiel")


def test_a_database_without_an_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="db_url"):
        create_session("db")
