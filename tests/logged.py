"""The log of a test as an operator gets it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bot.publishing.redact import Redactor
from bot.server.process import SafeFormatter


class Logged:
    """What was logged so far."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(SafeFormatter(Redactor(), "json"))

    def lines(self, logger: str = "") -> list[dict[str, Any]]:
        """The lines of a logger and those below it."""
        lines = map(json.loads, self._stream.getvalue().splitlines())
        return [line for line in lines if f"{line['logger']}.".startswith(f"{logger}." if logger else "")]


@contextmanager
def logged() -> Iterator[Logged]:
    """Take in what is logged in the body, from INFO on."""
    found, root = Logged(), logging.getLogger()
    before = root.level
    root.addHandler(found.handler)
    root.setLevel(logging.INFO)
    try:
        yield found
    finally:
        root.removeHandler(found.handler)
        root.setLevel(before)
