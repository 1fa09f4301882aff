"""Log lines that strangers can cause: one line each, at a bounded rate."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError
from typing_extensions import override

LINES = 20
WINDOW_SECONDS = 60.0

_THEIRS = (HttpProcessingError, RequestPayloadError, ConnectionError)


class StrangerLog(logging.Filter):
    """Lets through `LINES` lines about strangers in a window of time, each without a traceback; ours all pass.

    About a stranger is what aiohttp says of a request that is no HTTP or breaks off, and whatever has `stranger` in its
    `extra`. The first line of the next window says how many were left out.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._seen = 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; it loses its traceback, and may be told how many were not."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _THEIRS):
            record.msg, record.args = "an invalid or incomplete HTTP request was refused: %s", (type(error).__name__,)
            record.exc_info, record.exc_text, record.levelno, record.levelname = None, None, logging.WARNING, "WARNING"
        elif not getattr(record, "stranger", False):
            return True
        if self._clock() >= self._until:
            left_out, self._seen, self._until = max(0, self._seen - LINES), 0, self._clock() + WINDOW_SECONDS
            if left_out:
                record.msg = f"{record.msg} ({left_out} similar lines were omitted)"
        self._seen += 1
        return self._seen <= LINES
