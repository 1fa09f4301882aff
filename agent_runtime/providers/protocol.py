"""The protocol of a model provider: messages in, chunks of text and calls out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from agent_runtime.core.calls import Plain, ToolAnswer, ToolRequest, with_answers, with_requests
from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage

StopReason = Literal["stop", "length"]
"""Why a reply ended: by itself, or because the token limit was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the conversation.

    Attributes:
        role: who says it.
        text: what is said.
        images: pictures beside the text, of a message of `user`; only for a provider that sees.
        requests: the calls that a message of `assistant` asks for, behind its text.
        answers: to all requests of the message before, of a message of `user`; they stand before its text, which may be
            empty then.
        reasoning: of a message of `assistant`: what its `ReplyEnd` brought.
    """

    role: Literal["user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()
    requests: tuple[ToolRequest, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    reasoning: str = ""

    @property
    def worded(self) -> str:
        """The message as one text, without its images."""
        return with_answers(with_requests(self.text, self.requests), self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as it is declared to a service.

    Attributes:
        name: how the model calls it.
        description: what it does.
        parameters: the JSON schema of an object with its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model.

    Attributes:
        system: the system prompt; byte-stable for a session so that the provider's cache stays warm.
        messages: the conversation, oldest first; append-only for the same reason. Starts and ends with `user`.
        status: a short text that changes with every request (time, step counter). It is sent after the last
            message and is never part of the cached prefix.
        tools: what the model may call by the service's own tool calls, only for a provider that `CallsTools`; as
            stable as `system`.
        child: whether the run of a delegated task asks. No service is told; a recording keeps such requests apart.
    """

    system: str
    messages: tuple[Message, ...]
    status: str = ""
    tools: tuple[ToolSchema, ...] = ()
    child: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """Some more text of the reply, of any length."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChunk:
    """A piece of a call that the model asks for; the pieces of several calls may come by turns.

    Attributes:
        index: which of the reply's calls, from 0 in their order.
        id: see `ToolRequest`; is in the first piece, and may be empty where the service gives none.
        name: of the tool; is in the first piece.
        arguments: some more of their JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStart:
    """A (new) attempt begins: whatever text came before it, from an attempt that broke off, is void."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFault:
    """The attempt under way has failed; or, right before the end, what a whole reply used was lost.

    Attributes:
        reason: what went wrong, for people.
        billed: whether the service has probably charged for it: it took the request and began to work on it.
        silent: whether it took the request and then said nothing for too long; such an attempt counts as billed.
        wait: seconds until the next attempt; None when there is none.
        model: the model that was asked, where that may be another than the provider's `model`; else empty.
    """

    reason: str
    billed: bool = False
    silent: bool = False
    wait: float | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """The reply is complete; always the last chunk.

    Attributes:
        stop: why it ended.
        usage: what it used, at the prices of the model that gave it.
        model: the model that gave it, where that may be another than the provider's `model`; else empty.
        reasoning: what the service wants back with this reply while the model works with tools, such as signed
            thoughts; only the provider that gave it reads it.
    """

    stop: StopReason
    usage: Usage
    model: str = ""
    reasoning: str = ""


Piece = TextChunk | CallChunk | ReplyEnd
"""What an attempt at a reply consists of."""

Chunk = ReplyStart | Piece | ReplyFault

ToolCalling = Literal["unsupported", "supported", "preferred"]
"""Whether a model can be spoken to by its service's own tool calls, and whether it is by default."""


class Provider(Protocol):
    """A model service.

    Attributes:
        model: the model's name, as the service knows it.
        sees_images: whether messages may hold images.
    """

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        ...

    @property
    def sees_images(self) -> bool:
        """Whether messages may hold images: True when the model is known to see, or said to; always the same."""
        ...

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Answer one request: `ReplyStart`, `TextChunk` and `CallChunk`…, `ReplyEnd`.

        A dropped connection, an early end without a stop reason, an overload or a rate limit is tried again
        inside (each failure told by a `ReplyFault`, each attempt announced by a `ReplyStart`), so retries never cost
        the run a step.

        Raises:
            ModelOutageError: every attempt failed, and the service may be asked again later.
            ModelUnreachableError: every attempt failed, and asking on would only cost more.
            ModelRejectedError: the service refused for good.
            ContextOverflowError: the conversation is too long for the model.
            ModelRefusedError: the model declined.
        """
        ...

    async def close(self) -> None:
        """Give back connections; idempotent."""
        ...


@runtime_checkable
class CallsTools(Protocol):
    """A provider that sends `Request.tools`, and gives `CallChunk`s; others need not know of either."""

    @property
    def tool_calling(self) -> ToolCalling:
        """Whether its model calls tools; always the same."""
        ...


def tool_calling(provider: Provider) -> ToolCalling:
    """Whether a provider's model calls tools through its service."""
    return provider.tool_calling if isinstance(provider, CallsTools) else "unsupported"
