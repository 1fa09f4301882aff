"""Helpers for tests of native tool calls: replies with calls, and a recording model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable

from typing_extensions import override

from agent_runtime import AsyncRuntime, Chunk, Message, Observed, Request, ScriptedProvider, ToolAnswer, ToolRequest
from agent_runtime.providers.scripted import ScriptedReply


def asks(*calls: tuple[str, object], text: str = "", stop: str = "stop") -> ScriptedReply:
    """Return a reply with calls: a tool's name and its arguments, or their JSON text."""
    return ScriptedReply(
        text=text,
        stop=stop,  # type: ignore[arg-type] # one of the two words
        calls=tuple(
            ToolRequest(id=f"c{number}", name=name, arguments=given if isinstance(given, str) else json.dumps(given))
            for number, (name, given) in enumerate(calls)
        ),
    )


def finish(summary: str = "Done.") -> tuple[str, object]:
    return ("finish", {"summary": summary})


class Model(ScriptedProvider):
    """Scripted model that records requests."""

    def __init__(
        self, replies: Iterable[str | ScriptedReply], *, chunk_chars: int = 16, sees_images: bool = False
    ) -> None:
        super().__init__(replies, chunk_chars=chunk_chars, sees_images=sees_images)
        self.requests: list[Request] = []

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        require_answered(request.messages)
        return super().reply(request)


def requests_of(runtime: AsyncRuntime) -> list[Request]:
    """Return the requests of a run."""
    assert isinstance(runtime.agent.provider, Model)
    return runtime.agent.provider.requests


def answers(runtime: AsyncRuntime) -> list[ToolAnswer]:
    """Return all answers in the session."""
    return [each for event in runtime.session.events if isinstance(event, Observed) for each in event.answers]


def require_answered(messages: Iterable[Message]) -> None:
    """Check the rule of every service: the next message answers each request, and nothing else."""
    before: tuple[str, ...] = ()
    for message in messages:
        assert tuple(each.id for each in message.answers) == before
        before = tuple(each.id for each in message.requests)
        assert message.text or message.answers or message.requests
    assert before == ()
