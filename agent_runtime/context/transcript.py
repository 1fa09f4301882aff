"""From a session's events to the messages that the model reads. Pure.

History is append-only: the messages for one request are a prefix of those for the next, byte for byte, so that
the provider's cache stays warm.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.events import Event, Observed, Replied, Started
from agent_runtime.providers.protocol import Message


class Transcript:
    """The conversation that a growing log tells; each event is rendered once, so that late steps cost no more."""

    def __init__(self) -> None:
        self._told: list[Message] = []
        self._taken = 0

    def messages(self, events: Sequence[Event]) -> tuple[Message, ...]:
        """The conversation so far, roles alternating, starting with `user`.

        The model's own words are never rewritten. An empty reply, which no provider accepts back, is named instead.

        Args:
            events: the log from its beginning; what an earlier call saw of it is unchanged.
        """
        for event in events[self._taken :]:
            match event:
                case Started():
                    self._add(Message(role="user", text=event.opening))
                case Replied():
                    text = event.text if event.text.strip() else "(empty reply)"
                    self._add(Message(role="assistant", text=text))
                case Observed():
                    self._add(Message(role="user", text=event.text))
                case _:
                    pass
        self._taken = len(events)
        return tuple(self._told)

    def _add(self, message: Message) -> None:
        """Add a message; two in a row from the same side become one, since providers want them to alternate."""
        told = self._told
        if told and told[-1].role == message.role:
            told[-1] = Message(role=message.role, text=f"{told[-1].text}\n\n{message.text}")
        else:
            told.append(message)


def messages(events: Sequence[Event]) -> tuple[Message, ...]:
    """The conversation that a log tells; see `Transcript`."""
    return Transcript().messages(events)
