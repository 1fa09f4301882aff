"""Follow a program that takes the whole screen, by pyte: bounded in time and memory, whatever the program writes."""

from __future__ import annotations

import unicodedata
from typing import Any

import pyte
from typing_extensions import override

_MOST_MARKS = 8
"""Characters of one cell, with the marks above and below its letter: pyte sorts all of them for each new one."""


class FullScreen(pyte.Screen):
    """A screen, and what is on it."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        # The terminal passes line feeds on as they are, so the screen must supply the return itself.
        self.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self)

    @property
    def text(self) -> str:
        """What it shows now."""
        # Not pyte's own `display`, which breaks at half of a wide character.
        rows = ("".join(self.buffer[y][x].data for x in range(self.columns)) for y in range(self.lines))
        return "\n".join(row.rstrip() for row in rows).rstrip("\n")

    def feed(self, text: str) -> None:
        """Take text and those sequences that pyte knows."""
        self._stream.feed(text)

    @override
    def draw(self, data: str) -> None:
        if data.isascii():
            super().draw(data)
            return
        # One by one: at a character that it cannot place, pyte leaves out the rest.
        for char in data:
            if not unicodedata.combining(char) or len(self._last().data) < _MOST_MARKS:
                super().draw(char)

    @override
    def delete_characters(self, count: int | None = None) -> None:
        # pyte moves every cell of the row by itself, which takes so long that a flood of these holds up the event loop.
        row, at, by = self.buffer[self.cursor.y], self.cursor.x, count or 1
        kept = {x if x < at else x - by: cell for x, cell in row.items() if not at <= x < at + by}
        row.clear()
        row.update(kept)

    def _last(self) -> Any:  # noqa: ANN401 - pyte has no types
        """The cell that a mark goes to."""
        y, x = self.cursor.y, self.cursor.x
        return self.buffer[y][x - 1] if x else self.buffer[max(0, y - 1)][self.columns - 1]
