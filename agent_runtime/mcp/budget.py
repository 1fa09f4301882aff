"""Bound what a server says from one start to the next. Pure."""

from __future__ import annotations

MAX_BYTES = 256 * 1024**2
MAX_PIECES = 100_000
"""Messages, and reads of what it writes beside them. More than any run needs, and little enough to be read."""


class Budget:
    """What is left to a server until it is started again.

    Attributes:
        spent: whether it said more.
        refusal: a sentence about that, for people.
    """

    def __init__(self) -> None:
        self.spent = False
        self.refusal = f"(It said more than {MAX_BYTES:,} bytes, or {MAX_PIECES:,} messages, since it was started.)"
        self._bytes, self._pieces = MAX_BYTES, MAX_PIECES

    def takes(self, said: bytes, pieces: int = 1) -> bool:
        """Count something that it said; whether that was within what was left."""
        self._bytes -= len(said)
        self._pieces -= pieces
        self.spent = self.spent or self._bytes < 0 or self._pieces < 0
        return not self.spent
