"""Install OpenTelemetry's SDK: spans go to the metrics, and to a collector where an endpoint is set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from threading import Thread

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, Status, TraceState, get_current_span, set_tracer_provider
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import Attributes
from typing_extensions import override

from bot.engine.observed import ROOT
from bot.settings.model import Settings

_OURS = "codepilot"
_SHOWN = frozenset(
    {
        "codepilot.cost_usd",
        "codepilot.job.attempt",
        "codepilot.job.command",
        "codepilot.job.id",
        "codepilot.job.state",
        "codepilot.phase",
        "codepilot.repository.id",
        "error.type",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.tool.name",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "http.request.method",
        "http.response.status_code",
        "url.template",
    }
)
"""The attributes that are exported; none holds a secret or text of strangers."""
_CLOSING_SECONDS = 3.0


@asynccontextmanager
async def traced_process(settings: Settings, *processors: SpanProcessor) -> AsyncIterator[None]:
    """Trace what this process does while the body runs.

    Args:
        settings: the operator's.
        processors: called with every span, whether it is sampled or not.
    """
    defaults = Resource({"service.name": _OURS, "service.version": version("codepilot-bot")})
    # What the standard variables say of this service, `OTEL_SERVICE_NAME` above all.
    named = dict(Resource.create().attributes)
    if str(named.get("service.name", "")).startswith("unknown_service"):
        del named["service.name"]
    resource = defaults.merge(Resource(named))
    provider = TracerProvider(id_generator=JobIds(), resource=resource, shutdown_on_exit=False)
    provider.sampler = EverySpan(provider.sampler)
    for each in processors:
        provider.add_span_processor(each)
    if settings.otlp_endpoint is not None:
        given = settings.otlp_headers.get_secret_value() if settings.otlp_headers is not None else ""
        exporter = OTLPSpanExporter(
            endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", headers=parse_env_headers(given, liberal=True)
        )
        provider.add_span_processor(BatchSpanProcessor(SafeExporter(exporter)))
    set_tracer_provider(provider)
    try:
        yield
    finally:
        # A collector that does not answer must not hold up the end.
        closing = Thread(target=provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSING_SECONDS)


class SafeExporter(SpanExporter):
    """Exports our own spans alone, with the attributes that are known to be harmless, and without events."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send what may be sent."""
        ours = [span for span in spans if span.instrumentation_scope and span.instrumentation_scope.name == _OURS]
        return self._exporter.export([_safe(span) for span in ours]) if ours else SpanExportResult.SUCCESS

    @override
    def shutdown(self) -> None:
        """See `SpanExporter.shutdown`."""
        self._exporter.shutdown()

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See `SpanExporter.force_flush`."""
        return self._exporter.force_flush(timeout_millis)


def _safe(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={name: value for name, value in (span.attributes or {}).items() if name in _SHOWN},
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


class JobIds(RandomIdGenerator):
    """Random ids, but for the first span of a job."""

    @override
    def generate_span_id(self) -> int:
        """See `IdGenerator.generate_span_id`."""
        root = ROOT.get()
        return super().generate_span_id() if root is None else root.span_id

    @override
    def generate_trace_id(self) -> int:
        """See `IdGenerator.generate_trace_id`."""
        root = ROOT.get()
        return super().generate_trace_id() if root is None else root.trace_id


class EverySpan(Sampler):
    """Has every span made, so that metrics are whole, and those that another sampler drops not exported.

    The first span of a job may be of another process, or of a version without traces. What is directly below it is
    sampled as if it were the first: by the trace's id, every process decides alike.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    @override
    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See `Sampler.should_sample`."""
        is_first = get_current_span(parent_context).get_span_context().is_remote
        parent = Context() if is_first else parent_context
        found = self._sampler.should_sample(parent, trace_id, name, kind, attributes, links)
        if found.decision is not Decision.DROP:
            return found
        return SamplingResult(Decision.RECORD_ONLY, attributes, found.trace_state)

    @override
    def get_description(self) -> str:
        """See `Sampler.get_description`."""
        return f"EverySpan({self._sampler.get_description()})"
