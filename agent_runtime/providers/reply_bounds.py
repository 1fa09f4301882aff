"""Bound `max_tokens` by what a model can write: a service refuses a request that asks for more."""

from __future__ import annotations

import re
from dataclasses import replace

from agent_runtime.providers.model_names import plain_name
from agent_runtime.providers.options import ModelOptions

_BOUNDS = (
    # https://developers.openai.com/api/docs/models, one page a model
    (r"gpt-4-turbo.*|gpt-4-.*preview|gpt-3\.5-turbo.*|gpt-4o-2024-05-13", 4_096),
    (r"gpt-4(?:-0613)?", 8_192),
    (r"(?:chatgpt-|gpt-)4o.*", 16_384),
    (r"gpt-4\.1.*", 32_768),
    # https://platform.claude.com/docs/en/about-claude/models/overview and its older versions
    (r"claude-3-(?:opus|sonnet|haiku).*", 4_096),
    (r"claude-3-5-.*", 8_192),
    (r"claude-opus-4(?:-[01])?(?:-\d{8})?", 32_000),
    (r"claude-3-7-.*|claude-sonnet-4(?:-0)?(?:-\d{8})?|claude-(?:opus|sonnet|haiku)-4-5.*", 64_000),
    # https://www.alibabacloud.com/help/en/model-studio/models
    (r"qwen-max.*|qwen-vl-max.*", 8_192),
)
"""Names of models, and the tokens of their longest reply; looked up in November 2026. Only what is known is bounded."""


def bounded(options: ModelOptions, model: str) -> ModelOptions:
    """The options with a `max_tokens` that the model takes.

    Args:
        options: as the caller gave them.
        model: its name; one that a gateway puts its maker before, e.g. `openai/gpt-4o`, is the same model.

    Raises:
        SettingsError: it cannot think for as long as the options say.
    """
    name = plain_name(model)
    most = next((tokens for names, tokens in _BOUNDS if re.fullmatch(names, name)), options.max_tokens)
    return options if options.max_tokens <= most else replace(options, max_tokens=most)
