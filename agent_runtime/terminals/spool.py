"""Full outputs as files in the job's log directory, within a quota."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

COMMAND_BYTES = 128 * 1024**2
"""Output of one command; more stops the command."""
TOTAL_BYTES = 512 * 1024**2
"""Logs of one job; the oldest go when new ones need the room."""


class Spool:
    """A directory of logs that never holds much more than its quota."""

    def __init__(self, directory: Path, *, total_bytes: int = TOTAL_BYTES) -> None:
        self._directory = directory
        self._total_bytes = total_bytes

    def open(self, name: str) -> tuple[Path, BinaryIO]:
        """A new file for one command's output, which the caller closes; older logs make room first.

        Raises:
            OSError: the directory cannot be written.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        logs = sorted(self._directory.glob("*.log"), key=lambda log: log.stat().st_mtime_ns)
        used = sum(log.stat().st_size for log in logs)
        for log in logs:
            if used + COMMAND_BYTES <= self._total_bytes:
                break
            used -= log.stat().st_size
            log.unlink()
        path = self._directory / f"{name}.log"
        return path, path.open("wb", buffering=0)
