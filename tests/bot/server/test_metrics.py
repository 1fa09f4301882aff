"""What is counted, and that no stranger can add a label."""

from __future__ import annotations

import math
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.github.connection import AppSession
from bot.queue.memory import InMemoryEngine
from bot.queue.records import Backlog
from bot.server.observability import Metrics
from tests.builders import a_job

Samples = dict[tuple[str, ...], float]


class _Broken(InMemoryEngine):
    """An engine whose database is gone."""

    @override
    async def backlog(self) -> Backlog:
        raise QueueError("the database is gone")


async def _read(metrics: Metrics, engine: InMemoryEngine | None = None, session: AppSession | None = None) -> Samples:
    text = await metrics.read(engine or InMemoryEngine(), session or AppSession(0.0))
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


async def test_without_a_database_the_rest_is_told_and_no_backlog_of_before() -> None:
    metrics = Metrics()
    metrics.answered("accepted")
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


async def test_of_very_many_installations_those_with_the_least_left_are_told() -> None:
    session = AppSession(0.0)
    for number in range(1, 1000):
        headers = {"limit": "5000", "remaining": str(number), "reset": str(int(time.time()) + 1000)}
        session.of(number).limits.note({f"x-ratelimit-{name}": value for name, value in headers.items()})
    over = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}
    session.of(5000).limits.note(over)
    found = await _read(Metrics(), session=session)
    left = {name[1]: value for name, value in found.items() if name[0] == "codepilot_github_rate_limit_remaining"}
    assert left == {str(number): number for number in range(1, 101)}
