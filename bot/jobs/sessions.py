"""The sessions of jobs: where the log of each run is kept until its result is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from agent_runtime import DatabaseSession, Event, FileSession, Session, SessionError, SessionInUseError
from bot.workspace.removal import SET_ASIDE, discard

log = logging.getLogger(__name__)

_FILE = "run"
_PREFIX = "job "
_YOUNG_SECONDS = 3600.0
"""A session that was used this lately may be of a job that was accepted since the jobs were counted."""


class JobSessions(Protocol):
    """Keeps one session a job. Every method may block, and raise `SessionError` when the store cannot be used."""

    def of(self, job_id: str) -> Session:
        """The session of a job; nothing is opened yet."""
        ...

    def has(self, job_id: str) -> bool:
        """Whether an attempt at the job has left a session."""
        ...

    def events(self, job_id: str) -> Sequence[Event]:
        """What the session of a job has recorded; nothing without one."""
        ...

    def stamp(self, job_id: str) -> str:
        """A text that is another one after something was recorded in the session of a job."""
        ...

    def forget(self, job_id: str) -> None:
        """Drop the session of a job."""
        ...

    def sweep(self, live: Collection[str]) -> None:
        """Drop the sessions of all jobs but `live`; one that was used within the hour stays for the next sweep."""
        ...


class FileJobSessions:
    """Keeps sessions in files, for jobs that no other machine goes on with.

    Args:
        folder: has a directory for each job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, job_id: str) -> FileSession:
        """See `JobSessions.of`."""
        return FileSession(_FILE, session_dir=self._folder / job_id)

    def has(self, job_id: str) -> bool:
        """See `JobSessions.has`."""
        return (self._folder / job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        """See `JobSessions.events`."""
        return self.of(job_id).read()

    def stamp(self, job_id: str) -> str:
        """See `JobSessions.stamp`."""
        try:
            status = self.of(job_id).path.stat()
        except FileNotFoundError:
            return ""
        return f"{status.st_mtime_ns} {status.st_size}"

    def forget(self, job_id: str) -> None:
        """See `JobSessions.forget`."""
        discard(self._folder / job_id)

    def sweep(self, live: Collection[str]) -> None:
        """See `JobSessions.sweep`."""
        before = time.time() - _YOUNG_SECONDS
        for folder in self._folder.iterdir() if self._folder.exists() else ():
            if folder.name in live or folder.name.startswith(SET_ASIDE):
                continue
            if folder.stat().st_mtime < before:
                discard(folder)

    def files(self, job_id: str, *, most: int) -> Mapping[str, bytes] | None:
        """The files of a session by their names, without the lock of its process; None for more than `most` bytes."""
        folder = self._folder / job_id
        found = folder.iterdir() if folder.is_dir() else ()
        files = [path for path in sorted(found) if path.is_file() and path.suffix != ".lock"]
        if sum(path.stat().st_size for path in files) > most:
            return None
        return {path.name: path.read_bytes() for path in files}

    def put(self, job_id: str, files: Mapping[str, bytes]) -> None:
        """Keep the files of a session that another machine has kept."""
        if files:
            folder = self._folder / job_id
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / Path(name).name).write_bytes(content)


class DatabaseJobSessions:
    """Keeps sessions in the database that the workers of all machines share.

    The engine decides which worker has a job, so a session is taken from any other process that holds it: one that is
    dead or was cut off must not make the job wait, and one that lives gets an error instead of writing on.

    Args:
        url: the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self) -> None:
        """Make the tables, so that a database that cannot be used is found before the first job.

        Raises:
            SessionError: it cannot be used.
        """
        with suppress(SessionInUseError):  # another process starts at the same moment, so the database can be used
            self.forget("")

    def of(self, job_id: str) -> DatabaseSession:
        """See `JobSessions.of`."""
        return self._session(job_id, take_over=True)

    def has(self, job_id: str) -> bool:
        """See `JobSessions.has`."""
        return self.of(job_id).exists()

    def events(self, job_id: str) -> Sequence[Event]:
        """See `JobSessions.events`."""
        return self.of(job_id).read()

    def stamp(self, job_id: str) -> str:
        """See `JobSessions.stamp`."""
        return str(self.of(job_id).metadata())

    def forget(self, job_id: str) -> None:
        """See `JobSessions.forget`."""
        _reset(self.of(job_id))

    def sweep(self, live: Collection[str]) -> None:
        """See `JobSessions.sweep`; one that is being used stays for the next sweep, too."""
        before = time.time() - _YOUNG_SECONDS
        for each in self.of("").list_sessions():
            of_job, _, job_id = each["session_id"].partition(_PREFIX)
            if of_job or job_id in live or each["updated_at"] > before:
                continue
            try:
                _reset(self._session(job_id, take_over=False))
            except SessionError as error:
                log.warning("the session of job %s stays for the next sweep: %s", job_id, error)

    def _session(self, job_id: str, *, take_over: bool) -> DatabaseSession:
        return DatabaseSession(f"{_PREFIX}{job_id}", db_url=self._url, take_over=take_over, eager=True)


@asynccontextmanager
async def opened(session: Session | None) -> AsyncIterator[None]:
    """Open a session before it is needed and close it afterwards, beside the event loop: its store may take its time.

    Raises:
        SessionError: it cannot be opened.
    """
    if session is None:
        yield
        return
    await asyncio.to_thread(lambda: session.events)
    try:
        yield
    finally:
        await asyncio.to_thread(session.close)


def _reset(session: DatabaseSession) -> None:
    try:
        session.reset()
    finally:
        session.close()
