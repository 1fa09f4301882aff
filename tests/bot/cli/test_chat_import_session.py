"""Conversations of CodePilot 0.9 are brought in by `codepilot import-session`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_runtime import AgentError, DatabaseSession, FileSession
from bot.__main__ import cli

MESSAGES = [
    {"role": "user", "content": "[Task 1][USER INPUT]\nCreate the endpoints"},
    {"role": "assistant", "content": "Done.\n"},
]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "ecommerce-api.json"
    content = {"session_id": "ecommerce-api", "agent_name": "Engineer", "messages": MESSAGES, "extra": {}}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_files_become_sessions_of_the_same_ids_and_nothing_is_overwritten(original: Path, tmp_path: Path) -> None:
    arguments = ["import-session", str(original), "--session-dir", str(tmp_path / "sessions")]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "Imported the session 'ecommerce-api'.\n")
    assert FileSession("ecommerce-api", session_dir=tmp_path / "sessions").load() == MESSAGES
    with pytest.raises(AgentError, match="is not empty"):
        CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_rows_of_a_database_become_sessions_of_another(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.execute("CREATE TABLE codepilot_sessions (session_id TEXT, messages TEXT)")
        old.execute("INSERT INTO codepilot_sessions VALUES ('user-42', ?)", [json.dumps({"messages": MESSAGES})])
    old.close()
    url = f"sqlite:///{tmp_path / 'new.db'}"
    arguments = ["import-session", "--from-db", f"sqlite:///{tmp_path / 'old.db'}", "--to-db", url]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    assert DatabaseSession("user-42", db_url=url).load() == MESSAGES


@pytest.mark.parametrize(
    "arguments", [[], ["FILE", "--from-db", "sqlite://"], ["FILE", "--to-db", "sqlite://", "--session-dir", "x"]]
)
def test_what_cannot_be_meant_is_refused(original: Path, arguments: list[str]) -> None:
    given = [str(original) if each == "FILE" else each for each in arguments]
    assert CliRunner().invoke(cli, ["import-session", *given]).exit_code == 2
