"""Terminals of this system: bash on Linux and macOS, ConPTY on Windows. Importable everywhere."""

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
    from agent_runtime.terminals.windows import ConsoleTerminal, ConsoleTerminals

LiveTerminal: TypeAlias = "Terminal | ConsoleTerminal"
"""A shell on a terminal; it starts with the first command, and again after its end."""
TerminalFactory: TypeAlias = "BashTerminals | ConsoleTerminals"
"""Creates a runtime's terminals, whose programs share processes, network and temporary files."""


def create_terminals(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path],
    spool: Spool | None,
    egress: Egress | None = None,
    *,
    scratch: TemporaryFiles | None = None,
    guard: RepositoryGuard | None = None,
    start: ShellStart | None = None,
) -> TerminalFactory:
    """Create the terminal factory for this system; see `create_backend`."""
    if sys.platform == "win32":
        from agent_runtime.terminals.windows import ConsoleTerminals  # noqa: PLC0415 - for this system only

        return ConsoleTerminals(sandbox, workspace, spool)
    from agent_runtime.terminals.backends import create_backend  # noqa: PLC0415 - needs modules that Windows lacks

    return BashTerminals(
        create_backend(sandbox, workspace, readable, egress, scratch, guard=guard), spool, start or ShellStart()
    )


class BashTerminals:
    """Terminals that run bash."""

    shells = ("bash",)

    def __init__(self, backend: Backend, spool: Spool | None, start: ShellStart) -> None:
        self._backend = backend
        self._spool = spool
        self._start = start

    def terminal(self, name: str, shell: str) -> Terminal:  # noqa: ARG002 - there is but one
        """Create a terminal."""
        from agent_runtime.terminals.terminal import Terminal  # noqa: PLC0415 - needs modules that Windows lacks

        return Terminal(name, backend=self._backend, spool=self._spool, start=self._start)

    async def close(self) -> None:
        """Kill all shells; idempotent."""
        await self._backend.close()
