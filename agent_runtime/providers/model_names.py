"""Recognise a model behind the names that gateways and clouds give it. Pure."""

from __future__ import annotations

import re

_BEDROCK = re.compile(r"(?:[a-z-]+\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?")
"""Amazon puts a region and the maker before a name, and its own version behind it."""


def plain_name(model: str) -> str:
    """A model's name as its maker gives it, in lower case.

    A gateway puts the maker before it (`openai/gpt-4o`), Google a version behind it (`claude-opus-5@20260801`).
    """
    name = model.lower().rpartition("/")[2]
    found = _BEDROCK.fullmatch(name)
    return (found[1] if found else name).replace("@", "-")
