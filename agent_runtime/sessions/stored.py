"""The parts shared by sessions that outlive their process."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from agent_runtime.core.errors import SessionError
from agent_runtime.core.events import Recorded
from agent_runtime.sessions.messages import ChatMessage, Metadata, extension, messages_of, told

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
