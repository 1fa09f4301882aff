"""List the models that are asked by native tool calls unless something else is said. All others get control blocks."""

from __future__ import annotations

import re

from agent_runtime.providers.model_names import plain_name

_PREFERRING = (
    # OpenAI's models for its own coding agent, which works by tool calls: https://developers.openai.com/api/docs/models
    r"gpt-[\d.]+-codex(?:-.+)?|codex-.+",
    # Alibaba's models for coding agents, likewise: https://www.alibabacloud.com/help/en/model-studio/qwen-coder
    r"qwen[\d.]*-coder-.+",
)
"""The names of each family's models; looked up in November 2026."""

_KNOWN = re.compile("|".join(_PREFERRING))


def prefers_tools(model: str) -> bool:
    """Whether a model is asked by native tool calls unless something else is said.

    Args:
        model: its name; one that a gateway puts its maker before is the same model.
    """
    return _KNOWN.fullmatch(plain_name(model)) is not None
