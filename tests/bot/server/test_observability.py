"""The metrics, and the spans that are exported."""

from __future__ import annotations

import math
import time
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from agent_runtime import Usage
from bot.domain.errors import QueueError
from bot.github.connection import AppSession
from bot.queue.ledger import DurableSpending
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import BudgetRequest
from bot.queue.records import Backlog
from bot.queue.store import JobStore
from bot.queue.tracing import ROOT_SPAN, root_span_context
from bot.server.observability import JobIds, Metrics, RecordingSampler, SafeExporter
from tests.builders import a_job

Samples = dict[tuple[str, ...], float]


class _Broken(InMemoryEngine):
    """An engine whose database is gone."""

    @override
    async def backlog(self) -> Backlog:
        raise QueueError("the database is gone")


async def _read(metrics: Metrics, engine: InMemoryEngine | None = None, session: AppSession | None = None) -> Samples:
    text = await metrics.render(engine or InMemoryEngine(), session or AppSession(0.0))
    families = text_string_to_metric_families(text.decode())
    return {(sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples}


async def test_the_backlog_is_looked_up_when_it_is_read() -> None:
    now = 1000.0
    engine, metrics = InMemoryEngine(clock=lambda: now), Metrics()
    await engine.accept(a_job("a"))
    await engine.accept(a_job("b", number=8))
    now += 30
    found = await _read(metrics, engine)
    assert found["codepilot_jobs", "queued"] == 2
    assert found["codepilot_jobs", "waiting"] == 0
    assert found["codepilot_oldest_queued_job_age_seconds",] == 30
    assert found["codepilot_store_up",] == 1


async def test_the_costs_of_the_month_have_ids_of_repositories_and_no_names(tmp_path: Path) -> None:
    store, metrics = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), Metrics()
    spending, usage = DurableSpending(store), Usage(output_tokens=9, cost_usd=1.5)
    await spending.reserve(BudgetRequest(job=a_job(), verb="fix", labels=("a label",), budget_usd=5.0))
    await spending.settle(a_job(), usage)
    text = (await metrics.render(InMemoryEngine(), AppSession(0.0), spending)).decode()
    await store.close()
    assert f'codepilot_repository_month_cost_usd{{repository_id="{a_job().repo.id}"}} 1.5' in text
    assert not [word for word in (a_job().repo.full_name, a_job().actor.login, "a label") if word in text]


async def test_without_a_database_the_rest_is_told_and_no_backlog_of_before() -> None:
    metrics = Metrics()
    metrics.count_delivery("accepted")
    await _read(metrics)
    found = await _read(metrics, _Broken())
    assert found["codepilot_store_up",] == 0
    assert found["codepilot_deliveries_total", "accepted"] == 1
    assert not [name for name in found if name[0] == "codepilot_jobs"]
    assert math.isnan(found["codepilot_oldest_queued_job_age_seconds",])


async def test_a_model_call_is_counted_by_kind_of_token_and_a_failed_one_as_that() -> None:
    metrics, provider = Metrics(), TracerProvider()
    provider.add_span_processor(metrics)
    tracer = provider.get_tracer("codepilot")
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    used = {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "codepilot.cost_usd": 0.25,
    }
    tracer.start_span("chat m", attributes={**asked, **used}).end()
    failed = tracer.start_span("chat m", attributes=asked)
    failed.set_status(StatusCode.ERROR)
    failed.end()
    found = await _read(metrics)
    tokens = {name[1]: value for name, value in found.items() if name[0] == "codepilot_model_tokens_total"}
    assert tokens == {"input": 10, "cache_read": 60, "cache_write": 30, "output": 7}
    assert found["codepilot_model_cost_usd_total", "m"] == 0.25
    assert found["codepilot_model_failures_total", "m"] == 1


async def test_a_sandbox_that_does_not_start_is_counted_and_one_that_was_given_up_is_not() -> None:
    metrics, provider = Metrics(), TracerProvider()
    provider.add_span_processor(metrics)
    for error in ("SandboxError", "CancelledError", ""):
        span = provider.get_tracer("codepilot").start_span("sandbox start", attributes={"error.type": error})
        if error:
            span.set_status(StatusCode.ERROR)
        span.end()
    assert (await _read(metrics))["codepilot_sandbox_failures_total",] == 1


async def test_refusals_of_the_app_are_counted_by_status() -> None:
    metrics, provider = Metrics(), TracerProvider()
    provider.add_span_processor(metrics)
    for template, status in (("/app", 401), ("/app", 404), ("/app", 404), ("/app", 201), ("/app", 502), ("/user", 404)):
        attributes: dict[str, AttributeValue] = {"url.template": template, "http.response.status_code": status}
        provider.get_tracer("codepilot").start_span("POST", attributes=attributes).end()
    counts = {name: value for name, value in (await _read(metrics)).items() if "app_refusals_total" in name[0]}
    assert counts == {
        ("codepilot_github_app_refusals_total", "401"): 1,
        ("codepilot_github_app_refusals_total", "404"): 2,
    }


async def test_of_very_many_installations_those_with_the_least_left_are_told() -> None:
    session = AppSession(0.0)
    for number in range(1, 1000):
        headers = {"limit": "5000", "remaining": str(number), "reset": str(int(time.time()) + 1000)}
        session.for_installation(number).limits.record(
            {f"x-ratelimit-{name}": value for name, value in headers.items()}
        )
    over = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}
    session.for_installation(5000).limits.record(over)
    found = await _read(Metrics(), session=session)
    left = {name[1]: value for name, value in found.items() if name[0] == "codepilot_github_rate_limit_remaining"}
    assert left == {str(number): number for number in range(1, 101)}


SECRET = "ghs_a-token-of-the-test"


class _All(SimpleSpanProcessor):
    """Exports what is not sampled, too."""

    @override
    def on_end(self, span: ReadableSpan) -> None:
        self.span_exporter.export([span])


def _provider(sampler: ParentBased | None = None) -> tuple[TracerProvider, InMemorySpanExporter, InMemorySpanExporter]:
    """With what is exported, and with all that is made."""
    provider, exported, made = TracerProvider(id_generator=JobIds()), InMemorySpanExporter(), InMemorySpanExporter()
    provider.sampler = RecordingSampler(sampler or provider.sampler)
    provider.add_span_processor(SimpleSpanProcessor(SafeExporter(exported)))
    provider.add_span_processor(_All(made))
    return provider, exported, made


def test_an_exported_span_has_no_text_but_what_is_known_to_be_harmless() -> None:
    provider, exported, _ = _provider()
    tracer = provider.get_tracer("codepilot")
    with tracer.start_as_current_span("job") as span:
        span.set_attribute("codepilot.job.id", "j1")
        span.set_attribute("url.full", f"https://api.github.com/?token={SECRET}")
        span.add_event("told", {"text": SECRET})
        span.record_exception(ValueError(SECRET))
        span.set_status(StatusCode.ERROR, SECRET)
    provider.get_tracer("another library").start_span(SECRET).end()
    [found] = exported.get_finished_spans()
    assert SECRET not in found.to_json()
    assert dict(found.attributes or {}) == {"codepilot.job.id": "j1"}
    assert found.status.status_code is StatusCode.ERROR


def test_spans_that_are_not_sampled_are_made_for_the_metrics_and_not_exported() -> None:
    provider, exported, made = _provider(ParentBased(ALWAYS_OFF))
    with provider.get_tracer("codepilot").start_as_current_span("job"):
        provider.get_tracer("codepilot").start_span("admit").end()
    assert [span.name for span in made.get_finished_spans()] == ["admit", "job"]
    assert exported.get_finished_spans() == ()


def test_every_process_samples_the_same_jobs() -> None:
    jobs = [a_job(f"j{number}") for number in range(200)]
    sampled = []
    for _ in range(2):
        provider, exported, _ = _provider(ParentBased(TraceIdRatioBased(0.5)))
        tracer = provider.get_tracer("codepilot")
        for job in jobs:
            tracer.start_span("job", context=set_span_in_context(NonRecordingSpan(root_span_context(job)))).end()
        sampled.append([span.context.trace_id for span in exported.get_finished_spans() if span.context])
    assert sampled[0] == sampled[1]
    assert 50 < len(sampled[0]) < 150


def test_the_span_of_a_delivery_has_the_ids_that_all_others_of_its_job_are_below() -> None:
    provider, exported, _ = _provider()
    tracer, root = provider.get_tracer("codepilot"), root_span_context(a_job("j1"))
    token = ROOT_SPAN.set(root)
    tracer.start_span("delivery").end()
    ROOT_SPAN.reset(token)
    tracer.start_span("job", context=set_span_in_context(NonRecordingSpan(root))).end()
    first, second = exported.get_finished_spans()
    assert first.context
    assert second.parent
    assert (first.context.trace_id, first.context.span_id) == (second.parent.trace_id, second.parent.span_id)
    assert root_span_context(a_job("j2")).trace_id != root.trace_id
