from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agent_runtime import Chunk, Message, ModelRejectedError, ReplyEnd, ReplyStart, Request, TextChunk, Usage, traced
from agent_runtime.processes import spawn
from agent_runtime.providers import protocol as traced_module
from agent_runtime.providers.protocol import traced_reply

CONTENT = "what a person wrote"
USAGE = Usage(requests=1, input_tokens=10, cached_tokens=60, cache_write_tokens=30, output_tokens=7, cost_usd=0.25)


class _Model:
    """A model that answers or fails."""

    model, sees_images = "m-1", False

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        yield ReplyStart(attempt=1)
        if self._error is not None:
            raise self._error
        yield TextChunk(text=request.messages[0].text)
        yield ReplyEnd(stop="stop", usage=USAGE, model="m-2")

    async def close(self) -> None:
        pass


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (spawn, traced_module):
        monkeypatch.setattr(module, "_tracer", provider.get_tracer("codepilot"))
    return exporter


async def _asked(model: _Model) -> list[Chunk]:
    request = Request(system=CONTENT, messages=(Message(role="user", text=CONTENT),))
    async with aclosing(traced_reply(model, request)) as chunks:
        return [chunk async for chunk in chunks]


def _single_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    assert CONTENT not in span.to_json()
    return span


async def test_a_model_call_is_a_span_by_the_conventions_for_generative_ai(exporter: InMemorySpanExporter) -> None:
    assert len(await _asked(_Model())) == 3
    span = _single_span(exporter)
    assert (span.name, span.kind) == ("chat m-1", SpanKind.CLIENT)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_model",
        "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-2",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "codepilot.cost_usd": 0.25,
    }


async def test_the_span_of_a_failed_call_has_the_error_class_and_no_contents(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ModelRejectedError):
        await _asked(_Model(ModelRejectedError(CONTENT)))
    span = _single_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ModelRejectedError"


def test_a_span_records_the_class_of_an_error(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match=CONTENT), traced("git fetch"):
        raise ValueError(CONTENT)
    span = _single_span(exporter)
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert not span.events
