"""What a person may ask for, and the one grammar in which they ask. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Change the code and publish the change. `goal` is the free text after the verb; may be empty."""

    goal: str
    verb: Literal["fix"] = "fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """Say what the bot can do."""

    verb: Literal["help"] = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A verb that does not exist; answered with the nearest one that does and the help.

    Attributes:
        word: what was written.
        nearest: the closest known verb, or None when nothing is close.
    """

    word: str
    nearest: str | None
    verb: Literal["unknown"] = "unknown"


Command = Fix | Help | Unknown
"""Everything a person can ask for; unhandled kinds fail type checking."""
