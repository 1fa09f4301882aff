"""What one setting is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PREFIX = "CODEPILOT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of a table of settings.

    Attributes:
        name: the environment variable.
        meaning: one sentence.
        example: a value that works, as it would be written.
        parse: the written value to the value used; raises ValueError with what it must be.
        default: the written value used when it is not set; None when it must be set, empty for nothing at all.
        between: what stands between the entries, where it takes several.
        input: the action's input, where that is called otherwise than the variable.
    """

    name: str
    meaning: str
    example: str
    parse: Callable[[str], Any]
    default: str | None = None
    between: str = ","
    input: str = ""

    @property
    def input_name(self) -> str:
        """What it is called among the action's inputs."""
        return self.input or self.key.replace("_", "-")

    @property
    def key(self) -> str:
        """What it is called in the settings file."""
        return self.name.removeprefix(PREFIX).lower()
