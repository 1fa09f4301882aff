"""The context of a job."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from agent_runtime.processes import spawn
from bot.jobs.state import Phases
from bot.permissions.levels import Refusal
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from tests.builders import a_job
from tests.job_contexts import answering, context_of


async def _has_views(*refusals: Refusal) -> list[bool]:
    """Return for each refusal whether it has a reply, each for another command in the thread."""
    engine, github = InMemoryEngine(), SimpleNamespace(comments=SimpleNamespace(react=answering(None)))
    ledger, told = InMemoryLedger(engine), list[bool]()
    for number, refusal in enumerate(refusals):
        job = a_job(f"j{number}")
        await engine.accept(job)
        outcome = await context_of(engine, job, github=github, ledger=ledger).refuse(refusal)
        told.append(bool(outcome.reply))
    return told


async def test_a_rule_is_told_once_an_hour_however_often_it_refuses() -> None:
    at, later = (Refusal(cause="moved-head", reason=f"The head is {head}.") for head in ("a", "b"))
    assert await _has_views(at, later, at) == [True, False, False]


async def test_who_does_what_a_refusal_says_is_told_what_else_keeps_the_work_from_writing() -> None:
    label = Refusal(cause="read-only", variant="the label `x` is set", reason="Remove it.")
    fork = Refusal(cause="read-only", variant="this pull request comes from a fork", reason="It does.")
    assert await _has_views(label, fork, label, fork) == [True, True, False, False]


@pytest.fixture
def span_exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spawn, "_tracer", provider.get_tracer("codepilot"))
    return exporter


def test_a_phase_lasts_until_the_next_one_begins_or_the_body_ends(span_exporter: InMemorySpanExporter) -> None:
    with Phases() as phases:
        phases.begin("admit")
        phases.begin("prepare")
        assert [span.name for span in span_exporter.get_finished_spans()] == ["admit"]
        phases.begin("publish")
    spans = span_exporter.get_finished_spans()
    assert [span.name for span in spans] == ["admit", "prepare", "publish"]
    assert [dict(span.attributes or {}) for span in spans] == [{"codepilot.phase": span.name} for span in spans]
    # Beside each other, rather than each in the one before.
    assert {span.parent for span in spans} == {None}
    assert not get_current_span().get_span_context().is_valid


def test_a_phase_that_is_begun_twice_is_one_and_one_that_comes_again_is_another(
    span_exporter: InMemorySpanExporter,
) -> None:
    with Phases() as phases:
        for phase in ("run", "run", "publish", "run"):
            phases.begin(phase)
    assert [span.name for span in span_exporter.get_finished_spans()] == ["run", "publish", "run"]


def test_an_error_is_the_last_phases_alone_and_told_by_its_class(span_exporter: InMemorySpanExporter) -> None:
    def fail() -> None:
        with Phases() as phases:
            phases.begin("admit")
            phases.begin("run")
            raise ValueError("secret")

    with pytest.raises(ValueError, match="secret"):
        fail()
    first, last = span_exporter.get_finished_spans()
    assert (first.status.status_code, last.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert (last.attributes or {})["error.type"] == "ValueError"
    assert "secret" not in last.to_json()


def test_a_job_without_a_phase_has_no_span_of_one(span_exporter: InMemorySpanExporter) -> None:
    with Phases():
        pass
    assert span_exporter.get_finished_spans() == ()
