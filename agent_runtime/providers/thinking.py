"""Turn the thinking of Anthropic's models on or off. Pure.

Which words a model takes: https://platform.claude.com/docs/en/build-with-claude/thinking and the migration guides of
its models. Up to Claude 4.5 there is only a budget; 4.6 takes both; later models refuse a budget with HTTP 400 and
decide themselves. From Claude 5 on they think unless told otherwise, and the largest cannot be told otherwise.

What a model thought is kept and sent back where it precedes a `tool_use` block (`reply_parts`), as the service demands:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking. Without tools every reply ends its turn, and
blocks of earlier turns may be left out; nothing is kept then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.model_names import plain_name
from agent_runtime.providers.options import ReasoningEffort, Thinking

if TYPE_CHECKING:
    from anthropic.types import OutputConfigParam, ThinkingConfigParam

_MODEL = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?"
    r"|(?P<old_major>\d)(?:-(?P<old_minor>\d))?-[a-z]+)(?=-|$)"
)
_Version = tuple[int, int]
_ADAPTIVE: _Version = (4, 6)
_THINKS_BY_ITSELF: _Version = (5, 0)
_LATEST: _Version = (5, 5)
_ALWAYS_THINKS = frozenset({"fable", "mythos"})


def thinking_param(model: str, thinking: Thinking) -> ThinkingConfigParam | None:
    """What to send as `thinking`; None to send nothing.

    A name that tells no version, as on a compatible server, gets the budget, which every such server knows.

    Raises:
        SettingsError: thinking is to be off, and the model cannot do without.
    """
    family, version = _version(model)
    if thinking.enabled:
        if version >= _ADAPTIVE:
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    if version < _THINKS_BY_ITSELF:
        return None
    if family in _ALWAYS_THINKS or (family == "opus" and version >= _LATEST):
        raise SettingsError(
            f"Model {model!r} always thinks, so `thinking` cannot be disabled. Remove `thinking` and set "
            f"`reasoning_effort` to 'low', or choose another `model`."
        )
    if family == "sonnet" and version >= _LATEST:
        return {"type": "between_tools"}
    return {"type": "disabled"}


def thinks_by_itself(model: str) -> bool:
    """Whether an Anthropic model thinks by default; one whose name contains no version may."""
    _, version = _version(model)
    return version >= _THINKS_BY_ITSELF or version == (0, 0)


def takes_temperature(model: str, thinking: Thinking | None) -> bool:
    """Whether a request may have a `temperature`: not while the model thinks, and not for those that do by default."""
    return not (thinking is not None and thinking.enabled) and _version(model)[1] < _THINKS_BY_ITSELF


def effort_param(effort: ReasoningEffort) -> OutputConfigParam:
    """What to send as `output_config`.

    Raises:
        SettingsError: a word that Anthropic does not know.
    """
    if effort == "none" or effort == "minimal":  # noqa: PLR1714 - mypy narrows by ==, not by a set
        raise SettingsError(
            f"reasoning_effort {effort!r} is unknown to Anthropic; use low, medium, high, xhigh or max there, "
            f"or disable `thinking`."
        )
    return {"effort": effort}


def _version(model: str) -> tuple[str, _Version]:
    """Family and version by a model's name; (0, 0) where it tells none."""
    match = _MODEL.match(plain_name(model))
    if match is None:
        return "", (0, 0)
    major, minor = match["major"] or match["old_major"], match["minor"] or match["old_minor"]
    return match["family"] or "", (int(major), int(minor or 0))
