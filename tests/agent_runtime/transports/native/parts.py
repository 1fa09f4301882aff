"""What tests of native tool calls share: replies with calls, and a model that keeps every request."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable

from typing_extensions import override

from agent_runtime import AsyncRuntime, Chunk, Message, Observed, Request, ScriptedProvider, ToolAnswer, ToolRequest
from agent_runtime.providers.scripted import ScriptedReply


def asks(*calls: tuple[str, object], text: str = "", stop: str = "stop") -> ScriptedReply:
    """A reply with calls: a tool's name and its arguments, or the text that stands for their JSON."""
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
    """The scripted model, which keeps every request."""

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
    """What the model was asked."""
    assert isinstance(runtime.agent.provider, Model)
    return runtime.agent.provider.requests


def answers(runtime: AsyncRuntime) -> list[ToolAnswer]:
    """Every answer that the session's steps gave."""
    return [each for event in runtime.session.events if isinstance(event, Observed) for each in event.answers]


def require_answered(messages: Iterable[Message]) -> None:
    """What every service demands: each request has its answer in the very next message, and no answer stands alone."""
    before: tuple[str, ...] = ()
    for message in messages:
        assert tuple(each.id for each in message.answers) == before
        before = tuple(each.id for each in message.requests)
        assert message.text or message.answers or message.requests
    assert before == ()
