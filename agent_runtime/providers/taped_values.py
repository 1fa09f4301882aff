"""Messages, tools and chunks as the JSON of a recording, and back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from agent_runtime.core.calls import ToolAnswer, ToolRequest
from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    TextChunk,
    ToolSchema,
)


def packed_message(message: Message) -> list[object]:
    """A message as JSON."""
    images = [asdict(image) for image in message.images]
    calls = {
        "requests": [asdict(each) for each in message.requests],
        "answers": [asdict(each) for each in message.answers],
        "reasoning": message.reasoning,
    }
    if any(calls.values()):
        return [message.role, message.text, images, calls]
    return [message.role, message.text, *([images] if images else [])]


def unpacked_message(
    role: str, text: str, images: Sequence[Mapping[str, Any]] = (), calls: Mapping[str, Any] | None = None
) -> Message:
    """The message that `packed_message` gave.

    Raises:
        TypeError: it is none; or KeyError or ValueError.
    """
    told: Mapping[str, Any] = {"requests": (), "answers": (), "reasoning": ""} if calls is None else calls
    return Message(
        role=_role(role),
        text=str(text),
        images=tuple(Image(**image) for image in images),
        requests=tuple(ToolRequest(**each) for each in told["requests"]),
        answers=tuple(unpacked_answer(each) for each in told["answers"]),
        reasoning=str(told["reasoning"]),
    )


def unpacked_answer(answer: Mapping[str, Any]) -> ToolAnswer:
    """The answer to a call that `asdict` gave."""
    return ToolAnswer(**{**answer, "images": tuple(Image(**image) for image in answer["images"])})


def unpacked_tool(tool: Mapping[str, Any]) -> ToolSchema:
    """The declaration that `asdict` gave."""
    return ToolSchema(**tool)


def packed_chunk(chunk: Chunk) -> list[object]:
    """A chunk as JSON."""
    match chunk:
        case ReplyStart():
            return ["start", chunk.attempt]
        case TextChunk():
            return ["text", chunk.text]
        case CallChunk():
            return ["call", chunk.index, chunk.id, chunk.name, chunk.arguments]
        case ReplyFault():
            return ["fault", asdict(chunk)]
        case ReplyEnd():
            reasoning = [chunk.reasoning] if chunk.reasoning else []
            return ["end", chunk.stop, asdict(chunk.usage), chunk.model, *reasoning]


def unpacked_chunk(kind: str, *rest: Any) -> Chunk:  # noqa: ANN401 - JSON
    """The chunk that `packed_chunk` gave.

    Raises:
        KeyError: there is no such chunk; or TypeError or ValueError.
    """
    return _UNPACKED[kind](*rest)


def whole_calls(chunks: Sequence[Chunk]) -> list[CallChunk]:
    """The calls among chunks, in their order and in one piece each."""
    pieces: dict[int, list[CallChunk]] = {}
    for chunk in chunks:
        if isinstance(chunk, CallChunk):
            pieces.setdefault(chunk.index, []).append(chunk)
    return [
        CallChunk(
            index=index,
            id=next((each.id for each in found if each.id), ""),
            name=next((each.name for each in found if each.name), ""),
            arguments="".join(each.arguments for each in found),
        )
        for index, found in sorted(pieces.items())
    ]


def _role(role: str) -> Literal["user", "assistant"]:
    match role:
        case "user" | "assistant":
            return role
        case _:
            raise ValueError(f"unknown role {role!r}")


_UNPACKED: Mapping[str, Callable[..., Chunk]] = {
    "start": lambda attempt: ReplyStart(attempt=attempt),
    "text": lambda text: TextChunk(text=text),
    "call": lambda index, id_, name, arguments: CallChunk(index=index, id=id_, name=name, arguments=arguments),
    "fault": lambda fault: ReplyFault(**fault),
    "end": lambda stop, usage, model, reasoning="": ReplyEnd(
        stop=stop, usage=Usage(**usage), model=model, reasoning=reasoning
    ),
}
