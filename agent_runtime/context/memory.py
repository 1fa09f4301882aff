"""Limits on the conversation that a session may hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.core.errors import SettingsError

_LEAST_CONTEXT = 4_000
_LEAST_SUMMARY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How much conversation a session may hold, and what happens when that is reached.

    Attributes:
        max_context_tokens: what one request may hold, status and reply aside; the model must take at least that.
        global_summary_threshold: the share of it (above 0, at most 1) from which on the oldest part is summarised.
        global_summary_max_tokens: length of such a summary; a twentieth of what it replaces, if that is more.

    Raises:
        SettingsError: a value cannot work.
    """

    max_context_tokens: int = 120_000
    global_summary_threshold: float = 0.9
    global_summary_max_tokens: int = 500

    def __post_init__(self) -> None:
        if self.max_context_tokens < _LEAST_CONTEXT:
            raise SettingsError(
                f"memory.max_context_tokens is {self.max_context_tokens}; use at least {_LEAST_CONTEXT}: "
                "the system prompt alone takes about 1,500."
            )
        if not 0 < self.global_summary_threshold <= 1:
            raise SettingsError(
                f"memory.global_summary_threshold is {self.global_summary_threshold}; "
                "it is a share of max_context_tokens: above 0, at most 1, e.g. 0.9."
            )
        if not _LEAST_SUMMARY <= self.global_summary_max_tokens <= self.max_context_tokens // 4:
            raise SettingsError(
                f"memory.global_summary_max_tokens is {self.global_summary_max_tokens}; use {_LEAST_SUMMARY} to "
                f"{self.max_context_tokens // 4}, a quarter of max_context_tokens."
            )

    @property
    def threshold_tokens(self) -> int:
        """Tokens in a request from which on the oldest part is summarised."""
        return int(self.max_context_tokens * self.global_summary_threshold)
