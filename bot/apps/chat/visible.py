"""Text from strangers made fit for a terminal: what would draw, move or hide is shown instead. Pure."""

from __future__ import annotations

_HARMLESS = frozenset("\n\t\u00a0\u200d")
"""Not printable by Python's count, and harmless: line break, tab, the hard space, the joiner inside an emoji."""


def visible(text: str) -> str:
    """Every control code, bidirectional override and invisible character as Python would escape it.

    Nothing is left out: what somebody approves must be what they see.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode() for c in text)
