"""Full outputs as files in the job's log directory, within a quota."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import BinaryIO

from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.temporary import Temporary

COMMAND_BYTES = 128 * 1024**2
"""Output of one command; more stops the command."""
TOTAL_BYTES = 512 * 1024**2
"""Logs of one job; the oldest go when new ones need the room."""
_LOGS = "/logs"


class Spool:
    """A directory of logs that never holds much more than its quota."""

    def __init__(self, directory: Path, *, seen_as: str | None = None, total_bytes: int = TOTAL_BYTES) -> None:
        """Keep logs in `directory`, which the agent knows as `seen_as`."""
        self._directory = directory
        self._seen_as = seen_as or str(directory)
        self._total_bytes = total_bytes

    def open(self, name: str) -> tuple[str, BinaryIO]:
        """A new file for one command's output, which the caller closes; older logs make room first.

        Returns:
            Its path in the agent's eyes, and the file.

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
        # Terminals come and go, and each counts its commands from 1.
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
        free = next(each for each in names if not (self._directory / f"{each}.log").exists())
        return f"{self._seen_as}/{free}.log", (self._directory / f"{free}.log").open("xb", buffering=0)


class OutputLogs:
    """The directory for the logs of one runtime: one that was given, or a private one that goes with this object.

    Attributes:
        directory: where it is on this machine.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._private: Temporary | None = None
        if directory is None:
            self._private = Temporary("codepilot-logs-")
            directory = self._private.path
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)

    def seen_in(self, sandbox: Sandbox) -> dict[str, Path]:
        """It by its path in the agent's eyes: a name that tells nothing of the host, where the sandbox has its own."""
        return {_LOGS if sandbox.apart else str(self.directory): self.directory}

    def close(self) -> None:
        """Remove it if it is private; idempotent."""
        if self._private is not None:
            self._private.close()
