"""Messages in the form of OpenAI's chat API, which models of Pygent's protocol take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCallFunction:
    """A function that is to be called, and the JSON text of its arguments."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for."""

    id: str
    type: str
    function: ToolCallFunction


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a model."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None


def parse_message(raw: object) -> Message:
    """A message from what a model gave: a `Message`, a mapping, or an object of OpenAI's client.

    Raises:
        TypeError: it is none of these, or a part of it has another form.
    """
    if isinstance(raw, Message):
        return raw
    if not isinstance(raw, Mapping):
        for name in ("model_dump", "to_dict"):
            if callable(dump := getattr(raw, name, None)):
                return parse_message(dump())
        raise TypeError(f"Unsupported message type: {type(raw)!r}; give a Message or a dictionary.")
    content = raw.get("content")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"A message's content must be a text, not {type(content).__name__}.")
    calls = [_call(each) for each in raw.get("tool_calls") or ()]
    return Message(role=str(raw.get("role", "assistant")), content=content, tool_calls=calls or None)


def as_dict(message: Message | Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is sent and kept."""
    if not isinstance(message, Message):
        return dict(message)
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": each.id,
                "type": each.type,
                "function": {"name": each.function.name, "arguments": each.function.arguments},
            }
            for each in message.tool_calls
        ]
    return told


def _call(raw: object) -> ToolCall:
    """One call.

    Raises:
        TypeError: it has another form.
    """
    function = raw.get("function") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TypeError('A tool call must be {"id": …, "type": "function", "function": {"name": …, "arguments": …}}.')
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        raise TypeError(f"The arguments of the tool call {function['name']!r} must be JSON text.")
    named = ToolCallFunction(function["name"], arguments)
    return ToolCall(str(raw.get("id") or ""), str(raw.get("type") or "function"), named)
