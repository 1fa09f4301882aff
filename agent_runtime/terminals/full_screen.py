"""Full-screen terminal emulation by pyte, bounded in time and memory."""

from __future__ import annotations

import unicodedata
from typing import Any

import pyte
from typing_extensions import override

_MAX_MARKS = 8
"""Characters of one cell with its combining marks; pyte sorts all for each new one."""


class FullScreen(pyte.Screen):
    """A terminal screen."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        # The terminal passes line feeds on unchanged, so the screen must add the carriage return.
        self.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self)

    @property
    def text(self) -> str:
        """Visible text."""
        # Not pyte's `display`, which fails on half of a wide character.
        rows = ("".join(self.buffer[y][x].data for x in range(self.columns)) for y in range(self.lines))
        return "\n".join(row.rstrip() for row in rows).rstrip("\n")

    def feed(self, text: str) -> None:
        """Process text and the control sequences that pyte knows."""
        self._stream.feed(text)

    @override
    def draw(self, data: str) -> None:
        if data.isascii():
            super().draw(data)
            return
        # One by one: after a character that it cannot place, pyte drops the rest.
        for char in data:
            if not unicodedata.combining(char) or len(self._last_cell().data) < _MAX_MARKS:
                super().draw(char)

    @override
    def delete_characters(self, count: int | None = None) -> None:
        # pyte moves cells one by one, so slowly that a flood of these blocks the event loop.
        row, column, width = self.buffer[self.cursor.y], self.cursor.x, count or 1
        cells = {x if x < column else x - width: cell for x, cell in row.items() if not column <= x < column + width}
        row.clear()
        row.update(cells)

    def _last_cell(self) -> Any:  # noqa: ANN401 - pyte has no types
        """Return the cell that a combining mark joins."""
        y, x = self.cursor.y, self.cursor.x
        return self.buffer[y][x - 1] if x else self.buffer[max(0, y - 1)][self.columns - 1]
