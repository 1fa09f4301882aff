"""Name a job in every log line and every span that is made while something is done for it."""

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

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_tracer = get_tracer("codepilot")

ROOT: ContextVar[SpanContext | None] = ContextVar("root", default=None)
"""The ids of the span that is being made, where they are given rather than random."""


@contextmanager
def observed(job: Job, *, attempt: int | None = None) -> Iterator[None]:
    """Name a job in all that is logged and traced in the body, and in the tasks and threads that are started there.

    Args:
        job: what is being worked for.
        attempt: which one of the job's, where it is run.
    """
    names = {"job": job.id, "delivery": job.delivery_id, "repository": job.repo.full_name, "repository_id": job.repo.id}
    place = {"thread": job.thread.number} if job.thread.has_comments else {}
    token = attach(set_span_in_context(NonRecordingSpan(root_of(job))))
    # Not with `bound_contextvars`, which goes through the whole context twice.
    bound = bind_contextvars(**names, **place, **({} if attempt is None else {"attempt": attempt}))
    try:
        yield
    finally:
        reset_contextvars(**bound)
        detach(token)


def trace_delivery(begun: int) -> None:
    """Make the first span of the job that this is done for, now that it is stored; see `observed`.

    Args:
        begun: when its delivery began to arrive, in nanoseconds since the epoch.
    """
    token = ROOT.set(get_current_span().get_span_context())
    try:
        _tracer.start_span("delivery", context=Context(), kind=SpanKind.SERVER, start_time=begun).end()
    finally:
        ROOT.reset(token)


def root_of(job: Job) -> SpanContext:
    """The span that all others of a job are below: the same in every process, however often the job is taken up."""
    digest = hashlib.sha256(f"codepilot trace {job.id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:_TRACE_BYTES], "big"),
        span_id=int.from_bytes(digest[_TRACE_BYTES : _TRACE_BYTES + _SPAN_BYTES], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
