"""Joins the blocks that a service splits one reply into. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class BlockJoiner:
    """Starts every further block of text on a line of its own.

    The reply grammar is made of lines; two blocks glued together would hide a fence in the middle of one.
    """

    _block: Hashable = None
    _mid_line: bool = False

    def join(self, block: Hashable, text: str) -> str:
        """The `text` to add for a piece of `block`, with a line break before it where one is missing."""
        joint = "\n" if self._mid_line and block != self._block else ""
        if text:
            self._block, self._mid_line = block, not text.endswith("\n")
        return joint + text if text else ""
