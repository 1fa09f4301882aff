"""Takes secrets out of an event before it is recorded. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.events import Replied
from agent_runtime.core.images import Image

T = TypeVar("T")

Scrub = Callable[[str], str]
"""From a text to the same without secrets; a text that holds none comes back as it is."""

_WORDS = frozenset({"PendingKind", "Role"})
"""Annotations of fields that hold one of a few words of ours."""


def scrubbed(value: T, scrub: Scrub) -> T:
    """An event, or a part of one, with every text in it scrubbed, names of arguments included; images as they are."""
    clean: Any = value
    match value:
        case Enum() | Image():
            pass
        case str():
            clean = scrub(value)
        case list() | tuple():
            clean = type(value)(scrubbed(each, scrub) for each in value)
        case dict():
            clean = {scrubbed(key, scrub): scrubbed(each, scrub) for key, each in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            texts = (field.name for field in fields(value) if field.type not in _WORDS)
            clean = replace(value, **{name: scrubbed(getattr(value, name), scrub) for name in texts})
            if isinstance(value, ToolRequest):
                clean = replace(clean, arguments=_json_scrubbed(clean.arguments, scrub))
            if isinstance(value, Replied) and _json_scrubbed(clean.reasoning, scrub) != value.reasoning:
                clean = replace(clean, reasoning="")  # signed: a service refuses what was changed
        case _:
            pass
    return clean  # type: ignore[no-any-return] # what is changed keeps its type


def _json_scrubbed(text: str, scrub: Scrub) -> str:
    """JSON without the secrets that its escapes disguise; what is none, and what holds none, comes back as it is."""
    try:
        value = json.loads(text)
        clean = scrubbed(value, scrub)
        return text if clean == value else json.dumps(clean)
    except (ValueError, RecursionError):
        return text
