"""A place where sessions are kept, as tests and the programs that they start see it."""

from __future__ import annotations

import json
from pathlib import Path

from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession


class Store:
    """Opens sessions and remembers to close them."""

    def __init__(self, *, session_dir: Path | None = None, db_url: str | None = None) -> None:
        self.session_dir, self.db_url = session_dir, db_url
        self._opened: list[FileSession | DatabaseSession] = []

    def session(self, session_id: str = "s", agent_name: str = "agent") -> FileSession | DatabaseSession:
        if self.db_url is not None:
            session: FileSession | DatabaseSession = DatabaseSession(session_id, agent_name, db_url=self.db_url)
        else:
            session = FileSession(session_id, agent_name, session_dir=self.session_dir)
        self._opened.append(session)
        return session

    def close(self) -> None:
        for session in self._opened:
            session.close()

    def to_json(self) -> str:
        return json.dumps([str(self.session_dir), self.db_url])

    @classmethod
    def from_json(cls, text: str) -> Store:
        session_dir, db_url = json.loads(text)
        return cls(session_dir=Path(session_dir), db_url=db_url)
