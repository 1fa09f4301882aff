"""Add the job to log lines and spans. Trace ids derive from the job's id, so that all processes share one trace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from structlog.contextvars import bind_contextvars, reset_contextvars

from bot.domain.job import Job

_tracer = get_tracer("codepilot")

ROOT_SPAN: ContextVar[SpanContext | None] = ContextVar("root", default=None)
"""Predetermined ids for the span being created."""


@contextmanager
def bind_job(job: Job, *, attempt: int | None = None) -> Iterator[None]:
    """Add the job to log lines and spans of the body, and of tasks and threads started there.

    Args:
        attempt: None if no worker runs it.
    """
    names = {"job": job.id, "delivery": job.delivery_id, "repository": job.repo.full_name, "repository_id": job.repo.id}
    place = {"thread": job.thread.number} if job.thread.has_comments else {}
    token = attach(set_span_in_context(NonRecordingSpan(root_span_context(job))))
    # `bound_contextvars` would iterate over the whole context twice.
    bound = bind_contextvars(**names, **place, **({} if attempt is None else {"attempt": attempt}))
    try:
        yield
    finally:
        reset_contextvars(**bound)
        detach(token)


def trace_delivery(started_ns: int) -> None:
    """Create the root span of the context's stored job.

    Args:
        started_ns: arrival of the delivery, in nanoseconds since the epoch.
    """
    token = ROOT_SPAN.set(get_current_span().get_span_context())
    try:
        _tracer.start_span("delivery", context=Context(), kind=SpanKind.SERVER, start_time=started_ns).end()
    finally:
        ROOT_SPAN.reset(token)


_TRACE_BYTES, _SPAN_BYTES = 16, 8


def root_span_context(job: Job) -> SpanContext:
    digest = hashlib.sha256(f"codepilot trace {job.id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:_TRACE_BYTES], "big"),
        span_id=int.from_bytes(digest[_TRACE_BYTES : _TRACE_BYTES + _SPAN_BYTES], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
