"""Spans of OpenTelemetry, without contents. They cost next to nothing until a program installs an SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer

_tracer = get_tracer("codepilot")


@contextmanager
def traced(
    name: str, attributes: Mapping[str, str | int] | None = None, *, kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[Span]:
    """A span around the body. Of an error it names the class alone: its text may hold anything.

    Args:
        name: one of a small fixed set.
        attributes: nothing that strangers wrote, and no secret.
        kind: `CLIENT` where another service answers.
    """
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:  # whatever it is, it is raised again
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise
