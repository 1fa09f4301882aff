"""How a run ended, and what it used. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """A completion block, and its step succeeded."""
    ANSWERED = "answered"
    """A conversational reply without a control block (chat only)."""
    STOPPED = "stopped"
    """Someone stopped it."""
    MAX_STEPS = "max_steps"
    """The step limit was reached first."""
    BUDGET = "budget"
    """A token, money or time limit was reached first."""
    FORMAT_ERRORS = "format_errors"
    """Several replies in a row could not be understood."""
    FAILED = "failed"
    """The model service or the sandbox failed; `reason` says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What model calls used, summed over a run.

    Attributes:
        requests: model requests answered.
        input_tokens: tokens sent that were neither read from nor written to the provider's cache.
        cached_tokens: tokens read from the provider's cache.
        cache_write_tokens: tokens written to the provider's cache.
        output_tokens: tokens received, reasoning included.
        cost_usd: US dollars, or None when a model's price is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Sum two usages; an unknown cost makes the sum unknown."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )

    @property
    def total_tokens(self) -> int:
        """All tokens, sent and received."""
        return self.input_tokens + self.cached_tokens + self.cache_write_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one run.

    Attributes:
        status: how it ended.
        summary: the completion or answer, else None.
        reason: for every ending but `finished` and `answered`: why, and what to do.
        steps: steps taken.
        usage: what the model calls used.
        seconds: wall time.
    """

    status: Status
    summary: str | None = None
    reason: str | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
