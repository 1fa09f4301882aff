"""Terminals inside one running sandbox: all their programs share its processes, network and temporary files."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from agent_runtime.errors import SandboxError
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.terminals import keeper
from agent_runtime.terminals.keeper import Keeper
from agent_runtime.terminals.processes import Family
from agent_runtime.terminals.pty import Pty

_LAST_SECONDS = 1.0


class Inside:
    """Starts the sandbox with the first terminal, and again when it was killed. See `Backend`.

    The sandbox dies with the thread that started it, so call `open` from the main thread.
    """

    def __init__(self, sandbox: Sandbox, workspace: Path, shell: Sequence[str], readable: Mapping[str, Path]) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._argv = keeper.argv(shell)
        self._readable = readable
        self._keeper: Keeper | None = None

    async def open(self) -> Pty:
        """Start a shell on a terminal of its own.

        Raises:
            SandboxError: the sandbox cannot be started; the text has its last words.
        """
        try:
            return await self._open()
        except SandboxError:
            if self._keeper is None or self._keeper.alive:
                raise
        # It was dying when it was asked: killed from inside, or for want of memory.
        return await self._open()

    async def close(self) -> None:
        """Kill the sandbox, and with it everything in it."""
        if self._keeper is not None:
            await self._keeper.close()
            self._keeper = None

    async def _open(self) -> Pty:
        if self._keeper is not None and not self._keeper.alive:
            await self.close()
        if self._keeper is None:
            launch = self._sandbox.launch(self._argv, workspace=self._workspace, readable=self._readable, first=True)
            self._keeper = Keeper(launch)
        await self._keeper.ready()
        mark = secrets.token_hex(16)
        return _InsidePty(await self._keeper.start(mark), self._keeper, mark)


class _InsidePty(Pty):
    """A shell that a keeper started."""

    def __init__(self, fd: int, home: Keeper, mark: str) -> None:
        self._keeper = home
        self._mark = mark
        self._finished = False
        super().__init__(fd)

    @override
    def signal_foreground(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The terminal remembers a group that is gone; by now its number may be a group of ours.
            self._family().signal_group(os.tcgetpgrp(self.fd), number)

    @override
    async def finish(self, *, ended: bool) -> None:
        if self._finished:
            return
        self._finished = True
        if ended:
            self.exit_code = await self._keeper.exit_code(self._mark, within=_LAST_SECONDS)
        if not await self._family().kill(within=_LAST_SECONDS):
            await self._keeper.close()  # it multiplies faster than it is killed
        if not ended:
            self.exit_code = await self._keeper.exit_code(self._mark, within=_LAST_SECONDS)

    def _family(self) -> Family:
        return Family(mark=self._mark, session=self.leader, namespace=self._keeper.namespace)
