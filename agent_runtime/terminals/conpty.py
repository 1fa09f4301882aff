"""A program on a pseudo console of Windows (ConPTY), through pywinpty. Not verified here: it needs Windows."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent_runtime.terminals.screen import COLUMNS, ROWS


class Console(Protocol):
    """A program on a pseudo console."""

    @property
    def pid(self) -> int:
        """The program's process id."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How the program ended; None before its end, or when nobody knows."""
        ...

    def read(self) -> str:
        """Wait for what the program writes, and give it.

        Raises:
            EOFError: it has ended.
        """
        ...

    def write(self, text: str) -> None:
        """Type something; nothing happens when the program has ended."""
        ...

    async def kill(self) -> None:
        """Kill the program and all that it started; `read` ends."""
        ...


Starter = Callable[[Sequence[str], Mapping[str, str], Path], Console]
"""Starts a program with this environment in a directory.

Raises:
    OSError: it cannot be started.
"""


class ConPty:
    """See `Console`."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        from winpty import PTY, Backend, WinptyError  # noqa: PLC0415 - for this system only

        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            raise FileNotFoundError(f"there is no {argv[0]} on the PATH")
        variables = "".join(f"{name}={value}\0" for name, value in env.items())
        self._error = WinptyError
        try:
            self._pty = PTY(COLUMNS, ROWS, backend=Backend.ConPTY)
            self._pty.spawn(program, cmdline=f" {subprocess.list2cmdline(argv[1:])}", cwd=str(directory), env=variables)
        except WinptyError as error:
            raise OSError(str(error)) from error

    @property
    def pid(self) -> int:
        """The program's process id."""
        return int(self._pty.pid or 0)

    @property
    def exit_code(self) -> int | None:
        """How it ended."""
        code: int | None = self._pty.get_exitstatus()
        return code

    def read(self) -> str:
        """What it writes."""
        try:
            text: str = self._pty.read(blocking=True)
        except self._error as error:
            raise EOFError from error
        if not text and self._pty.iseof():
            raise EOFError
        return text

    def write(self, text: str) -> None:
        """Type something."""
        with contextlib.suppress(self._error):  # reading will tell
            self._pty.write(text)

    async def kill(self) -> None:
        """Kill it and all that it started."""
        if not self._pty.isalive():
            return
        killer = await asyncio.create_subprocess_exec(
            "taskkill",
            "/F",
            "/T",
            "/PID",
            str(self.pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await killer.wait()
        with contextlib.suppress(self._error):  # nobody was reading
            self._pty.cancel_io()
