"""What a saved log says of the failures in it. For a worker process: it reads strangers' bytes from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bot.red_ci.excerpts.table import excerpt, is_signal
from bot.red_ci.log import Moment, failing_lines

_CHUNK_BYTES = 256 * 1024


def digest(path: str, moments: list[Moment], limit: int) -> tuple[str, int]:
    """The excerpt of a job's log, and how many failures it has beside those in it.

    Args:
        path: the log.
        moments: when the job's failed steps ran.
        limit: characters of the excerpt.
    """
    lines: list[str] = []
    # Where GitHub's times are not those of the log, all of it counts.
    for times in (moments, []):
        with Path(path).open("rb") as log:
            lines = lines or failing_lines(_chunks(log), times, is_signal=is_signal)
    return excerpt(lines, limit)


def _chunks(log: BinaryIO) -> Iterator[bytes]:
    while chunk := log.read(_CHUNK_BYTES):
        yield chunk
