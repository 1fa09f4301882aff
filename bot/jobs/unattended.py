"""Calls that need a person in a run that can ask nobody: denied to the model with the reason, and kept."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from bot.jobs.memory import read
from bot.publishing.view import DeniedCall

DENIED = "denied"
"""The fact that keeps the calls that were denied, as a JSON list."""

_CALLS = TypeAdapter(tuple[DeniedCall, ...])


def denied_calls(facts: Mapping[str, str]) -> tuple[DeniedCall, ...]:
    """The calls that were denied in a job, because nobody could be asked.

    Args:
        facts: what is kept of the job.
    """
    return read(_CALLS, facts[DENIED]) if DENIED in facts else ()
