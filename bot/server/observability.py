"""The metrics and traces of one process.

Spans go to the metrics (`Metrics`, by Prometheus's conventions), sampled or not, and to a collector where an endpoint
is set. No metric has a label, and no exported span an attribute, with a secret or a text of strangers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from threading import Thread

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, Status, TraceState, get_current_span, set_tracer_provider
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import Attributes, AttributeValue
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.github.connection import AppSession
from bot.queue.protocols import JobIndex
from bot.queue.records import Backlog
from bot.queue.tracing import ROOT_SPAN
from bot.settings.models import Settings

_MOST_INSTALLATIONS = 100
"""Anybody can install a public App, so only the installations with the least left are listed."""

_PHASE_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_STARTS = frozenset({"sandbox start", "interpreter start"})
_TOKENS = {
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "output": "gen_ai.usage.output_tokens",
}


class Metrics(SpanProcessor):
    """Counts spans as they end, and looks the rest up when it is read.

    No label has a value that strangers choose.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        self._deliveries = counter(
            "codepilot_deliveries", "Webhook deliveries, by how they were answered.", ["outcome"]
        )
        self._attempts = counter(
            "codepilot_job_attempts", "Attempts at jobs, by the state that the job was left in.", ["state"]
        )
        self._phases = Histogram(
            "codepilot_job_phase_seconds",
            "Seconds that an attempt spent in a phase.",
            ["phase"],
            buckets=_PHASE_SECONDS,
            registry=self._registry,
        )
        self._tokens = counter("codepilot_model_tokens", "Tokens of answered model calls.", ["kind", "model"])
        self._cost = counter(
            "codepilot_model_cost_usd", "US dollars for answered model calls, where the price is known.", ["model"]
        )
        self._model_failures = counter("codepilot_model_failures", "Model calls that were not answered.", ["model"])
        self._sandbox_failures = counter("codepilot_sandbox_failures", "Sandboxes that could not be started.")
        self._jobs = gauge("codepilot_jobs", "Jobs that have not ended, by state; of all processes.", ["state"])
        self._oldest = gauge(
            "codepilot_oldest_queued_job_age_seconds",
            "Age of the oldest queued job that was never begun; 0 without one. Of all processes.",
        )
        self._store_up = gauge("codepilot_store_up", "Whether the job database answered when this was read.")
        self._left = gauge(
            "codepilot_github_rate_limit_remaining",
            "Requests that GitHub allows until its next reset, as it told this process.",
            ["installation", "resource"],
        )
        ProcessCollector(registry=self._registry)

    def answered(self, outcome: str) -> None:
        """Count a delivery."""
        self._deliveries.labels(outcome).inc()

    @override
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to count yet."""

    @override
    def on_end(self, span: ReadableSpan) -> None:
        """Count a span."""
        found, failed = span.attributes or {}, not span.status.is_ok
        if phase := found.get("codepilot.phase"):
            self._phases.labels(phase).observe(((span.end_time or 0) - (span.start_time or 0)) / 1e9)
        elif state := found.get("codepilot.job.state"):
            self._attempts.labels(state).inc()
        elif found.get("gen_ai.operation.name") == "chat":
            self._count_model(found, failed=failed)
        elif span.name in _STARTS and failed and found.get("error.type") != "CancelledError":
            self._sandbox_failures.inc()

    def _count_model(self, found: Mapping[str, AttributeValue], *, failed: bool) -> None:
        model = found["gen_ai.request.model"]
        if failed:
            self._model_failures.labels(model).inc()
        used = {kind: _number(found.get(name)) for kind, name in _TOKENS.items()}
        cached = used["cache_read"] + used["cache_write"]
        used["input"] = _number(found.get("gen_ai.usage.input_tokens")) - cached
        for kind, tokens in used.items():
            self._tokens.labels(kind, model).inc(max(0.0, tokens))
        self._cost.labels(model).inc(_number(found.get("codepilot.cost_usd")))

    async def read(self, index: JobIndex, session: AppSession) -> bytes:
        """Return all metrics, in the text format.

        Args:
            index: whose backlog is told.
            session: knows what GitHub said of its limits.
        """
        try:
            backlog = await index.backlog()
        except QueueError:
            backlog = Backlog(by_state={}, oldest_seconds=math.nan)
        # From here on nothing waits: two readers at once must not clear each other's.
        self._store_up.set(bool(backlog.by_state))
        self._oldest.set(backlog.oldest_seconds)
        self._jobs.clear()
        for state, count in backlog.by_state.items():
            self._jobs.labels(state.value).set(count)
        self._left.clear()
        told = sorted(session.budgets(), key=lambda each: each[2].remaining)[:_MOST_INSTALLATIONS]
        for installation, resource, budget in told:
            self._left.labels(installation, resource).set(budget.remaining)
        return generate_latest(self._registry)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


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
        root = ROOT_SPAN.get()
        return super().generate_span_id() if root is None else root.span_id

    @override
    def generate_trace_id(self) -> int:
        """See `IdGenerator.generate_trace_id`."""
        root = ROOT_SPAN.get()
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
