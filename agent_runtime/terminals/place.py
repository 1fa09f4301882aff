"""The terminals that one runtime has on this system.

On Linux their shells live in a sandbox, or without one on the machine itself; on macOS on the machine itself; on
Windows there as well, by other means: another kind of terminal (ConPTY) and other shells. This module can be imported
on every system; what needs one of them is loaded when a place is made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from agent_runtime.sandbox.protocol import Sandbox, TemporaryFiles
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.terminals.command import ShellStart
from agent_runtime.terminals.output import Spool

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress
    from agent_runtime.terminals.backends import Backend
    from agent_runtime.terminals.terminal import Terminal
    from agent_runtime.terminals.windows import ConsoleTerminal, Windows

LiveTerminal: TypeAlias = "Terminal | ConsoleTerminal"
"""A shell on a terminal. It starts with the first command, and again after it died."""
Place: TypeAlias = "BashTerminals | Windows"
"""The terminals of a runtime, whose programs share processes, network and temporary files."""


def place(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path],
    spool: Spool | None,
    egress: Egress | None = None,
    *,
    scratch: TemporaryFiles | None = None,
    guard: RepositoryGuard | None = None,
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
        guard: of the workspace's repositories; None where programs may make and change them.
        start: how shells start. Not on Windows.
    """
    if sys.platform == "win32":
        from agent_runtime.terminals.windows import Windows  # noqa: PLC0415 - for this system only

        return Windows(sandbox, workspace, spool)
    from agent_runtime.terminals.backends import backend  # noqa: PLC0415 - needs modules that Windows lacks

    return BashTerminals(
        backend(sandbox, workspace, readable, egress, scratch, guard=guard), spool, start or ShellStart()
    )


class BashTerminals:
    """Terminals with bash.

    Attributes:
        shells: the available shells, the usual one first.
    """

    shells = ("bash",)

    def __init__(self, backend: Backend, spool: Spool | None, start: ShellStart) -> None:
        self._backend = backend
        self._spool = spool
        self._start = start

    def terminal(self, name: str, shell: str) -> Terminal:  # noqa: ARG002 - there is but one
        """Make a terminal of that name with one of `shells`."""
        from agent_runtime.terminals.terminal import Terminal  # noqa: PLC0415 - needs modules that Windows lacks

        return Terminal(name, backend=self._backend, spool=self._spool, start=self._start)

    async def close(self) -> None:
        """End everything that was started, at once; idempotent."""
        await self._backend.close()
