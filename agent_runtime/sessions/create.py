"""A session by the name of its store."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.errors import SettingsError
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.memory import InMemorySession

BACKENDS = ("memory", "file", "db")


def create_session(
    backend: str = "memory",
    session_id: str = "default",
    agent_name: str = "agent",
    session_dir: Path | str | None = None,
    db_url: str | None = None,
) -> InMemorySession | FileSession | DatabaseSession:
    """Make the session that a backend's name stands for.

    Args:
        backend: `memory`, `file` or `db`.
        session_id: names the conversation.
        agent_name: the agent that a new session is begun with.
        session_dir: for `file`: where sessions lie; `~/.codepilot/sessions` by default.
        db_url: for `db`: the database.

    Raises:
        SettingsError: there is no such backend; or `db` without a `db_url` that can be used.
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
