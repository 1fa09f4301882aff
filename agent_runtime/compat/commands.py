"""Commands beneath one directory, each in a bash of its own, in one sandbox; and a lock that keeps other agents out.

Without a sandbox nothing runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_runtime.core.errors import SettingsError, ToolError, UsageError
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.sandbox.select import create_guard
from agent_runtime.terminals.command import CommandReport
from agent_runtime.terminals.factory import LiveTerminal, TerminalFactory, create_terminals
from agent_runtime.terminals.output import OutputLogs, Spool

_UNFIT = re.compile("[\0\ud800-\udfff]")


class Commands:
    """Runs one command at a time. Use it from one thread, which has to live as long as what the commands start."""

    def __init__(self, sandbox: Callable[[], Sandbox], root: Path, logs: OutputLogs) -> None:
        """Get ready; no program is started yet.

        Args:
            sandbox: gives the sandbox, or raises a `SandboxError` where there is none.
            root: the directory that they work in.
            logs: where whole outputs are kept.
        """
        self._sandbox = sandbox
        self._root = root
        self._logs = logs
        self._place: TerminalFactory | None = None
        self._guard: RepositoryGuard | None = None
        self._terminal: LiveTerminal | None = None
        self._turn = asyncio.Lock()

    async def run(self, command: str, *, seconds: float) -> CommandReport:
        """Run a command without input. One that does not end in time is ended, with everything that was started.

        Raises:
            SandboxError: there is no sandbox, or it cannot be started.
            ToolError: it holds what a terminal cannot take.
        """
        if _UNFIT.search(command):
            raise ToolError("a command can hold neither NUL nor half of a character", kind="ValueError")
        async with self._turn:
            if self._terminal is None:
                sandbox = self._sandbox()
                seen = self._logs.agent_paths(sandbox)
                self._guard = create_guard(sandbox, self._root)
                spool = Spool(self._logs.directory, agent_path=next(iter(seen)))
                self._place = create_terminals(sandbox, self._root, seen, spool, guard=self._guard)
                self._terminal = self._place.terminal("commands", self._place.shells[0])
            terminal = self._terminal
            try:
                # With `bash -c` no spelling of a command can leave the terminal's own shell waiting for more.
                report = await terminal.run(f"bash -c {shlex.quote(command)} </dev/null", timeout=seconds)
                if report.status in {"running", "waiting for input"}:
                    await self.close()
            except asyncio.CancelledError:
                await self.close()
                raise
        return report

    async def close(self) -> None:
        """End the sandbox: nothing that a command has started outlives it. A next command gets a new one."""
        here, terminal, self._place, self._terminal = self._place, self._terminal, None, None
        if here is not None and terminal is not None:
            await here.close()
            await terminal.close()
            if self._guard is not None:
                await asyncio.to_thread(self._guard.close)


@contextmanager
def lease_of(root: Path) -> Iterator[None]:
    """Hold a directory for one agent's run.

    Raises:
        SettingsError: the lock cannot be made.
        UsageError: another agent, of this process or another one of this user, works there.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only agents pay

    name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=16).hexdigest()
    place = home_dir("One agent at a time is kept to a directory by a lock") / ".codepilot" / "agents" / f"{name}.lock"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(place, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"Another agent works in {root}. Wait until its run is over, or give this one a copy of the directory."
        ) from None
    except OSError as error:
        raise SettingsError(f"The lock {place} cannot be made: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()
