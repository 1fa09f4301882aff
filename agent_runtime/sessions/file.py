"""A session in files: an append-only log of JSON lines, and a small index beside it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from agent_runtime.core.errors import SessionError, SettingsError
from agent_runtime.core.events import Recorded
from agent_runtime.processes.user_directories import home
from agent_runtime.sessions import index
from agent_runtime.sessions.codec import Header
from agent_runtime.sessions.logfile import LogFile, failing_as_session_error, read
from agent_runtime.sessions.messages import Metadata
from agent_runtime.sessions.names import file_name
from agent_runtime.sessions.stored import StoredSession

_LOGGER = logging.getLogger(__name__)


class FileSession(StoredSession):
    """Keeps events in a file of its own. What is recorded outlives the process at once, the machine after a `commit`.

    Attributes:
        path: the log; its directory is made when the session is opened.
    """

    def __init__(self, session_id: str, agent_name: str = "agent", session_dir: Path | str | None = None) -> None:
        """Name a session; nothing is read or made yet.

        Args:
            session_id: names the conversation; any text.
            agent_name: the agent that a new session is begun with.
            session_dir: where sessions lie; `~/.codepilot/sessions` by default.

        Raises:
            SettingsError: there is no `session_dir`, and this user has no home directory.
        """
        super().__init__(session_id, agent_name)
        if session_dir is None:
            place = home("The session has no place to lie", otherwise="pass `session_dir`")
            session_dir = place / ".codepilot" / "sessions"
        self.path = Path(session_dir) / f"{file_name(session_id)}.jsonl"

    def require_out_of_reach(self, work_dir: Path) -> None:
        """Make sure that an agent cannot destroy its own log.

        Args:
            work_dir: what its tools may write to. Who lets them leave it (`unsafe_mode`) has taken that on.

        Raises:
            SettingsError: it could.
        """
        if self.path.resolve().is_relative_to(work_dir.resolve()):
            raise SettingsError(
                f"The session {self.path} is in {work_dir}, the agent's directory, where it could be destroyed. "
                "Pass a `session_dir` outside it, or omit it to use ~/.codepilot/sessions."
            )

    @override
    def exists(self) -> bool:
        return self.path.is_file()

    @override
    def metadata(self) -> Metadata | None:
        with failing_as_session_error(self.path):
            return index.metadata(self.path)

    @override
    def list_sessions(self) -> list[Metadata]:
        """All sessions in the directory, the last used first. Logs that cannot be read are left out, with a warning."""
        found = list[Metadata]()
        for path in self.path.parent.glob("*.jsonl"):
            try:
                with failing_as_session_error(path):
                    known = index.metadata(path)
            except SessionError as error:
                _LOGGER.warning("A session is not listed: %s", error)
                continue
            if known is not None:
                found.append(known)
        return sorted(found, key=lambda each: each["updated_at"], reverse=True)

    @override
    def _open(self) -> LogFile:
        return LogFile(self.path, Header(session_id=self.session_id, agent_name=self.agent_name, created_at=0))

    @override
    def _read(self) -> Sequence[Recorded]:
        return read(self.path).events
