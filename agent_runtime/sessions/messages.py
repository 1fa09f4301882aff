"""A session seen as role and content: the form in which CodePilot's sessions gave and took conversations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from agent_runtime.core.calls import with_answers, with_requests
from agent_runtime.core.errors import SessionError
from agent_runtime.core.events import MessageInjected, Observed, Recorded, Recovered, Replied, Started, Told

ChatMessage = dict[str, str]
"""`role` (`user` or `assistant`) and `content`."""


class Metadata(TypedDict):
    """What is known of a session without reading it.

    `created_at` and `updated_at` are seconds since 1970, `messages` is the length of what `load` would give.
    """

    session_id: str
    agent_name: str
    created_at: float
    updated_at: float
    messages: int


def messages_of(events: Iterable[Recorded]) -> list[ChatMessage]:
    """The whole conversation, one message an event; what was archived or summarised since is still whole here."""
    return [message for event in events if (message := message_of(event))]


def message_of(event: Recorded) -> ChatMessage | None:
    """The message that an event added to the conversation, or None."""
    match event:
        case Started(opening=text) | MessageInjected(text=text) | Recovered(text=text):
            return {"role": "user", "content": text}
        case Observed():
            return {"role": "user", "content": with_answers(event.text, event.answers)}
        case Replied():
            return {"role": "assistant", "content": with_requests(event.text, event.requests)}
        case Told(role=role, text=text):
            return {"role": role, "content": text}
        case _:
            return None


def told(messages: Iterable[object]) -> list[Told]:
    """Messages that came from elsewhere, as events.

    Raises:
        SessionError: one is no mapping with `role` (`user` or `assistant`) and `content` (text); the text says which.
    """
    events: list[Told] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise SessionError(f"message {number} is a {kind}; it must have a `role` and a `content`.")
        role, content = message.get("role"), message.get("content")
        if role not in {"user", "assistant"}:
            raise SessionError(f"message {number} has the role {role!r}; it must be 'user' or 'assistant'.")
        if not isinstance(content, str):
            raise SessionError(f"the content of message {number} is a {type(content).__name__}; it must be text.")
        events.append(Told(role=role, text=content))
    return events


def extension(known: Iterable[Recorded], events: Sequence[Told]) -> Sequence[Told] | None:
    """What `events` say after all that is `known`; None when they do not begin with it."""
    old, new = messages_of(known), messages_of(events)
    return events[len(old) :] if new[: len(old)] == old else None
