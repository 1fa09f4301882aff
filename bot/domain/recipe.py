"""The recipe of a job: its name, and how far it narrows what the job may do. Pure values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FOLDER = ".github/codepilot"
"""Where the recipes of a repository are, on its default branch."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_recipe_name(text: str) -> bool:
    """Whether a recipe can have this name: at most 40 lower-case letters, digits and `-`."""
    return _NAME.fullmatch(text) is not None


def path_of(name: str) -> str:
    """The file of a recipe."""
    return f"{FOLDER}/{name}.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBounds:
    """What a recipe takes away from the permissions of its job; it adds none.

    Attributes:
        name: the recipe's.
        level: the highest level of the run; None leaves it to operator, repository and labels.
        tools: the tools that the agent may have; None for all that the level gives.
    """

    name: str
    level: Literal["read-only", "ask", "auto"] | None = None
    tools: tuple[str, ...] | None = None
