"""Find ripgrep, and run it by itself: on the host, or in a sandbox of its own."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Protocol

from agent_runtime.processes.spawn import end, started
from agent_runtime.sandbox.protocol import Launch

_CHUNK = 1 << 16
_MAX_ERRORS = 4_000
_SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"


class Runner(Protocol):
    """Runs programs, one after the other.

    Attributes:
        busy: whether one runs.
        errors: the beginning of what the last one wrote to standard error.
        exit_code: of the last one; None when it was stopped.
    """

    busy: bool
    errors: str
    exit_code: int | None

    def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program and give what it writes, in pieces; leaving the iteration early stops it."""
        ...

    def close(self) -> None:
        """Stop what runs; idempotent."""
        ...


def ripgrep() -> Path | None:
    """The program that the wheel installs beside this Python; else one on the PATH; None where there is neither."""
    found = shutil.which(str(Path(sys.prefix, _SCRIPTS, "rg"))) or shutil.which("rg")
    return None if found is None else Path(found)


class Direct:
    """Starts each program in one directory, with no environment. See `Runner`."""

    def __init__(self, start: Callable[[Sequence[str]], Launch], directory: Path) -> None:
        """Start programs in `directory` of the host, by the command that `start` gives for them."""
        self._start = start
        self._directory = directory
        self.busy = False
        self.errors = ""
        self.exit_code: int | None = None

    async def run(self, argv: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a program; see `Runner`."""
        self.errors, self.exit_code = "", None
        launch = self._start(argv)
        process = await started(launch.argv, env=launch.env, cwd=self._directory, stderr=asyncio.subprocess.PIPE)
        self.busy = True
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both are pipes")
        errors = asyncio.ensure_future(_head(process.stderr))
        try:
            while chunk := await process.stdout.read(_CHUNK):
                yield chunk
            self.errors = await errors
            await process.communicate()  # unlike `wait`, it reads what is left
            self.exit_code = process.returncode
        finally:
            errors.cancel()
            if process.returncode is None:
                end(process)
            await process.communicate()
            self.busy = False

    def close(self) -> None:
        """Nothing to do: what runs is stopped by leaving its iteration."""


async def _head(stream: asyncio.StreamReader) -> str:
    """The beginning of a stream, which is read to its end so that its writer does not block."""
    kept = b""
    while chunk := await stream.read(_CHUNK):
        kept = (kept + chunk)[:_MAX_ERRORS]
    return kept.decode(errors="replace").strip()
