"""The protocols of sessions, and the parts that their stores share.

A `Session` is an append-only log of events. A `StoredSession` opens its `OpenLog` for one process at a time, its
`Holder`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from agent_runtime.core.errors import SessionError, SessionInUseError
from agent_runtime.core.events import Recorded, Replied
from agent_runtime.core.values import Image, ToolRequest
from agent_runtime.processes.spawn import start_time
from agent_runtime.sessions.codec import ChatMessage, Header, Metadata, imported_events, messages_of, new_messages


class Session(Protocol):
    """The history of a conversation, from which a run derives its state."""

    @property
    def session_id(self) -> str: ...

    @property
    def events(self) -> Sequence[Recorded]: ...

    def append(self, event: Recorded) -> None:
        """Record an event; it is durable after the next `commit`."""

    async def commit(self) -> None:
        """Make the recorded events durable; awaited after each step and before an approved call."""

    def reset(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class BaseSession(Protocol):
    """A session as messages of role and content, the interface of CodePilot 0.9."""

    @property
    def session_id(self) -> str: ...

    def load(self) -> list[ChatMessage]: ...

    def save(self, messages: Iterable[object]) -> None: ...

    def reset(self) -> None: ...

    def metadata(self) -> Metadata | None: ...


class EventLog(Protocol):
    @property
    def events(self) -> Sequence[Recorded]: ...

    def record(self, event: Recorded) -> None: ...


class OpenLog(Protocol):
    """A log that this process alone writes to until `close`. Every method may raise `SessionError`."""

    events: list[Recorded]
    recovered: str

    def append(self, event: Recorded) -> None: ...

    def sync(self) -> None:
        """Make the recorded events durable; blocks, and may run in a thread beside `append`."""

    def replace(
        self, events: Iterable[Recorded], header: Header | None = None, updated_at: float | None = None
    ) -> None:
        """Replace all events atomically and durably by at least one other."""

    def remove(self) -> None: ...

    def close(self) -> None: ...


_LOGGER = logging.getLogger(__name__)


class StoredSession(ABC):
    """A session in a store outside this process.

    `exists`, `metadata`, `list_sessions`, and before the session is opened `load` and `read`, take no lock. All other
    methods open the session for this process alone, until `close` or until the object is garbage.
    """

    def __init__(self, session_id: str, agent_name: str) -> None:
        self.session_id, self.agent_name = session_id, agent_name
        self._log: OpenLog | None = None
        self._finalizer: weakref.finalize[[OpenLog, int], StoredSession] | None = None

    @property
    def events(self) -> Sequence[Recorded]:
        return self._open_log().events

    @property
    def recovered(self) -> str:
        """A note on damaged bytes that were cut off the log's end; empty for none."""
        return self._open_log().recovered

    def append(self, event: Recorded) -> None:
        self._open_log().append(event)

    async def commit(self) -> None:
        if self._log is not None:
            await asyncio.to_thread(self._sync)

    def reset(self) -> None:
        """Delete the conversation from the store. An unreadable one is not touched."""
        self._open_log().remove()

    def close(self) -> None:
        """Release the store and the lock; idempotent. The next use opens the session again."""
        log, self._log = self._log, None
        if log is not None and self._finalizer is not None:
            self._finalizer.detach()
            log.close()

    def load(self) -> list[ChatMessage]:
        return messages_of(self.read())

    def read(self) -> Sequence[Recorded]:
        """Return the recorded events, also while another process holds the session."""
        return self._read() if self._log is None else self._log.events

    def save(self, messages: Iterable[object]) -> None:
        """Replace the conversation; if `messages` continues it, append the rest."""
        log, imported = self._open_log(), imported_events(messages)
        new = new_messages(log.events, imported)
        if new is not None:
            for event in new:
                log.append(event)
            log.sync()
        elif imported:
            log.replace(imported)
        else:
            log.remove()

    def restore(self, messages: Iterable[object], *, agent_name: str, created_at: float, updated_at: float) -> None:
        """Fill the empty session with one of CodePilot 0.9."""
        header = Header(session_id=self.session_id, agent_name=agent_name, created_at=created_at, is_imported=True)
        self._open_log().replace(imported_events(messages), header, updated_at)

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def metadata(self) -> Metadata | None:
        """Return the session's facts without reading its events; None if it is empty."""

    @abstractmethod
    def list_sessions(self) -> list[Metadata]: ...

    @abstractmethod
    def _open(self) -> OpenLog: ...

    @abstractmethod
    def _read(self) -> Sequence[Recorded]: ...

    def _sync(self) -> None:
        if self._log is not None:
            self._log.sync()

    def _open_log(self) -> OpenLog:
        if self._log is None:
            self._log = self._open()
            self._finalizer = weakref.finalize(self, _close_forgotten, self._log, os.getpid())
        return self._log


def _close_forgotten(log: OpenLog, pid: int) -> None:
    """Close the log of a session that was dropped without `close`."""
    if os.getpid() != pid:
        return  # a forked child: the log is its parent's
    try:
        log.close()
    except SessionError as error:
        _LOGGER.warning("A session was not closed before its event loop ended: %s", error)


class InMemorySession:
    """A session in a list."""

    def __init__(self, session_id: str = "default", agent_name: str = "agent") -> None:
        self.session_id, self.agent_name = session_id, agent_name
        self._events: list[Recorded] = []
        self._created_at = self._updated_at = 0.0

    @property
    def events(self) -> Sequence[Recorded]:
        return self._events

    def append(self, event: Recorded) -> None:
        self._updated_at = time.time()
        if not self._events:
            self._created_at = self._updated_at
        self._events.append(event)

    async def commit(self) -> None: ...

    def reset(self) -> None:
        self._events.clear()

    def close(self) -> None: ...

    def load(self) -> list[ChatMessage]:
        return messages_of(self._events)

    def save(self, messages: Iterable[object]) -> None:
        imported = imported_events(messages)
        new = new_messages(self._events, imported)
        if new is None:
            self.reset()
            new = imported
        for event in new:
            self.append(event)

    def restore(self, messages: Iterable[object], *, agent_name: str, created_at: float, updated_at: float) -> None:
        """Fill the empty session with one of CodePilot 0.9."""
        self._events.extend(imported_events(messages))
        self.agent_name, self._created_at, self._updated_at = agent_name, created_at, updated_at

    def exists(self) -> bool:
        return bool(self._events)

    def metadata(self) -> Metadata | None:
        if not self._events:
            return None
        return Metadata(
            session_id=self.session_id,
            agent_name=self.agent_name,
            created_at=self._created_at,
            updated_at=self._updated_at,
            messages=len(self.load()),
        )


_OWN_PACKAGES = (f"{__name__.partition('.')[0]}.", "filelock")
"""Packages whose frames do not count as the caller that opened a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a session; `place` is file and line that opened it."""

    pid: int
    host: str
    since: float
    place: str = ""

    @classmethod
    def current(cls) -> Self:
        frame = sys._getframe()  # noqa: SLF001 - documented, and a traceback's frames cost a hundred times as much
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_OWN_PACKAGES):
            frame = frame.f_back
        place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        return cls(pid=os.getpid(), host=socket.gethostname(), since=time.time(), place=place)

    @property
    def is_this_process(self) -> bool:
        return self.pid == os.getpid() and self.host == socket.gethostname()

    @property
    def has_died(self) -> bool:
        """Whether the process has certainly ended; False for one of another machine."""
        can_tell = self.host == socket.gethostname() and bool(start_time(os.getpid()))
        return can_tell and not start_time(self.pid)


def in_use_error(session_id: str, holder: Holder | None) -> SessionInUseError:
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


T = TypeVar("T")

Scrub = Callable[[str], str]
"""Redacts the secrets of a text."""

_FIXED_TEXTS = frozenset({"PendingKind", "Role"})
"""Annotations of fields that hold fixed words."""


def scrub_value(value: T, scrub: Scrub) -> T:
    """Scrub every text in an event or a part of one, names of arguments included; images are not changed."""
    clean: Any = value
    match value:
        case Enum() | Image():
            pass
        case str():
            clean = scrub(value)
        case list() | tuple():
            clean = type(value)(scrub_value(item, scrub) for item in value)
        case dict():
            clean = {scrub_value(key, scrub): scrub_value(item, scrub) for key, item in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            texts = (field.name for field in fields(value) if field.type not in _FIXED_TEXTS)
            clean = replace(value, **{name: scrub_value(getattr(value, name), scrub) for name in texts})
            if isinstance(value, ToolRequest):
                clean = replace(clean, arguments=_scrub_json(clean.arguments, scrub))
            if isinstance(value, Replied) and _scrub_json(clean.reasoning, scrub) != value.reasoning:
                clean = replace(clean, reasoning="")  # signed: a service refuses what was changed
        case _:
            pass
    return clean  # type: ignore[no-any-return] # what is changed keeps its type


def _scrub_json(text: str, scrub: Scrub) -> str:
    """Scrub a JSON text behind its escapes; return other texts and clean ones unchanged."""
    try:
        value = json.loads(text)
        clean = scrub_value(value, scrub)
        return text if clean == value else json.dumps(clean)
    except (ValueError, RecursionError):
        return text
