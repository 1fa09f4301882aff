"""Metrics and traces of a process.

Metrics count every span, sampled or not. Labels and exported attributes contain no secrets and no strangers' text.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
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
from bot.queue.ledger import DurableSpending
from bot.queue.protocols import JobIndex
from bot.queue.records import Backlog
from bot.queue.tracing import ROOT_SPAN
from bot.settings.models import Settings

_MAX_INSTALLATIONS = 100
"""Maximum number of installations in a metric, lowest limits first: anybody can install a public App."""

_PHASE_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_START_SPANS = frozenset({"sandbox start", "interpreter start"})
_REFUSALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_TOKENS = {
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "output": "gen_ai.usage.output_tokens",
}


class Metrics(SpanProcessor):
    """Prometheus metrics, counted from spans and read on request."""

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
        self._app_refusals = counter(
            "codepilot_github_app_refusals", "Requests as the App that GitHub refused, by HTTP status.", ["status"]
        )
        self._jobs = gauge("codepilot_jobs", "Jobs that have not ended, by state; of all processes.", ["state"])
        self._oldest = gauge(
            "codepilot_oldest_queued_job_age_seconds",
            "Age of the oldest queued job that was never begun; 0 without one. Of all processes.",
        )
        self._store_up = gauge("codepilot_store_up", "Whether the job database answered when this was read.")
        self._remaining = gauge(
            "codepilot_github_rate_limit_remaining",
            "GitHub API requests remaining in the current rate-limit window.",
            ["installation", "resource"],
        )
        self._month_cost = gauge(
            "codepilot_repository_month_cost_usd",
            "US dollars of known cost since the month began (UTC); the 100 highest.",
            ["repository_id"],
        )
        ProcessCollector(registry=self._registry)

    def count_delivery(self, outcome: str) -> None:
        self._deliveries.labels(outcome).inc()

    @override
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing."""

    @override
    def on_end(self, span: ReadableSpan) -> None:
        attributes, failed = span.attributes or {}, not span.status.is_ok
        if phase := attributes.get("codepilot.phase"):
            self._phases.labels(phase).observe(((span.end_time or 0) - (span.start_time or 0)) / 1e9)
        elif state := attributes.get("codepilot.job.state"):
            self._attempts.labels(state).inc()
        elif attributes.get("gen_ai.operation.name") == "chat":
            self._count_model(attributes, failed=failed)
        elif span.name in _START_SPANS and failed and attributes.get("error.type") != "CancelledError":
            self._sandbox_failures.inc()
        elif attributes.get("url.template") == "/app" and attributes.get("http.response.status_code") in _REFUSALS:
            self._app_refusals.labels(attributes["http.response.status_code"]).inc()

    def _count_model(self, attributes: Mapping[str, AttributeValue], *, failed: bool) -> None:
        model = attributes["gen_ai.request.model"]
        if failed:
            self._model_failures.labels(model).inc()
        used = {kind: _number(attributes.get(name)) for kind, name in _TOKENS.items()}
        cached = used["cache_read"] + used["cache_write"]
        used["input"] = _number(attributes.get("gen_ai.usage.input_tokens")) - cached
        for kind, tokens in used.items():
            self._tokens.labels(kind, model).inc(max(0.0, tokens))
        self._cost.labels(model).inc(_number(attributes.get("codepilot.cost_usd")))

    async def render(self, index: JobIndex, session: AppSession, spending: DurableSpending | None = None) -> bytes:
        costs: Mapping[int, float] = {}
        try:
            backlog = await index.backlog()
            costs = {} if spending is None else await spending.month_costs()
        except QueueError:
            backlog = Backlog(by_state={}, oldest_seconds=math.nan)
        # No await from here on, so that concurrent requests do not mix.
        self._store_up.set(bool(backlog.by_state))
        self._oldest.set(backlog.oldest_seconds)
        self._jobs.clear()
        for state, count in backlog.by_state.items():
            self._jobs.labels(state.value).set(count)
        self._month_cost.clear()
        for repository, cost in costs.items():
            self._month_cost.labels(repository).set(cost)
        self._remaining.clear()
        budgets = sorted(session.budgets(), key=lambda entry: entry[2].remaining)[:_MAX_INSTALLATIONS]
        for installation, resource, budget in budgets:
            self._remaining.labels(installation, resource).set(budget.remaining)
        return generate_latest(self._registry)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_SCOPE_NAME = "codepilot"

_EXPORTED_ATTRIBUTES = frozenset(
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
"""Exported attributes, without secrets and strangers' text."""

_CLOSING_SECONDS = 3.0


@asynccontextmanager
async def trace_process(settings: Settings, *processors: SpanProcessor) -> AsyncIterator[None]:
    """Trace the process during the body; `processors` receive all spans, sampled or not."""
    defaults = Resource({"service.name": _SCOPE_NAME, "service.version": version("codepilot-bot")})
    # From `OTEL_SERVICE_NAME` and other standard variables.
    environment_attributes = dict(Resource.create().attributes)
    if str(environment_attributes.get("service.name", "")).startswith("unknown_service"):
        del environment_attributes["service.name"]
    resource = defaults.merge(Resource(environment_attributes))
    provider = TracerProvider(id_generator=JobIds(), resource=resource, shutdown_on_exit=False)
    provider.sampler = RecordingSampler(provider.sampler)
    for processor in processors:
        provider.add_span_processor(processor)
    if settings.otlp_endpoint is not None:
        headers = settings.otlp_headers.get_secret_value() if settings.otlp_headers is not None else ""
        exporter = OTLPSpanExporter(
            endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", headers=parse_env_headers(headers, liberal=True)
        )
        provider.add_span_processor(BatchSpanProcessor(SafeExporter(exporter)))
    set_tracer_provider(provider)
    try:
        yield
    finally:
        # An unavailable collector must not delay the shutdown.
        closing = Thread(target=provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSING_SECONDS)


class SafeExporter(SpanExporter):
    """Export only our spans, with safe attributes and without events."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        own_spans = [
            span for span in spans if span.instrumentation_scope and span.instrumentation_scope.name == _SCOPE_NAME
        ]
        return (
            self._exporter.export([_without_unsafe_attributes(span) for span in own_spans])
            if own_spans
            else SpanExportResult.SUCCESS
        )

    @override
    def shutdown(self) -> None:
        self._exporter.shutdown()

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _without_unsafe_attributes(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={name: value for name, value in (span.attributes or {}).items() if name in _EXPORTED_ATTRIBUTES},
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


class JobIds(RandomIdGenerator):
    """Random ids, except those of a job's root span."""

    @override
    def generate_span_id(self) -> int:
        root = ROOT_SPAN.get()
        return super().generate_span_id() if root is None else root.span_id

    @override
    def generate_trace_id(self) -> int:
        root = ROOT_SPAN.get()
        return super().generate_trace_id() if root is None else root.trace_id


class RecordingSampler(Sampler):
    """Record all spans for the metrics; the wrapped sampler decides which are exported.

    Children of a job's root span, which may be another process's, are sampled like roots: by the trace id, so that all
    processes agree.
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
        is_first = get_current_span(parent_context).get_span_context().is_remote
        parent = Context() if is_first else parent_context
        result = self._sampler.should_sample(parent, trace_id, name, kind, attributes, links)
        if result.decision is not Decision.DROP:
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    @override
    def get_description(self) -> str:
        return f"EverySpan({self._sampler.get_description()})"
