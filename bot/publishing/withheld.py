"""The reason why something was not published: a code for programs and a text for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WithheldCause = Literal[
    "branch-moved",
    "default-branch",
    "denied",
    "large-file",
    "left-out",
    "needs-approval",
    "no-pull-request",
    "no-reversal",
    "other-commit",
    "published-already",
    "read-only",
    "refused",
    "secret",
    "unfinished",
    "unproven",
    "weak-proof",
    "workflows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """What was not published, and why.

    Attributes:
        cause: names the rule.
        reason: for the comment: one or more sentences.
    """

    cause: WithheldCause
    reason: str
