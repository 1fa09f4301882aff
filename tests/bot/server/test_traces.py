"""What is exported, what is sampled, and the ids of a job's spans."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, StatusCode, set_span_in_context
from typing_extensions import override

from bot.queue.tracing import ROOT_SPAN, root_span_context
from bot.server.observability import EverySpan, JobIds, SafeExporter
from tests.builders import a_job

SECRET = "ghs_a-token-of-the-test"


class _All(SimpleSpanProcessor):
    """Exports what is not sampled, too."""

    @override
    def on_end(self, span: ReadableSpan) -> None:
        self.span_exporter.export([span])


def _provider(sampler: ParentBased | None = None) -> tuple[TracerProvider, InMemorySpanExporter, InMemorySpanExporter]:
    """With what is exported, and with all that is made."""
    provider, exported, made = TracerProvider(id_generator=JobIds()), InMemorySpanExporter(), InMemorySpanExporter()
    provider.sampler = EverySpan(sampler or provider.sampler)
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
