"""The commands that everybody lets an agent run unasked. Pure."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def allowed_commands() -> tuple[str, ...]:
    """Patterns of commands that look, test, build or check, from `allowed_commands.toml`, which says what belongs."""
    listed: dict[str, list[str]] = tomllib.loads((files("bot.gate") / "allowed_commands.toml").read_text("utf-8"))
    return tuple(pattern for each in listed.values() for pattern in each)
