"""A session in a database: SQLite, PostgreSQL, or another that SQLAlchemy supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import Recorded
from agent_runtime.sessions.codec import MAX_KEY, Header, Metadata, escape_key
from agent_runtime.sessions.protocol import StoredSession

if TYPE_CHECKING:
    from agent_runtime.sessions.tables import RowLog, SessionDatabase


class DatabaseSession(StoredSession):
    """A session in tables that it creates itself; durable after `commit`."""

    def __init__(
        self,
        session_id: str,
        agent_name: str = "agent",
        db_url: str | None = None,
        *,
        take_over: bool = False,
        eager: bool = False,
    ) -> None:
        """Prepare the session; nothing is connected yet.

        Args:
            session_id: up to 600 characters.
            db_url: e.g. `sqlite:///sessions.db` or `postgresql://user:password@host/name`.
            take_over: whether to take the session from another process, whose writes then fail.
            eager: whether a thread writes events at once, not at the next `commit`.
        """
        super().__init__(session_id, agent_name)
        if not db_url:
            raise SettingsError(
                "A session in a database needs db_url, e.g. sqlite:///sessions.db or "
                "postgresql://user:password@host/name."
            )
        if len(escape_key(session_id)) > MAX_KEY:
            raise SettingsError(
                f"The session id {session_id[:20]!r}… is too long for a database; the limit is {MAX_KEY}."
            )
        self._database = open_database(db_url)
        self._take_over, self._eager = take_over, eager

    @override
    def exists(self) -> bool:
        return self.metadata() is not None

    @override
    def metadata(self) -> Metadata | None:
        rows = self._select_metadata(escape_key(self.session_id))
        return rows[0] if rows else None

    @override
    def list_sessions(self) -> list[Metadata]:
        return self._select_metadata()

    def _select_metadata(self, key: str | None = None) -> list[Metadata]:
        from agent_runtime.sessions import tables  # noqa: PLC0415 - see open_database

        with self._database.reading() as connection:
            return [] if connection is None else tables.select_metadata(connection, key)

    @override
    def _open(self) -> RowLog:
        from agent_runtime.sessions.tables import RowLog  # noqa: PLC0415 - see open_database

        header = Header(session_id=self.session_id, agent_name=self.agent_name, created_at=0)
        return RowLog(self._database, header, take_over=self._take_over, eager=self._eager)

    @override
    def _read(self) -> Sequence[Recorded]:
        from agent_runtime.sessions.tables import read_events  # noqa: PLC0415 - see open_database

        return read_events(self._database, self.session_id)


def open_database(db_url: str) -> SessionDatabase:
    """Return the database at an address; nothing is connected yet."""
    try:
        from agent_runtime.sessions.tables import SessionDatabase  # noqa: PLC0415 - an optional extra, and heavy
    except ModuleNotFoundError as error:
        raise SettingsError(f"Sessions in a database need SQLAlchemy ({error}): install codepilot-bot[db]") from error
    return SessionDatabase(db_url)
