"""An OpenTelemetry collector on the loopback address, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What it received."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies)
        return [
            span
            for each in requests
            for group in each.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        """The names of the services that they are from."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies)
        return {
            pair.value.string_value
            for each in requests
            for group in each.resource_spans
            for pair in group.resource.attributes
            if pair.key == "service.name"
        }


def attributes(span: Span) -> dict[str, str | int | float]:
    """A span's attributes as plain values."""
    kinds = ("string_value", "int_value", "double_value")
    return {
        pair.key: getattr(pair.value, kind) for pair in span.attributes for kind in kinds if pair.value.HasField(kind)
    }


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Take in traces until the block ends."""
    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        collector.bodies.append(await request.read())
        collector.headers.append(dict(request.headers))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()
