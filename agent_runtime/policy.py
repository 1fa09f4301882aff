"""What a run may do and spend. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

# What is typed into a running program may reach a shell: it passes the gate that commands pass.
_SAME_GATE = {"send_input": "execute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Bounds of one run.

    Attributes:
        max_steps: model replies that may act.
        max_format_errors: replies in a row that cannot be understood.
        max_cost_usd: US dollars; None for no bound.
        max_seconds: wall time of the whole run.
        max_calls_per_step: tool calls in one control block.
        max_output_chars_per_step: characters of results and prints that one step may show.
    """

    max_steps: int = 30
    max_format_errors: int = 3
    max_cost_usd: float | None = None
    max_seconds: float = 1800.0
    max_calls_per_step: int = 200
    max_output_chars_per_step: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which tools a run may call, and its bounds.

    Attributes:
        denied_tools: tool names to refuse, each with the reason the model is told.
        limits: bounds of the run.
    """

    denied_tools: dict[str, str] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=RunLimits)

    def refusal(self, tool: str) -> str | None:
        """The reason why `tool` may not be called, or None when it may."""
        return self.denied_tools.get(tool) or self.denied_tools.get(_SAME_GATE.get(tool, ""))
