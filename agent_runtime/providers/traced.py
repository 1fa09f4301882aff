"""Trace model calls by the conventions for generative AI: names and numbers, never contents.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer

from agent_runtime.core.outcome import Usage
from agent_runtime.providers.protocol import Chunk, Provider, ReplyEnd, Request

_tracer = get_tracer("codepilot")


async def traced_reply(provider: Provider, request: Request) -> AsyncGenerator[Chunk]:
    """`provider.reply(request)`, in a span.

    Raises:
        ModelError: as for the provider.
    """
    attributes = {
        "gen_ai.operation.name": "chat",
        # A service is a module.
        "gen_ai.provider.name": type(provider).__module__.rpartition(".")[2],
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
