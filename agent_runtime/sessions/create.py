"""The factory of sessions, and the import from and export to CodePilot 0.9.

The original's file is one JSON object with `session_id`, `agent_name`, `messages` and `extra`. Its table holds
`{"messages": …, "extra": …}` or the bare list of messages, as text.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SessionError, SettingsError, did_you_mean
from agent_runtime.sessions.codec import imported_events, original_name
from agent_runtime.sessions.database import DatabaseSession, open_database
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import BaseSession, InMemorySession, StoredSession

_LOGGER = logging.getLogger(__name__)

BACKENDS = ("memory", "file", "db")

_LAST_TIME = 2.0**33
"""The year 2242; file systems hold few later times."""


def create_session(
    backend: str = "memory",
    session_id: str = "default",
    agent_name: str = "agent",
    session_dir: Path | str | None = None,
    db_url: str | None = None,
) -> InMemorySession | FileSession | DatabaseSession:
    """Create a session of a backend: `memory`, `file` (by default in `~/.codepilot/sessions`) or `db`.

    Raises:
        SettingsError: the backend is unknown, or `db_url` is missing or invalid.
    """
    match backend:
        case "memory":
            return InMemorySession(session_id, agent_name)
        case "file":
            return FileSession(session_id, agent_name, session_dir)
        case "db":
            return DatabaseSession(session_id, agent_name, db_url)
        case _:
            raise SettingsError(f"There is no session backend {backend!r}. {did_you_mean(backend, BACKENDS)}")


def import_session_file(path: Path | str, session_for: Callable[[str], BaseSession]) -> str:
    """Import a session file of CodePilot 0.9 into the empty session of its id; return the id.

    A copy has the id of its new name, as in CodePilot 0.9.

    Raises:
        SessionError: the file has another form, or the session is not empty. Nothing was changed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SessionError(f"{path} is not a session file: it is not UTF-8 text.") from error
    content = _parse_content(text, str(path))
    session_id = str(content.get("session_id"))
    if original_name(session_id) != path.stem:
        session_id = path.stem
    _save_imported(session_for(session_id), content, str(path))
    return session_id


def export_session_file(session: BaseSession, path: Path | str) -> None:
    """Write a session as a file for the original CodePilot.

    Raises:
        SessionError: the session is empty, or the file cannot be written.
    """
    metadata, messages = session.metadata(), session.load()
    if metadata is None:
        raise SessionError(f"Session {session.session_id!r} is empty; there is nothing to export.")
    content = {**metadata, "messages": messages, "extra": {}}
    new = Path(f"{path}.new")
    try:
        new.write_text(json.dumps(content, indent=2), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SessionError(f"{path} cannot be written: {error.strerror}.") from error


def import_session_table(
    db_url: str, session_for: Callable[[str], BaseSession], *, table: str = "codepilot_sessions"
) -> list[str]:
    """Import all sessions of the original CodePilot's table, which is not changed; return their ids.

    Raises:
        SettingsError: the address is invalid, or a package is missing.
        SessionError: the table cannot be read, a session in it has another form, or a target is not empty.
    """
    rows = open_database(db_url).original_rows(table)
    for row in rows:
        name = f"Session {row['session_id']!r} of the table {table}"
        content = _parse_content(str(row["messages"]), name)
        _save_imported(session_for(str(row["session_id"])), {**row, **content}, name)
    return [str(row["session_id"]) for row in rows]


def _parse_content(text: str, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
        content = {"messages": data} if isinstance(data, list) else dict(data)
        content["messages"] = list(content["messages"])
        imported_events(content["messages"])
    except SessionError as error:
        raise SessionError(f"{name}: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SessionError(f"{name} is not in the form of CodePilot 0.9's sessions: {error}.") from error
    return content


def _save_imported(session: BaseSession, content: Mapping[str, Any], name: str) -> None:
    if isinstance(session, FileSession):
        session.original = None
    if session.metadata() is not None:
        raise SessionError(f"Session {session.session_id!r} is not empty; import into another one, or reset it first.")
    if content["messages"] and isinstance(session, StoredSession | InMemorySession):
        created_at, updated_at = (_read_time(content.get(key)) for key in ("created_at", "updated_at"))
        agent_name = content.get("agent_name")
        session.restore(
            content["messages"],
            agent_name=agent_name if isinstance(agent_name, str) and agent_name else session.agent_name,
            created_at=created_at,
            updated_at=max(created_at, updated_at),
        )
    else:
        session.save(content["messages"])
    # With each session, 0.9 stores an archive, which is mostly empty.
    if (extra := content.get("extra")) and extra != {"memory_state": {"archive": {"store": {}}}}:
        _LOGGER.warning("%s: its data other than messages (%s) was not imported.", name, ", ".join(extra))


def _read_time(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < _LAST_TIME else time.time()
