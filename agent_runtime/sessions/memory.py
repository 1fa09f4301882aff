"""A session that lives as long as its process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from agent_runtime.core.events import Recorded
from agent_runtime.sessions.messages import ChatMessage, Metadata, extension, messages_of, told


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
