"""Words of an event that an expression has put into a workflow's prompt, where they would be commands. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# What strangers can fill in the payload of an event that they can cause.
_WORDS = frozenset(
    {
        "body", "description", "display_title", "from", "head_branch", "label", "message", "page_name", "ref",
        "summary", "text", "title",
    }
)  # fmt: skip
_PEOPLE = frozenset({"author", "committer"})
_LEAST_CHARS = 16
"""Less may be in a prompt by chance."""
# As `toJSON` writes them, too.
_BREAKS = re.compile(r"(?:\\+[nrt]|\s)+")


def quoted_in(prompt: str, payload: Mapping[str, Any]) -> str:
    """The expression, such as `github.event.issue.body`, whose words a prompt holds; empty when it holds none.

    Args:
        prompt: the request.
        payload: of an event that strangers can cause.
    """
    flat = _flat(prompt)
    for name, text in _words(payload, "github.event"):
        # The whole as well, or a text of short lines alone would pass.
        pieces = map(_flat, (text, *text.splitlines()))
        if any(len(piece) >= _LEAST_CHARS and piece in flat for piece in pieces):
            return name
    return ""


def _words(part: object, name: str) -> Iterator[tuple[str, str]]:
    """Every text in the payload that people write, by its name in an expression."""
    if isinstance(part, dict):
        for key, value in part.items():
            if isinstance(value, str) and key in _WORDS:
                yield f"{name}.{key}", value
            elif key in _PEOPLE and isinstance(value, dict):
                yield from ((f"{name}.{key}.{each}", str(value.get(each) or "")) for each in ("name", "email"))
            elif key not in {"repository", "organization", "sender", "user", "inputs", "client_payload"}:
                yield from _words(value, f"{name}.{key}")
    elif isinstance(part, list):
        for value in part:
            yield from _words(value, f"{name}.*")


def _flat(text: str) -> str:
    """Without what `toJSON` and a template change."""
    line = _BREAKS.sub(" ", text).strip()
    return " ".join(json.dumps(line, ensure_ascii=False)[1:-1].replace("\\", "").casefold().split())
