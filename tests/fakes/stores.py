"""Sessions and patches of jobs without a database, and without waiting for the disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from typing_extensions import override

from agent_runtime import Event, FileSession, InMemorySession
from bot.jobs.storage import FileJobSessions, PatchFiles


class FakeJobSessions(FileJobSessions):
    """Sessions in memory.

    Attributes:
        failure: what every use raises; None while the store works.
    """

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))
        self.failure: Exception | None = None
        self._sessions: dict[str, InMemorySession] = {}
        self._saved: dict[str, InMemorySession] = {}

    @override
    def get(self, job_id: str) -> FileSession:
        if self.failure is not None:
            raise self.failure
        return self._sessions.setdefault(job_id, InMemorySession(job_id))  # type: ignore[return-value]

    @override
    def has(self, job_id: str) -> bool:
        return bool(self.events(job_id))

    @override
    def events(self, job_id: str) -> Sequence[Event]:
        if self.failure is not None:
            raise self.failure
        session = self._sessions.get(job_id)
        return tuple(session.events) if session is not None else ()

    @override
    def version(self, job_id: str) -> str:
        return str(len(self.events(job_id)))

    @override
    def forget(self, job_id: str) -> None:
        self._sessions.pop(job_id, None)

    @override
    def sweep(self, live: Collection[str]) -> None:
        self._sessions = {job_id: session for job_id, session in self._sessions.items() if job_id in live}

    @override
    def files(self, job_id: str, *, max_bytes: int) -> Mapping[str, bytes] | None:
        if len(self.events(job_id)) > max_bytes:
            return None
        self._saved[job_id] = self._sessions[job_id]
        return {}

    @override
    def put(self, job_id: str, files: Mapping[str, bytes]) -> None:
        self._sessions[job_id] = self._saved[job_id]


class FakePatches(PatchFiles):
    """Patches in files that need not survive the machine.

    Attributes:
        failure: what every use raises; None while the store works.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.failure: Exception | None = None

    @override
    def put(self, job_id: str, patch: BinaryIO) -> None:
        if self.failure is not None:
            raise self.failure
        self._folder.mkdir(exist_ok=True)
        (self._folder / f"{job_id}.patch").write_bytes(patch.read())

    @override
    def file(self, job_id: str) -> Path | None:
        if self.failure is not None:
            raise self.failure
        return super().file(job_id)
