"""How long a service may be silent before an attempt counts as broken off. Pure.

A model that thinks may send nothing for many minutes, and what it thought is charged for. Giving up too early buys the
same thoughts again; giving up too late only costs time. So the short limit is for those known not to think.
"""

from __future__ import annotations

import re

from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.thinking import thinks_by_itself

SILENCE_SECONDS = 300.0
"""For models that do not think."""

THINKING_SILENCE_SECONDS = 900.0
"""For all others: a hard question takes the largest models more than ten minutes."""

_PLAIN = re.compile(r"gpt-(?:3|4)|chatgpt-4o|qwen(?:2|-(?:turbo|plus|max|long))")
"""Models of before there was thinking."""


def silence(model: str, options: ModelOptions) -> float:
    """Seconds without a byte from the service after which an attempt counts as broken off."""
    if options.silence is not None:
        return options.silence
    return THINKING_SILENCE_SECONDS if _may_think(model, options) else SILENCE_SECONDS


def _may_think(model: str, options: ModelOptions) -> bool:
    if options.reasoning_effort == "none" or (options.thinking is not None and not options.thinking.enabled):
        return False
    if options.reasoning_effort is not None or options.thinking is not None:
        return True
    if model.startswith("claude-"):
        return thinks_by_itself(model)
    return _PLAIN.match(model) is None
