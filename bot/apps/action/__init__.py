"""The second entry point: a workflow run's event to the same delivery, and what its step tells the runner."""

from __future__ import annotations

from bot.apps.action.event import delivery_from, job_of_run, listening_of
from bot.apps.action.files import MAX_SUMMARY_BYTES, write_outputs, write_summary
from bot.apps.action.outputs import outputs_of

__all__ = [
    "MAX_SUMMARY_BYTES",
    "delivery_from",
    "job_of_run",
    "listening_of",
    "outputs_of",
    "write_outputs",
    "write_summary",
]
