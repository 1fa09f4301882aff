"""The protocol of a model provider: messages in, chunks of text and calls out.

`Provider` is what the rest of the library asks, through `traced_reply`. The values before it are its questions and
answers. `BlockJoiner` and `ReplyParts` below help the providers to take a reply apart and to send it back.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer

from agent_runtime.core.values import Image, Plain, ToolAnswer, ToolRequest, Usage, append_requests, join_answers

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
        return join_answers(append_requests(self.text, self.requests), self.answers)


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


class WrappedProvider:
    """Base of a provider around another one, whose properties it passes on; `reply` and `close` are its own.

    Args:
        inner: the provider that is asked.
    """

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        """The inner provider's model."""
        return self._inner.model

    @property
    def sees_images(self) -> bool:
        """Whether the inner provider's model sees."""
        return self._inner.sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        """Whether the inner provider's model calls tools."""
        return tool_calling(self._inner)


_tracer = get_tracer("codepilot")


async def traced_reply(provider: Provider, request: Request) -> AsyncGenerator[Chunk]:
    """Yield `provider.reply(request)`, in a span with names and numbers, never contents.

    The conventions for generative AI: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/.

    Raises:
        ModelError: as for the provider.
    """
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": type(provider).__name__.removesuffix("Provider").lower(),
        "gen_ai.request.model": provider.model,
    }
    # Never the current one: a generator's code runs in the context of its consumer.
    span = _tracer.start_span(f"chat {provider.model}", kind=SpanKind.CLIENT, attributes=attributes)
    try:
        async with aclosing(provider.reply(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ReplyEnd):
                    span.set_attribute("gen_ai.response.model", chunk.model or provider.model)
                    _note_usage(span, chunk.usage)
                yield chunk
    except BaseException as error:  # whatever it is, it is raised again
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(StatusCode.ERROR)
        raise
    finally:
        span.end()


def _note_usage(span: Span, usage: Usage) -> None:
    cached = usage.cached_tokens + usage.cache_write_tokens
    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens + cached)
    span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
    span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    if usage.cost_usd is not None:
        span.set_attribute("codepilot.cost_usd", usage.cost_usd)


@dataclass(slots=True)
class BlockJoiner:
    """Starts every further block of text on a line of its own.

    The reply grammar is made of lines; two blocks glued together would hide a fence in the middle of one.
    """

    _block: Hashable = None
    _mid_line: bool = False

    def join(self, block: Hashable, text: str) -> str:
        """The `text` to add for a piece of `block`, with a line break before it where one is missing."""
        joint = "\n" if self._mid_line and block != self._block else ""
        if text:
            self._block, self._mid_line = block, not text.endswith("\n")
        return joint + text if text else ""


INVALID = "INVALID_JSON"
"""The key of what a model wrote that is no JSON object, where a service takes nothing else back:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming."""

Part = str | ToolRequest | dict[str, Any]
"""A piece of text, a call, or a block of the service's own."""


@dataclass(slots=True)
class ReplyParts:
    """The parts of a reply as it arrives: their order, and those that the service wants back, such as signed thoughts.

    A service that reasons between its calls wants its reasoning returned with them, in the same places, while the model
    works on one task. Only the model that wrote it can read it; another one is not sent it.
    """

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


def _kept(reasoning: str, model: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Return the blocks kept of a reply; none if its text was changed since, e.g. by taking secrets out."""
    try:
        data = json.loads(reasoning or "{}")
        if data.get("model") != model:
            return []
        return [(int(upto), int(before), dict(block)) for upto, before, block in data["kept"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def arguments_of(request: ToolRequest) -> dict[str, Any]:
    """The arguments of a call as an object that a request can carry, whatever the model wrote."""
    try:
        value = json.loads(request.arguments) if request.arguments.strip() else {}
        # Infinity, NaN and halves of characters can be read, but no client writes them into a request.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID: request.arguments}
