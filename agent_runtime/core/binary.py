"""Leave binary data out of texts that are shown. Pure."""

from __future__ import annotations

import re

_STRETCH = re.compile(r"\ufffd(?:[^\ufffd]{0,8}\ufffd){11,}")
"""A dozen characters or more that could not be decoded, with little between them. A text in another encoding has fewer;
where it has as many, nobody can read it either."""


def without_binary(text: str) -> str:
    """A text, each stretch of binary data in it replaced by a note of its length."""
    if "\ufffd" not in text:
        return text
    return _STRETCH.sub(lambda stretch: f"[{len(stretch[0]):,} characters of binary data]", text)
