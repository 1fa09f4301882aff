"""The metrics of one process, by Prometheus's conventions. Most are derived from the spans that traces are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.util.types import AttributeValue
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
from bot.engine.protocols import JobIndex
from bot.engine.records import Backlog
from bot.github import AppSession

_MOST_INSTALLATIONS = 100
"""Anybody can install a public App, so only the installations with the least left are told."""
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
        """All of it, in the text format.

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
