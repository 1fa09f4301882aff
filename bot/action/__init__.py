"""The second entry point: a workflow run's event to the same delivery, and what its step tells the runner."""

from __future__ import annotations

from bot.action.inputs import delivery_from, job_of_run, listening_of
from bot.action.outputs import MAX_SUMMARY_BYTES, outputs_of, write_outputs, write_summary

__all__ = [
    "MAX_SUMMARY_BYTES",
    "delivery_from",
    "job_of_run",
    "listening_of",
    "outputs_of",
    "write_outputs",
    "write_summary",
]
