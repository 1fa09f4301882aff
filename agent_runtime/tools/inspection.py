"""What a call would do, told before it is made."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.core.policy import CallFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A call as it is decided on.

    Attributes:
        facts: what the policy decides by.
        preview: what the call would do, whole, as text for people: a diff for a write, the command for a shell; empty
            where it is too long to be shown.
        refusal: why the call cannot succeed whoever approves it, or empty. Made next, such a call fails, also if what
            was in its way is gone by then; so nobody need be asked about it.
    """

    facts: CallFacts
    preview: str
    refusal: str = ""
