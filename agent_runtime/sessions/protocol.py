"""What every session store is: an append-only log of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime.events import Event


class Session(Protocol):
    """The history of one conversation. Whatever else a run needs to know is derived from it."""

    @property
    def events(self) -> Sequence[Event]:
        """Everything that was recorded, oldest first."""
        ...

    def append(self, event: Event) -> None:
        """Record one event; it is kept when this returns."""
        ...
