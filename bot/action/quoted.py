"""Words of an event that an expression has put into a workflow's prompt, where they would be commands. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

# What strangers can fill in the payload of an event that they can cause.
_WORDS = ("title", "body", "head_branch", "display_title", "message", "label", "ref")
_LEAST_CHARS = 16
"""A shorter line may stand in a prompt by chance."""


def quoted_in(prompt: str, payload: Mapping[str, Any]) -> str:
    """The expression, such as `github.event.issue.body`, whose words a prompt holds; empty when it holds none.

    Args:
        prompt: the request.
        payload: of an event that strangers can cause.
    """
    flat = _flat(prompt)
    for name, text in _words(payload, "github.event"):
        if any(len(line) >= _LEAST_CHARS and line in flat for line in map(_flat, text.splitlines())):
            return name
    return ""


def _words(part: object, name: str) -> Iterator[tuple[str, str]]:
    """Every text in the payload that people write, by its name in an expression."""
    if isinstance(part, dict):
        for key, value in part.items():
            if isinstance(value, str) and key in _WORDS:
                yield f"{name}.{key}", value
            elif key not in {"repository", "organization", "sender", "user", "inputs", "client_payload"}:
                yield from _words(value, f"{name}.{key}")
    elif isinstance(part, list):
        for value in part:
            yield from _words(value, f"{name}.*")


def _flat(text: str) -> str:
    """Without what `toJSON` and a template change."""
    return " ".join(json.dumps(text, ensure_ascii=False).strip('"').replace("\\", "").casefold().split())
