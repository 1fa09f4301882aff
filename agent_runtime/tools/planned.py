"""A call that was looked at once: what it is about, how people are shown it, how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from agent_runtime.core.errors import ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.tools import preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A call as it is decided on, and then made or not.

    Attributes:
        facts: what the policy decides by.
        preview: gives what the call would do, whole, as text for people: a diff for a write, the command for a shell;
            empty where it is too long to be shown.
        apply: makes the call: what was planned, or nothing. Sync, async or a generator of either kind, as a tool's own
            function may be.
        refusal: why the call cannot succeed even if approved, or empty. `apply` raises it, also if the reason is
            gone by then; so nobody need be asked about it.
        digest: identifies what the call would do, for comparing two plans of it; empty where nothing is compared.
        declined: told that the call is not made; gives what its author should know beside the denial, or nothing.
        is_current: whether a plan of the same call, made now, would be the same.
        follow: plans a further call of the same tool as if this one had been made; None where nothing may be said
            about that one yet. None for a tool whose calls cannot be planned ahead.
    """

    facts: CallFacts
    preview: Callable[[], str]
    apply: Callable[[], Any]
    refusal: str = ""
    digest: str = ""
    declined: Callable[[], str] = str
    is_current: Callable[[], bool] = lambda: True
    follow: Callable[[Mapping[str, Any]], Planned | None] | None = None


def refused(facts: CallFacts, error: ToolError) -> Planned:
    """The plan of a call that cannot succeed."""
    lines = ["This call cannot succeed:", *str(error).split("\n")]
    return Planned(
        facts=facts,
        preview=partial(preview.clipped, lines),
        apply=partial(_fail, error),
        refusal=str(error),
    )


def text_of(tool: str, parameter: str, value: object) -> str:
    """The argument that rules decide a call by.

    Raises:
        ToolError: it is no text, so that no rule can be held against it.
    """
    if isinstance(value, str):
        return value
    raise ToolError(f"{tool}: {parameter} must be text, since rules decide by it", kind="TypeError")


def _fail(error: ToolError) -> NoReturn:
    raise error
