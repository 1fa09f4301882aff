"""Sessions of the original CodePilot, brought in and given back.

Its file is one JSON object: `session_id`, `agent_name`, `created_at`, `updated_at`, `messages` (role and content) and
`extra`. Its table keeps `{"messages": …, "extra": …}`, or the bare list of messages, as text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from agent_runtime.core.errors import SessionError
from agent_runtime.sessions.database import open_database
from agent_runtime.sessions.messages import ChatMessage, Metadata, told

_LOGGER = logging.getLogger(__name__)


class MessageStore(Protocol):
    """A session that gives and takes messages; all of ours do."""

    @property
    def session_id(self) -> str:
        """Names the conversation in its store."""
        ...

    def load(self) -> list[ChatMessage]:
        """The whole conversation."""
        ...

    def save(self, messages: Iterable[object]) -> None:
        """Make the conversation this one."""
        ...

    def metadata(self) -> Metadata | None:
        """What is known of it; None when it is empty."""
        ...


def import_seed_file(path: Path | str, session: MessageStore) -> int:
    """Bring a session file of the original CodePilot into an empty session.

    What the original archived is brought over as its summaries: the texts behind them are its own state.

    Returns:
        How many messages it held.

    Raises:
        SessionError: the file cannot be read or has another form, or the session is not empty. Nothing was changed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SessionError(f"{path} is not a session file: it is not UTF-8 text.") from error
    return _import(text, str(path), session)


def export_seed_file(session: MessageStore, path: Path | str) -> None:
    """Write a session as a file that the original CodePilot reads.

    Raises:
        SessionError: the session is empty, or the file cannot be written.
    """
    known, messages = session.metadata(), session.load()
    if known is None:
        raise SessionError(f"Session {session.session_id!r} is empty; there is nothing to export.")
    content = {**known, "messages": messages, "extra": {}}
    new = Path(f"{path}.new")
    try:
        new.write_text(json.dumps(content, indent=2), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SessionError(f"{path} cannot be written: {error.strerror}.") from error


def import_seed_table(
    db_url: str, session_for: Callable[[str], MessageStore], *, table: str = "codepilot_sessions"
) -> list[str]:
    """Bring all sessions of the original CodePilot's table over; the table is left as it is.

    Args:
        db_url: the database.
        session_for: gives the empty session to fill, by the id that the original used.
        table: the table's name; another one than its own when it was renamed to make room for ours.

    Returns:
        The ids of the sessions that were brought over.

    Raises:
        SettingsError: the address is none, or what it needs is not installed.
        SessionError: the table cannot be read, a session in it has another form, or one to fill is not empty.
    """
    rows = open_database(db_url).seed_rows(table)
    for session_id, text in rows:
        _import(text, f"Session {session_id!r} of the table {table}", session_for(session_id))
    return [session_id for session_id, _ in rows]


def _import(text: str, name: str, session: MessageStore) -> int:
    try:
        data = json.loads(text)
        content = {"messages": data} if isinstance(data, list) else data
        messages, extra = list(content["messages"]), content.get("extra")
        told(messages)
    except SessionError as error:
        raise SessionError(f"{name}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SessionError(f"{name} is not in the form of the original CodePilot's sessions: {error}.") from error
    if session.load():
        raise SessionError(f"Session {session.session_id!r} is not empty; import into another one, or reset it first.")
    session.save(messages)
    if extra:
        _LOGGER.warning("%s: its data other than messages (%s) was not imported.", name, ", ".join(extra))
    return len(messages)
