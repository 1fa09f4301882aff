"""The protocol of model providers: messages in, chunks out.

Call `Provider` through `traced_reply`. `BlockJoiner` and `ReplyParts` help to implement one.
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
"""`length`: the token limit was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; a user's `answers` precede its text, an assistant's `requests` follow it."""

    role: Literal["user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()
    requests: tuple[ToolRequest, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    reasoning: str = ""

    @property
    def full_text(self) -> str:
        """Text with requests and answers, without images."""
        return join_answers(append_requests(self.text, self.requests), self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool's declaration; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a model.

    Attributes:
        system: stable in a session for the provider's cache, like `tools`.
        messages: append-only, from `user` to `user`.
        status: volatile text after the last message, outside the cache.
        child: from a delegated task; for recordings.
    """

    system: str
    messages: tuple[Message, ...]
    status: str = ""
    tools: tuple[ToolSchema, ...] = ()
    child: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """More text of the reply."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChunk:
    """Part of a call; calls may interleave. `id` and `name` are in the first chunk."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStart:
    """A new attempt; discard the text of earlier ones."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFault:
    """A failed attempt; or, right before the end, lost usage of a complete reply.

    Attributes:
        billed: the service probably charges.
        silent: read timeout; counts as billed.
        wait: seconds until the next attempt, if any.
    """

    reason: str
    billed: bool = False
    silent: bool = False
    wait: float | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """The last chunk of a complete reply; `reasoning` is opaque data to send back."""

    stop: StopReason
    usage: Usage
    model: str = ""
    reasoning: str = ""


Piece = TextChunk | CallChunk | ReplyEnd

Chunk = ReplyStart | Piece | ReplyFault

ToolCalling = Literal["unsupported", "supported", "preferred"]


class Provider(Protocol):
    """A model service."""

    @property
    def model(self) -> str: ...

    @property
    def sees_images(self) -> bool:
        """Whether messages may hold images; constant."""

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Answer one request: `ReplyStart`, `TextChunk` and `CallChunk`…, `ReplyEnd`.

        Retries transient failures, each with a `ReplyFault` and a new `ReplyStart`.

        Raises:
            ModelOutageError: all attempts failed; try later.
            ModelUnreachableError: its replies cannot be read.
            ModelRejectedError: permanent refusal.
            ContextOverflowError: conversation too long.
            ModelRefusedError: the model declined.
        """

    async def close(self) -> None: ...


@runtime_checkable
class CallsTools(Protocol):
    """A provider that supports `Request.tools` and `CallChunk`."""

    @property
    def tool_calling(self) -> ToolCalling:
        """Support of native tool calls; constant."""


def tool_calling(provider: Provider) -> ToolCalling:
    return provider.tool_calling if isinstance(provider, CallsTools) else "unsupported"


class WrappedProvider:
    """Base class of a provider that delegates to another."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def sees_images(self) -> bool:
        return self._inner.sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        return tool_calling(self._inner)


_tracer = get_tracer("codepilot")


async def traced_reply(provider: Provider, request: Request) -> AsyncGenerator[Chunk]:
    """Yield the reply within a span that has names and numbers, but no contents.

    https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
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
                    _record_usage(span, chunk.usage)
                yield chunk
    except BaseException as error:  # whatever it is, it is raised again
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(StatusCode.ERROR)
        raise
    finally:
        span.end()


def _record_usage(span: Span, usage: Usage) -> None:
    cached = usage.cached_tokens + usage.cache_write_tokens
    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens + cached)
    span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
    span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    if usage.cost_usd is not None:
        span.set_attribute("codepilot.cost_usd", usage.cost_usd)


@dataclass(slots=True)
class BlockJoiner:
    """Starts each text block on a new line, since the reply grammar is line-based."""

    _block: Hashable = None
    _mid_line: bool = False

    def join(self, block: Hashable, text: str) -> str:
        """Return the text, after a line break if a new block needs one."""
        separator = "\n" if self._mid_line and block != self._block else ""
        if text:
            self._block, self._mid_line = block, not text.endswith("\n")
        return separator + text if text else ""


INVALID = "INVALID_JSON"
"""Key for arguments that are no JSON object, as services require objects:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming.
"""

Part = str | ToolRequest | dict[str, Any]


@dataclass(slots=True)
class ReplyParts:
    """Collects a reply's parts in order. Reasoning goes back between its calls, to the same model only."""

    model: str
    _chars: int = 0
    _calls: dict[str, int] = field(default_factory=dict)
    _blocks: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)

    def add_text(self, text: str) -> str:
        """Count text and return it."""
        self._chars += len(text)
        return text

    def add_call(self, key: object, *, id_: object = "", name: object = "", arguments: object = "") -> CallChunk:
        """Return a chunk of the call `key`; some servers send other types than text."""
        index = self._calls.setdefault(str(key), len(self._calls))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str) if arguments else ""
        return CallChunk(index=index, id=str(id_ or ""), name=str(name or ""), arguments=text)

    def add_block(self, block: dict[str, Any]) -> None:
        self._blocks.append((self._chars, len(self._calls), block))

    @property
    def reasoning(self) -> str:
        if not (self._blocks and self._calls):
            return ""
        return json.dumps({"model": self.model, "kept": self._blocks}, ensure_ascii=False)


def split_parts(message: Message, model: str) -> list[Part]:
    """Return a reply's parts in order, without other models' blocks."""
    parts, chars, calls = list[Part](), 0, 0
    for upto, before, block in _decode_blocks(message.reasoning, model):
        parts += [text for text in [message.text[chars:upto]] if text.strip()]
        parts += message.requests[calls:before]
        parts.append(block)
        chars, calls = max(chars, upto), max(calls, before)
    parts += [text for text in [message.text[chars:]] if text.strip()]
    parts += message.requests[calls:]
    while parts and isinstance(parts[-1], dict):  # what it led to was cut off, and services refuse it alone
        parts.pop()
    return parts


def has_blocks(message: Message, model: str) -> bool:
    return bool(_decode_blocks(message.reasoning, model))


def _decode_blocks(reasoning: str, model: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Return a reply's blocks; none if invalid, e.g. after redaction."""
    try:
        data = json.loads(reasoning or "{}")
        if data.get("model") != model:
            return []
        return [(int(upto), int(before), dict(block)) for upto, before, block in data["kept"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def parse_arguments(request: ToolRequest) -> dict[str, Any]:
    """Return a call's arguments as a serialisable object."""
    try:
        value = json.loads(request.arguments) if request.arguments.strip() else {}
        # Infinity, NaN and halves of characters can be read, but no client writes them into a request.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID: request.arguments}
