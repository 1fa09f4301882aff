"""The order of a reply's parts, and those that its service wants back unchanged, such as signed thoughts. Pure.

A service that reasons between its calls wants its reasoning returned with them, in the same places, while the model
works on one task. Only the model that wrote it can read it; another one is not sent it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.core.calls import ToolRequest
from agent_runtime.providers.protocol import CallChunk, Message

INVALID = "INVALID_JSON"
"""The key of what a model wrote that is no JSON object, where a service takes nothing else back:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming."""

Part = str | ToolRequest | dict[str, Any]
"""A piece of text, a call, or a block of the service's own."""


@dataclass(slots=True)
class ReplyParts:
    """The parts of a reply as it arrives."""

    model: str
    _chars: int = 0
    _calls: dict[str, int] = field(default_factory=dict)
    _kept: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)

    def text(self, text: str) -> str:
        """Count a piece of text; it comes back as it is."""
        self._chars += len(text)
        return text

    def call(self, key: object, *, id_: object = "", name: object = "", arguments: object = "") -> CallChunk:
        """The chunk for a piece of the call that the service knows as `key`; some servers give what is no text."""
        index = self._calls.setdefault(str(key), len(self._calls))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str) if arguments else ""
        return CallChunk(index=index, id=str(id_ or ""), name=str(name or ""), arguments=text)

    def keep(self, block: dict[str, Any]) -> None:
        """Keep a block of the service's own in its place."""
        self._kept.append((self._chars, len(self._calls), block))

    @property
    def reasoning(self) -> str:
        """See `ReplyEnd.reasoning`; empty where nothing was kept or called."""
        if not (self._kept and self._calls):
            return ""
        return json.dumps({"model": self.model, "kept": self._kept}, ensure_ascii=False)


def parts_of(message: Message, model: str) -> list[Part]:
    """A message of the model's in the order in which it came; blocks of another model are left out."""
    parts, chars, calls = list[Part](), 0, 0
    for upto, before, block in _kept(message.reasoning, model):
        parts += [text for text in [message.text[chars:upto]] if text.strip()]
        parts += message.requests[calls:before]
        parts.append(block)
        chars, calls = max(chars, upto), max(calls, before)
    parts += [text for text in [message.text[chars:]] if text.strip()]
    parts += message.requests[calls:]
    while parts and isinstance(parts[-1], dict):  # what it led to was cut off, and services refuse it alone
        parts.pop()
    return parts


def has_kept(message: Message, model: str) -> bool:
    """Whether blocks of this model's own are in a message."""
    return bool(_kept(message.reasoning, model))


def arguments_of(request: ToolRequest) -> dict[str, Any]:
    """The arguments of a call as an object that a request can carry, whatever the model wrote."""
    try:
        value = json.loads(request.arguments) if request.arguments.strip() else {}
        # Infinity, NaN and halves of characters can be read, but no client writes them into a request.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID: request.arguments}


def _kept(reasoning: str, model: str) -> list[tuple[int, int, dict[str, Any]]]:
    """What was kept of a reply; nothing where its text was changed since, e.g. by taking secrets out."""
    try:
        told = json.loads(reasoning or "{}")
        if told.get("model") != model:
            return []
        return [(int(upto), int(before), dict(block)) for upto, before, block in told["kept"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []
