"""The logs, metrics and traces of one job of a real `codepilot serve`."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families

from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_service_process import site
from tests.forked import codepilot
from tests.otlp import attributes, collecting
from tests.stage import FIX
from tests.waiting import eventually

Samples = dict[tuple[str, ...], float]

STRANGE = "a-title-that-strangers-wrote"
HEADER = "a-key-for-the-collector"


@pytest.mark.slow
async def test_one_job_is_one_trace_and_is_counted_and_logged_by_its_name(hub: LocalHub, tmp_path: Path) -> None:
    async with collecting() as collector, site(hub, tmp_path, script=[{"reply": FIX}]) as plain:
        more = {
            "CODEPILOT_LOG_FORMAT": "json",
            "CODEPILOT_METRICS_PORT": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={HEADER}",
        }
        here, stage = replace(plain, variables={**plain.variables, **more}), plain.stage
        async with here.serving() as service:
            command = stage.say(stage.issue(title=STRANGE).number, "/codepilot fix")
            job_id = await stage.job_of(command)
            assert (await stage.end_of(command)).state is JobState.DONE, service.log.read_text()
            found = re.search(r"metrics on (http://\S+)/metrics", service.log.read_text())
            assert found, service.log.read_text()
            monitor = found[1]

            async def told() -> Samples:
                async with aiohttp.ClientSession() as client, client.get(f"{monitor}/metrics") as answer:
                    families = text_string_to_metric_families(await answer.text())
                values = {
                    (sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples
                }
                return values if values.get(("codepilot_job_attempts_total", "done")) else {}

            metrics: Samples = await eventually(told)
            async with aiohttp.ClientSession() as client:
                for path, port, status in (
                    ("/readyz", monitor, 200),
                    ("/healthz", monitor, 200),
                    ("/readyz", service.address, 200),
                    ("/healthz", service.address, 200),
                    ("/metrics", service.address, 403),
                ):
                    async with client.get(f"{port}{path}") as answer:
                        assert answer.status == status
            service.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(service.process.wait(), 60) == 0
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]

    assert metrics["codepilot_deliveries_total", "accepted"] == 1
    assert metrics["codepilot_jobs", "queued"] == 0
    assert metrics["codepilot_store_up",] == 1
    for phase in ("admit", "prepare", "run", "publish"):
        assert metrics["codepilot_job_phase_seconds_count", phase] == 1
    assert [name for name in metrics if name[0] == "codepilot_github_rate_limit_remaining"]
    assert not [name for name in metrics if any(word in name for word in (STRANGE, stage.repo.full_name))]

    of_job = [line for line in lines if line.get("job") == job_id]
    assert {"bot.server.webhook", "bot.jobs.pipeline"} <= {line["logger"] for line in of_job}
    assert len({line["delivery"] for line in of_job}) == 1

    assert collector.services == {"codepilot"}
    assert all(each.get("x-key") == HEADER for each in collector.headers)
    everything = b"".join(collector.bodies)
    for secret in (STRANGE, stage.repo.full_name, "calc.py", HEADER):
        assert secret.encode() not in everything
    _is_one_tree([span for span in collector.spans if span.trace_id == _root(collector.spans).trace_id])


@pytest.mark.slow
async def test_a_job_that_another_process_finishes_stays_one_trace(hub: LocalHub, tmp_path: Path) -> None:
    async with collecting() as collector, site(hub, tmp_path) as plain:
        here = replace(plain, variables={**plain.variables, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        async with here.serving() as first:
            command = here.stage.say(here.stage.issue().number, "/codepilot fix")
            job_id = await here.stage.job_of(command)
            await here.waiting(job_id)
            first.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(first.process.wait(), 60)
        async with here.serving() as second:
            (await here.waiting(job_id)).touch()
            assert (await here.stage.end_of(command)).state is JobState.DONE, second.log.read_text()
            second.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(second.process.wait(), 60)
        root = _root(collector.spans)
        attempts = [span for span in collector.spans if span.name == "job"]
        assert [(span.trace_id, span.parent_span_id) for span in attempts] == [(root.trace_id, root.span_id)] * 2
        assert [attributes(span).get("error.type", "") for span in attempts] == ["CancelledError", ""]
        assert "Failed to detach" not in first.log.read_text() + second.log.read_text()


@pytest.mark.slow
async def test_a_worker_without_a_receiver_answers_on_the_port_for_metrics(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        log, variables = tmp_path / "work.log", {**here.variables, "CODEPILOT_METRICS_PORT": "0"}
        log.touch()
        process = codepilot(["work"], env=variables, stderr=log)
        try:
            found: re.Match[str] = await eventually(
                lambda: re.search(r"metrics on (http://\S+)/metrics", log.read_text()), within=20
            )
            async with aiohttp.ClientSession(found[1]) as client:
                for path in ("/healthz", "/readyz", "/metrics"):
                    async with client.get(path) as answer:
                        assert answer.status == 200, await answer.text()
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


def _root(spans: list[Span]) -> Span:
    [root] = [span for span in spans if span.name == "delivery"]
    return root


def _is_one_tree(spans: list[Span]) -> None:
    by_id = {span.span_id: span for span in spans}
    parents = {span.name: by_id[span.parent_span_id].name for span in spans if span.parent_span_id}
    assert _root(spans).parent_span_id == b""
    assert parents["job"] == "delivery"
    assert {parents[phase] for phase in ("admit", "prepare", "run", "publish")} == {"job"}
    names = {span.name for span in spans}
    assert {"git fetch", "execute_tool execute", "interpreter start", "sandbox start", "sandbox command"} <= names
    assert {"GET /repos/{owner}/{repo}/issues", "POST /graphql"} <= names
    [chat] = [span for span in spans if span.name.startswith("chat ")]
    assert parents[chat.name] == "run"
    assert {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted"}.items() <= attributes(chat).items()
    assert "gen_ai.usage.input_tokens" in attributes(chat)
    [job] = [span for span in spans if span.name == "job"]
    assert attributes(job)["codepilot.job.state"] == "done"
    assert job.status.code == Status.STATUS_CODE_UNSET
