"""From a session's events to the messages that the model reads. Pure.

History is append-only: the messages for one request are a prefix of those for the next, byte for byte, so that
the provider's cache stays warm.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent_runtime.events import Event, Observed, Replied, Started
from agent_runtime.providers.protocol import Message


def messages(events: Iterable[Event]) -> tuple[Message, ...]:
    """The conversation so far, roles alternating, starting with `user`.

    The model's own words are never rewritten. An empty reply, which no provider accepts back, is named instead.
    """
    told: list[Message] = []
    for event in events:
        match event:
            case Started():
                _append(told, Message(role="user", text=event.opening))
            case Replied():
                _append(told, Message(role="assistant", text=event.text if event.text.strip() else "(empty reply)"))
            case Observed():
                _append(told, Message(role="user", text=event.text))
            case _:
                pass
    return tuple(told)


def _append(told: list[Message], message: Message) -> None:
    """Add a message; two in a row from the same side become one, since providers want them to alternate."""
    if told and told[-1].role == message.role:
        told[-1] = Message(role=message.role, text=f"{told[-1].text}\n\n{message.text}")
    else:
        told.append(message)
