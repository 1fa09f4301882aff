"""One process at a time works on a session in files: an operating system's lock, and who holds it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from agent_runtime.core.errors import SessionError, SessionInUseError

_OURS = (f"{__name__.partition('.')[0]}.", "filelock")
"""Packages whose calls are not what opened a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that works on a session.

    Attributes:
        pid: its process id.
        host: the machine that it runs on.
        since: since when, in seconds since 1970.
        place: where its program opened the session: file and line; empty where that is not known.
    """

    pid: int
    host: str
    since: float
    place: str = ""

    @classmethod
    def here(cls) -> Self:
        """This process, from now on."""
        frame = sys._getframe()  # noqa: SLF001 - documented, and a traceback's frames cost a hundred times as much
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_OURS):
            frame = frame.f_back
        place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        return cls(pid=os.getpid(), host=socket.gethostname(), since=time.time(), place=place)

    @property
    def is_this_process(self) -> bool:
        """Whether it is the process that asks."""
        return self.pid == os.getpid() and self.host == socket.gethostname()


def in_use(session_id: str, holder: Holder | None) -> SessionInUseError:
    """The error for the second caller; None for a holder that has not said who it is."""
    if holder is None:
        who, remedy = "another process", "Try again in a moment"
    else:
        since = f", since {datetime.fromtimestamp(holder.since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if holder.is_this_process:
            opened = f", opened by {holder.place}" if holder.place else ""
            who = f"a runtime or session of this process that was not closed{since}{opened}"
            remedy = "Call its close(), or make it in a `with` statement"
        else:
            who, remedy = f"process {holder.pid} on {holder.host}{since}", "Wait until that is done, or stop it"
    return SessionInUseError(f"Session {session_id!r} is in use by {who}. {remedy}, or use another session.")


class FileLock:
    """A lock on a file; the system gives it back when the process dies, however it dies."""

    def __init__(self, path: Path, session_id: str) -> None:
        """Take the lock.

        Raises:
            SessionError: another one holds it, or the file system has no locks.
        """
        from filelock import FileLock as SystemLock  # noqa: PLC0415 - only who keeps sessions in files pays
        from filelock import Timeout  # noqa: PLC0415 - the same

        # Sessions are opened in one thread and may be closed in another; a lock that is no real one is none.
        self._lock = SystemLock(
            path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False, on_acquired=_sign
        )
        try:
            self._lock.acquire()
        except Timeout:
            raise in_use(session_id, _holder(path)) from None
        except OSError as error:
            raise SessionError(f"Session {session_id!r} cannot be locked: {error}.") from error

    def release(self) -> None:
        """Give it back; idempotent."""
        self._lock.release()


def _sign(fd: int) -> None:
    """Write into the lock's file who holds it."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(asdict(Holder.here())).encode(), 0)


def _holder(path: Path) -> Holder | None:
    """Who signed last; a holder that has only just taken the lock may not have signed yet."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        return Holder(**data)
    except (OSError, ValueError, TypeError):
        return None
