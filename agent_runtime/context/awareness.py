"""Progress and urgency, as the model is told with every request. Pure."""

from __future__ import annotations

from datetime import datetime

_NOTABLE, _APPROACHING, _NEAR = 33, 75, 90
"""Per cent of the steps, the present one included."""


def step_status(step: int, max_steps: int, now: datetime) -> str:
    """One line with the step counter and the time; the closer the limit, the plainer.

    Args:
        step: the present step, from 1.
        max_steps: the run's limit.
        now: the time, aware of its zone.
    """
    used = 100 * step // max_steps
    if 100 * step >= _NEAR * max_steps:
        urgency = f" - {used}% agentic steps consumed! Hard Limit Near!"
    elif 100 * step >= _APPROACHING * max_steps:
        urgency = f" - {used}% agentic steps consumed. Approaching step limit!"
    elif 100 * step >= _NOTABLE * max_steps:
        urgency = f" - {used}% agentic steps consumed!"
    else:
        urgency = ""
    return f"[Agentic step {step} / {max_steps}{urgency}] {now:%Y-%m-%d %H:%M %Z}".rstrip()
