"""Shared helpers of provider tests: conversations, providers and collected replies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from agent_runtime.core.values import Image
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    TextChunk,
)
from agent_runtime.providers.retry import RetryPolicy
from tests.model_server import ModelServer, Wire

WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat")
KEY = "sk-made-up-0123456789abcdef"
MODELS: dict[Wire, str] = {"anthropic": "claude-sonnet-5-5", "responses": "gpt-6.2-sol", "chat": "gpt-6.2-sol"}


def conversation(steps: int = 1, *, status: str = "", images: tuple[Image, ...] = ()) -> Request:
    """Build a conversation at step `steps`, with images in its first message."""
    messages = [Message(role="user", text="Fix the bug.", images=images)]
    for step in range(1, steps):
        messages.append(Message(role="assistant", text=f"Step {step}.\n```codepilot\nfind('x')\n```\n"))
        messages.append(Message(role="user", text=f"Result {step}: é 🐛"))
    return Request(system="You repair programs.", messages=tuple(messages), status=status)


@dataclass
class Naps:
    """A recording replacement of `asyncio.sleep`."""

    seconds: list[float] = field(default_factory=list)
    attempts: int = 3

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def retry(self, **changes: float) -> RetryPolicy:
        policy = RetryPolicy(attempts=self.attempts, sleep=self.sleep, chance=lambda: 1.0)
        return replace(policy, **changes)  # type: ignore[arg-type]  # the tests change numbers only


def provider_on(
    server: ModelServer, wire: Wire, options: ModelOptions | None = None, model: str | None = None
) -> Provider:
    """Create the provider for a wire format and server."""
    return provider_at(server.url_anthropic, wire, options, model)


def provider_at(url: str, wire: Wire, options: ModelOptions | None = None, model: str | None = None) -> Provider:
    """Create the provider for a wire format and the address of a server."""
    options = options or ModelOptions(retry=Naps().retry())
    if wire == "anthropic":
        return provider_for("anthropic", model=model, api_key=KEY, base_url=url, options=options)
    options = replace(options, api="responses") if wire == "responses" else options
    return provider_for("openai", model=model, api_key=KEY, base_url=f"{url}/v1", options=options)


@dataclass
class Collected:
    """A complete reply."""

    text: str = ""
    attempts: int = 0
    voided: list[str] = field(default_factory=list)
    faults: list[ReplyFault] = field(default_factory=list)
    end: ReplyEnd | None = None
    calls: list[CallChunk] = field(default_factory=list)


async def collect(chunks: AsyncIterator[Chunk], reply: Collected | None = None) -> Collected:
    """Collect a reply's chunks, into `reply` if given; a new start discards earlier text."""
    reply = reply or Collected()
    async for chunk in chunks:
        assert reply.end is None, "nothing may follow the end"
        match chunk:
            case ReplyStart(attempt=attempt):
                if reply.attempts:
                    reply.voided.append(reply.text)
                reply.text, reply.calls, reply.attempts = "", [], attempt
            case TextChunk(text=text):
                assert text
                reply.text += text
            case CallChunk():
                reply.calls.append(chunk)
            case ReplyFault():
                reply.faults.append(chunk)
            case ReplyEnd():
                reply.end = chunk
    return reply


async def ask(
    server: ModelServer,
    wire: Wire,
    request: Request | None = None,
    options: ModelOptions | None = None,
    *,
    model: str | None = None,
) -> Collected:
    """Send one request on `wire` and close the provider."""
    provider = provider_on(server, wire, options, model)
    try:
        return await collect(provider.reply(request or conversation()))
    finally:
        await provider.close()
