"""Choose the place that the terminals of one runtime share, on any system.

On Linux that is a sandbox, or without one the machine itself; on macOS the machine itself; on Windows it is that too,
by other means: another kind of terminal (ConPTY) and other shells.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent_runtime.sandbox.protocol import Sandbox, TemporaryFiles
from agent_runtime.terminals.command import CommandReport, ShellStart
from agent_runtime.terminals.output import Spool

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress
    from agent_runtime.terminals.terminal import Terminal


class LiveTerminal(Protocol):
    """A shell on a terminal. It starts with the first command, and again after it died."""

    @property
    def cwd(self) -> str:
        """The shell's working directory when it last said so; empty before it started."""
        ...

    @property
    def pid(self) -> int | None:
        """The shell's process id; None when no shell lives."""
        ...

    @property
    def running(self) -> str | None:
        """The command that runs now, or None."""
        ...

    async def run(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - running on is not an exception
        """Run a command; come back when it ended or after `timeout` seconds, whichever is first.

        Raises:
            SandboxError: the shell cannot be started.
            RuntimeError: a command is running.
        """
        ...

    async def read(self, *, timeout: float) -> CommandReport | None:  # noqa: ASYNC109 - as for `run`
        """What is new of the last command; after it ended and was shown, all of it. None when there was no command."""
        ...

    async def send(self, text: str, *, timeout: float) -> CommandReport:  # noqa: ASYNC109 - as for `run`
        """Type `text` to the running command; come back when it ended, fell quiet after an answer, or at the timeout.

        Raises:
            RuntimeError: no command runs.
            ValueError: a line is longer than the terminal can pass on.
        """
        ...

    async def interrupt(self, reason: str) -> None:
        """Break off the running command, by ever stronger means. Nothing to do when none runs."""
        ...

    async def close(self) -> None:
        """Kill the shell and everything it started; idempotent. A next command starts a new shell."""
        ...


class Place(Protocol):
    """Makes terminals whose programs meet: their processes, network and temporary files are the same."""

    @property
    def shells(self) -> tuple[str, ...]:
        """The available shells, the usual one first."""
        ...

    def terminal(self, name: str, shell: str) -> LiveTerminal:
        """A terminal of that name with one of `shells`."""
        ...

    async def close(self) -> None:
        """End everything that was started, at once; idempotent."""
        ...


class _Posix:
    """Terminals with bash; see `backend`."""

    shells = ("bash",)

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Path,
        readable: Mapping[str, Path],
        spool: Spool | None,
        egress: Egress | None,
        *,
        scratch: TemporaryFiles | None,
        start: ShellStart,
    ) -> None:
        from agent_runtime.terminals.backends import backend  # noqa: PLC0415 - needs modules that Windows lacks

        self._backend = backend(sandbox, workspace, readable, egress, scratch)
        self._spool = spool
        self._start = start

    def terminal(self, name: str, shell: str) -> Terminal:  # noqa: ARG002 - there is but one
        from agent_runtime.terminals.terminal import Terminal  # noqa: PLC0415 - the same

        return Terminal(name, backend=self._backend, spool=self._spool, start=self._start)

    async def close(self) -> None:
        await self._backend.close()


def place(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path],
    spool: Spool | None,
    egress: Egress | None = None,
    *,
    scratch: TemporaryFiles | None = None,
    start: ShellStart | None = None,
) -> Place:
    """Where terminals that work in `workspace` live on this system.

    Args:
        sandbox: how programs are started; on Windows only what its settings say of path and environment counts.
        workspace: the directory that they work in.
        readable: more host files and directories that they may read, by their path inside.
        spool: where outputs too long to show whole are kept.
        egress: the way out of a sandbox that is `apart`; None for no network there.
        scratch: informed of the `/tmp` of a sandbox that is `apart`. Linux.
        start: how shells start. Not on Windows.
    """
    if sys.platform == "win32":
        from agent_runtime.terminals.windows import Windows  # noqa: PLC0415 - for this system only

        return Windows(sandbox, workspace, spool)
    return _Posix(sandbox, workspace, readable, spool, egress, scratch=scratch, start=start or ShellStart())
