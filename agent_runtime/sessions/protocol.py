"""The protocols of a session store: an append-only log of events, and the same as messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from agent_runtime.core.events import Recorded
from agent_runtime.sessions.messages import ChatMessage, Metadata


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
