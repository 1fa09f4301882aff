"""The protocols of a session store: an append-only log of events, and the same as messages."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import secrets
import socket
import stat
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from agent_runtime.core.errors import SessionError, SessionInUseError
from agent_runtime.core.events import Recorded, Replied
from agent_runtime.core.values import Image, ToolRequest
from agent_runtime.processes.spawn import machine, start_time
from agent_runtime.sessions.codec import ChatMessage, Metadata, extension, messages_of, told


class Session(Protocol):
    """The history of one conversation. Whatever else a run needs to know is derived from it.

    Attributes:
        session_id: names the conversation in its store.
    """

    @property
    def session_id(self) -> str:
        """Names the conversation in its store."""
        ...

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first."""
        ...

    def append(self, event: Recorded) -> None:
        """Record one event; it outlives this process at the latest after the next `commit`.

        Raises:
            SessionError: it cannot be written, e.g. the disk is full.
        """
        ...

    async def commit(self) -> None:
        """Make everything recorded so far durable; called at the end of each step, and before a call that was approved.

        Raises:
            SessionError: it cannot be written.
        """
        ...

    def reset(self) -> None:
        """Forget the whole conversation, in memory and in the store."""
        ...

    def close(self) -> None:
        """Give the store and its lock back; idempotent."""
        ...


@runtime_checkable
class BaseSession(Protocol):
    """A session as messages of role and content, which all of ours give and take, as those of CodePilot 0.9 did."""

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

    def reset(self) -> None:
        """Forget the whole conversation."""
        ...

    def metadata(self) -> Metadata | None:
        """What is known of it; None when it is empty."""
        ...


class EventLog(Protocol):
    """A session's log as a run writes it."""

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first."""
        ...

    def record(self, event: Recorded) -> None:
        """Append an event, and tell those who watch the run."""
        ...


# ---- A session that lives as long as its process.


class InMemorySession:
    """Keeps events in a list.

    Attributes:
        session_id: names the conversation.
        agent_name: the agent that it is held with.
    """

    def __init__(self, session_id: str = "default", agent_name: str = "agent") -> None:
        self.session_id, self.agent_name = session_id, agent_name
        self._events: list[Recorded] = []
        self._created_at = self._updated_at = 0.0

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first."""
        return self._events

    def append(self, event: Recorded) -> None:
        """Record one event."""
        self._updated_at = time.time()
        if not self._events:
            self._created_at = self._updated_at
        self._events.append(event)

    async def commit(self) -> None:
        """Nothing is to be done: this session is not meant to outlive its process."""

    def reset(self) -> None:
        """Forget the whole conversation."""
        self._events.clear()

    def close(self) -> None:
        """Nothing is to be given back."""

    def load(self) -> list[ChatMessage]:
        """The whole conversation as `role` and `content`."""
        return messages_of(self._events)

    def save(self, messages: Iterable[object]) -> None:
        """Make the conversation this one: what goes on from what is known is added, anything else takes its place.

        Raises:
            SessionError: a message has another form than `role` and `content`.
        """
        wanted = told(messages)
        new = extension(self._events, wanted)
        if new is None:
            self.reset()
            new = wanted
        for event in new:
            self.append(event)

    def exists(self) -> bool:
        """Whether anything was recorded."""
        return bool(self._events)

    def metadata(self) -> Metadata | None:
        """What is known of the session beside its messages; None when nothing was recorded."""
        if not self._events:
            return None
        return Metadata(
            session_id=self.session_id,
            agent_name=self.agent_name,
            created_at=self._created_at,
            updated_at=self._updated_at,
            messages=len(self.load()),
        )


# ---- The parts shared by sessions that outlive their process.


_LOGGER = logging.getLogger(__name__)


class OpenLog(Protocol):
    """A log that this process alone may write to, until it is closed. Every method may raise `SessionError`.

    Attributes:
        events: everything that was recorded, oldest first.
        recovered: what was cut off its end when it was opened; empty for nothing.
    """

    events: list[Recorded]
    recovered: str

    def append(self, event: Recorded) -> None:
        """Record one event."""
        ...

    def sync(self) -> None:
        """Make everything recorded so far durable; blocks, and may run in a thread beside `append`."""
        ...

    def replace(self, events: Iterable[Recorded]) -> None:
        """Put other events, at least one, in the place of all, at once and durably."""
        ...

    def remove(self) -> None:
        """Delete everything."""
        ...

    def close(self) -> None:
        """Give the store and its lock back; idempotent."""
        ...


class StoredSession(ABC):
    """A session that lies in a store outside this process.

    What only asks (`exists`, `metadata`, `list_sessions`, and `load` and `read` until the session is opened) takes no
    lock. Everything else opens the session for this process alone, until `close` or until the object is no longer used.

    Attributes:
        session_id: names the conversation; any text.
        agent_name: the agent that a new session is begun with.
    """

    def __init__(self, session_id: str, agent_name: str) -> None:
        self.session_id, self.agent_name = session_id, agent_name
        self._log: OpenLog | None = None
        self._forgotten: weakref.finalize[[OpenLog, int], StoredSession] | None = None

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first.

        Raises:
            SessionError: another process works on the session, or it cannot be read; the text names which and why.
        """
        return self._opened().events

    @property
    def recovered(self) -> str:
        """What was cut off the end of the log when it was opened, and where that is kept; empty for nothing.

        Raises:
            SessionError: as for `events`.
        """
        return self._opened().recovered

    def append(self, event: Recorded) -> None:
        """Record one event.

        Raises:
            SessionError: it cannot be written, or as for `events`.
        """
        self._opened().append(event)

    async def commit(self) -> None:
        """Make everything recorded so far durable, in a thread.

        Raises:
            SessionError: it cannot be written.
        """
        if self._log is not None:
            await asyncio.to_thread(self._sync)

    def reset(self) -> None:
        """Delete the conversation from the store. One that cannot be read is left alone.

        Raises:
            SessionError: it cannot be deleted, or as for `events`.
        """
        self._opened().remove()

    def close(self) -> None:
        """Give the store and the lock back; idempotent. Using the session again opens it again.

        Raises:
            SessionError: what was not committed yet cannot be written.
        """
        log, self._log = self._log, None
        if log is not None and self._forgotten is not None:
            self._forgotten.detach()
            log.close()

    def load(self) -> list[ChatMessage]:
        """The whole conversation as `role` and `content`.

        Raises:
            SessionError: it cannot be read.
        """
        return messages_of(self.read())

    def read(self) -> Sequence[Recorded]:
        """Everything that is recorded by now, oldest first, also of a session that another process works on.

        Raises:
            SessionError: it cannot be read.
        """
        return self._read() if self._log is None else self._log.events

    def save(self, messages: Iterable[object]) -> None:
        """Make the conversation this one: what goes on from what is known is added, anything else takes its place.

        Raises:
            SessionError: a message has another form than `role` and `content`, or it cannot be written.
        """
        log, wanted = self._opened(), told(messages)
        new = extension(log.events, wanted)
        if new is not None:
            for event in new:
                log.append(event)
            log.sync()
        elif wanted:
            log.replace(wanted)
        else:
            log.remove()

    @abstractmethod
    def exists(self) -> bool:
        """Whether anything was recorded."""

    @abstractmethod
    def metadata(self) -> Metadata | None:
        """What is known of the session without reading it; None when nothing was recorded.

        Raises:
            SessionError: it cannot be read.
        """

    @abstractmethod
    def list_sessions(self) -> list[Metadata]:
        """All sessions in the store, the last used first.

        Raises:
            SessionError: the store cannot be read.
        """

    @abstractmethod
    def _open(self) -> OpenLog:
        """Open the session for this process alone."""

    @abstractmethod
    def _read(self) -> Sequence[Recorded]:
        """What is recorded by now, without opening the session."""

    def _sync(self) -> None:
        """Runs in a thread, and keeps the session from being dropped meanwhile."""
        if self._log is not None:
            self._log.sync()

    def _opened(self) -> OpenLog:
        if self._log is None:
            self._log = self._open()
            self._forgotten = weakref.finalize(self, _close_forgotten, self._log, os.getpid())
        return self._log


def _close_forgotten(log: OpenLog, pid: int) -> None:
    """Close the log of a session that nobody closed, when it is dropped or the process ends."""
    if os.getpid() != pid:
        return  # we were forked off: it is our parent's
    try:
        log.close()
    except SessionError as error:
        _LOGGER.warning("A session was not closed before its event loop ended: %s", error)


# ---- One process at a time works on a session in files: an operating system's lock, and who holds it.


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


# ---- The lease on a session in a database: its holder, and whether that process is alive.


BEAT_SECONDS = 15.0
"""How often a holder says that it lives."""

EXPIRY_SECONDS = 60.0
"""How long after its last word a holder on another machine is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A claim on a session.

    Attributes:
        token: random; a process that no longer finds it in the database has lost the session.
        pid: the holder's process id.
        host: its machine, for people.
        since: when the claim was made, in seconds since 1970.
        machine: within which process ids can be compared: this start of the system, and this process namespace;
            empty where the system does not tell.
        started: when the process was started, to tell it from a later one with its number; empty likewise.
        beat: when the holder last said that it lives, in seconds since 1970.
    """

    token: str
    pid: int
    host: str
    since: float
    machine: str
    started: str
    beat: float

    @classmethod
    def here(cls) -> Self:
        """A claim by this process."""
        pid, now = os.getpid(), time.time()
        return cls(
            token=secrets.token_hex(16),
            pid=pid,
            host=socket.gethostname(),
            since=now,
            machine=machine(),
            started=start_time(pid),
            beat=now,
        )

    @property
    def holder(self) -> Holder:
        """Who made it, for people."""
        return Holder(pid=self.pid, host=self.host, since=self.since)

    @property
    def is_dead(self) -> bool:
        """Whether its holder is surely gone, or has not been heard of for `EXPIRY_SECONDS`."""
        if self.machine and self.machine == machine():
            return start_time(self.pid) != self.started
        return time.time() - self.beat > EXPIRY_SECONDS


# ---- Opening files of a session, in a directory where somebody else may have put links, pipes or devices.


def opened(path: Path, flags: int) -> int:
    """A descriptor of a regular file; what `flags` creates is its owner's alone.

    Raises:
        OSError: it is a link, a pipe, a device or a directory; or it cannot be opened.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file")


# ---- Takes secrets out of an event before it is recorded. Pure.


T = TypeVar("T")

Scrub = Callable[[str], str]
"""From a text to the same without secrets; a text that holds none comes back as it is."""

_WORDS = frozenset({"PendingKind", "Role"})
"""Annotations of fields that hold one of a few words of ours."""


def scrubbed(value: T, scrub: Scrub) -> T:
    """An event, or a part of one, with every text in it scrubbed, names of arguments included; images as they are."""
    clean: Any = value
    match value:
        case Enum() | Image():
            pass
        case str():
            clean = scrub(value)
        case list() | tuple():
            clean = type(value)(scrubbed(each, scrub) for each in value)
        case dict():
            clean = {scrubbed(key, scrub): scrubbed(each, scrub) for key, each in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            texts = (field.name for field in fields(value) if field.type not in _WORDS)
            clean = replace(value, **{name: scrubbed(getattr(value, name), scrub) for name in texts})
            if isinstance(value, ToolRequest):
                clean = replace(clean, arguments=_json_scrubbed(clean.arguments, scrub))
            if isinstance(value, Replied) and _json_scrubbed(clean.reasoning, scrub) != value.reasoning:
                clean = replace(clean, reasoning="")  # signed: a service refuses what was changed
        case _:
            pass
    return clean  # type: ignore[no-any-return] # what is changed keeps its type


def _json_scrubbed(text: str, scrub: Scrub) -> str:
    """JSON without the secrets that its escapes disguise; what is none, and what holds none, comes back as it is."""
    try:
        value = json.loads(text)
        clean = scrubbed(value, scrub)
        return text if clean == value else json.dumps(clean)
    except (ValueError, RecursionError):
        return text
