"""Models of Pygent's protocol that reply by a script."""

from __future__ import annotations

import json
from typing import Any

from agent_runtime.compat.pygent.models import Message, ToolCall, ToolCallFunction


def calls(*requests: tuple[str, dict[str, Any]], text: str | None = None) -> Message:
    """A reply that asks for these calls."""
    return Message(
        role="assistant",
        content=text,
        tool_calls=[
            ToolCall(id=f"call_{number}", type="function", function=ToolCallFunction(name, json.dumps(arguments)))
            for number, (name, arguments) in enumerate(requests)
        ],
    )


class ScriptedModel:
    """Gives prepared replies in order; one that is a function is called first.

    Attributes:
        requests: the messages of each request.
        tools: the names of the tools in the last one.
        name: the model's name in the last one.
    """

    def __init__(self, *replies: object) -> None:
        self.replies = [*replies]
        self.requests: list[list[dict[str, Any]]] = []
        self.tools: list[str] = []
        self.name = ""

    def chat(self, messages: list[dict[str, Any]], model: str, tools: list[dict[str, Any]]) -> object:
        self.requests.append(messages)
        self.tools, self.name = [each["function"]["name"] for each in tools], model
        reply = self.replies.pop(0)
        return reply() if callable(reply) else reply
