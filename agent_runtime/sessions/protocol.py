"""The protocols of sessions, and the parts that their stores share.

A `Session` is an append-only log of events; a `BaseSession` is the same as messages of role and content. A
`StoredSession` opens its `OpenLog` for one process at a time; `Holder` names that process. An `InMemorySession` lives
as long as its process. `scrubbed` takes secrets out of an event before it is recorded.
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
from agent_runtime.sessions.codec import ChatMessage, Metadata, extension, imported_events, messages_of


class Session(Protocol):
    """The history of one conversation, from which a run derives the rest of its state.

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
        """Return the facts about it; None if it is empty."""
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


class OpenLog(Protocol):
    """A log that this process alone may write to, until it is closed. Every method may raise `SessionError`.

    Attributes:
        events: everything that was recorded, oldest first.
        recovered: a note on bytes that were cut off its end when it was opened; empty for none.
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


_LOGGER = logging.getLogger(__name__)


class StoredSession(ABC):
    """A session in a store outside this process.

    Questions (`exists`, `metadata`, `list_sessions`, and `load` and `read` until the session is opened) take no lock.
    Everything else opens the session for this process alone, until `close` or until the object is no longer used.

    Attributes:
        session_id: names the conversation; any text.
        agent_name: the agent that a new session is begun with.
    """

    def __init__(self, session_id: str, agent_name: str) -> None:
        self.session_id, self.agent_name = session_id, agent_name
        self._log: OpenLog | None = None
        self._finalizer: weakref.finalize[[OpenLog, int], StoredSession] | None = None

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first.

        Raises:
            SessionError: another process works on the session, or it cannot be read; the text names which and why.
        """
        return self._open_log().events

    @property
    def recovered(self) -> str:
        """A note on bytes that were cut off the end of the log when it was opened; empty for none.

        Raises:
            SessionError: as for `events`.
        """
        return self._open_log().recovered

    def append(self, event: Recorded) -> None:
        """Record one event.

        Raises:
            SessionError: it cannot be written, or as for `events`.
        """
        self._open_log().append(event)

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
        self._open_log().remove()

    def close(self) -> None:
        """Give the store and the lock back; idempotent. Using the session again opens it again.

        Raises:
            SessionError: an event that was not committed yet cannot be written.
        """
        log, self._log = self._log, None
        if log is not None and self._finalizer is not None:
            self._finalizer.detach()
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
        """Make the conversation this one: a continuation is added, any other replaces it.

        Raises:
            SessionError: a message has another form than `role` and `content`, or it cannot be written.
        """
        log, wanted = self._open_log(), imported_events(messages)
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
        """Return the facts about the session without reading it; None if nothing was recorded.

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
        """Return the recorded events, without opening the session."""

    def _sync(self) -> None:
        """Runs in a thread, and keeps the session from being dropped meanwhile."""
        if self._log is not None:
            self._log.sync()

    def _open_log(self) -> OpenLog:
        if self._log is None:
            self._log = self._open()
            self._finalizer = weakref.finalize(self, _close_forgotten, self._log, os.getpid())
        return self._log


def _close_forgotten(log: OpenLog, pid: int) -> None:
    """Close the log of a session that nobody closed, when it is dropped or the process ends."""
    if os.getpid() != pid:
        return  # we were forked off: it is our parent's
    try:
        log.close()
    except SessionError as error:
        _LOGGER.warning("A session was not closed before its event loop ended: %s", error)


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
        """Do nothing: this session does not outlive its process."""

    def reset(self) -> None:
        """Forget the whole conversation."""
        self._events.clear()

    def close(self) -> None:
        """Do nothing."""

    def load(self) -> list[ChatMessage]:
        """The whole conversation as `role` and `content`."""
        return messages_of(self._events)

    def save(self, messages: Iterable[object]) -> None:
        """Make the conversation this one: a continuation is added, any other replaces it.

        Raises:
            SessionError: a message has another form than `role` and `content`.
        """
        wanted = imported_events(messages)
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
        """Return the facts about the session beside its messages; None if nothing was recorded."""
        if not self._events:
            return None
        return Metadata(
            session_id=self.session_id,
            agent_name=self.agent_name,
            created_at=self._created_at,
            updated_at=self._updated_at,
            messages=len(self.load()),
        )


_OURS = (f"{__name__.partition('.')[0]}.", "filelock")
"""Packages whose frames do not count as the place where a session was opened."""


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
        """Return this process, from now on."""
        frame = sys._getframe()  # noqa: SLF001 - documented, and a traceback's frames cost a hundred times as much
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_OURS):
            frame = frame.f_back
        place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        return cls(pid=os.getpid(), host=socket.gethostname(), since=time.time(), place=place)

    @property
    def is_this_process(self) -> bool:
        """Whether it is this process."""
        return self.pid == os.getpid() and self.host == socket.gethostname()

    @property
    def has_died(self) -> bool:
        """Whether the process is known to have ended; False for one of another machine."""
        can_tell = self.host == socket.gethostname() and bool(start_time(os.getpid()))
        return can_tell and not start_time(self.pid)


def in_use_error(session_id: str, holder: Holder | None) -> SessionInUseError:
    """Return the error for the second caller; `holder` is None if it is not known yet."""
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
