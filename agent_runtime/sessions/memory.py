"""A session that lives as long as its process."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.events import Recorded


class InMemorySession:
    """Keeps events in a list."""

    def __init__(self, session_id: str = "default") -> None:
        self.session_id = session_id
        self._events: list[Recorded] = []

    @property
    def events(self) -> Sequence[Recorded]:
        """Everything that was recorded, oldest first."""
        return self._events

    def append(self, event: Recorded) -> None:
        """Record one event."""
        self._events.append(event)

    async def commit(self) -> None:
        """Nothing is to be done: this session is not meant to outlive its process."""

    def reset(self) -> None:
        """Forget the whole conversation."""
        self._events.clear()

    def close(self) -> None:
        """Nothing is to be given back."""
