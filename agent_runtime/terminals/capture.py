"""Output of any length in bounded memory: the head, the tail, and how much was between. Pure."""

from __future__ import annotations

LIMIT = 5_000
"""Characters of head and of tail."""


class Capture:
    """What is kept of a text that comes in pieces.

    Attributes:
        characters: length of the whole.
        lines: ends of line in the whole.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._head = ""
        self._tail = ""
        self._head_lines = 0
        self.characters = 0
        self.lines = 0

    @property
    def cut(self) -> bool:
        """Whether something is missing between head and tail."""
        return self.characters > 2 * self._limit

    def add(self, text: str) -> None:
        """Take the next piece."""
        self.characters += len(text)
        self.lines += text.count("\n")
        room = self._limit - len(self._head)
        if room > 0:
            self._head += text[:room]
            self._head_lines = self._head.count("\n")
            text = text[room:]
        if text:
            self._tail = (self._tail + text[-self._limit :])[-self._limit :]

    def kept(self) -> str:
        """Head and tail, without a word about what is missing; the whole unless `cut`."""
        return self._head + self._tail

    def render(self, *, whole: str | None = None) -> str:
        """The text, or its head and tail with a line between that counts what is missing and names the `whole`."""
        if not self.cut:
            return self.kept()
        missing = self.characters - len(self._head) - len(self._tail)
        first = self._head_lines + 1
        last = self.lines - self._tail.count("\n") + 1
        where = f"; all of it: {whole}" if whole else ""
        return f"{self._head}\n[… {missing:,} characters left out, lines {first:,}-{last:,}{where} …]\n{self._tail}"
