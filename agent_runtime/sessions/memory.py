"""A session that lives as long as its process."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.events import Event


class InMemorySession:
    """Keeps events in a list."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def events(self) -> Sequence[Event]:
        """Everything that was recorded, oldest first."""
        return self._events

    def append(self, event: Event) -> None:
        """Record one event."""
        self._events.append(event)
