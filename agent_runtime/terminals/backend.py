"""What opens terminals: the place where a runtime's shells live together.

On Linux that is one sandbox; without a sandbox, and so on macOS, each shell is a child of ours on a terminal of its
own. Windows is not offered: its terminals (ConPTY) and shells have nothing in common with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.terminals import bash
from agent_runtime.terminals.inside import Inside
from agent_runtime.terminals.outside import Outside
from agent_runtime.terminals.pty import Pty


class Backend(Protocol):
    """Opens terminals whose programs meet: their processes, network and temporary files are the same."""

    async def open(self) -> Pty:
        """Start a shell on a terminal of its own.

        Raises:
            SandboxError: it cannot be started.
        """
        ...

    async def close(self) -> None:
        """End everything that was started, at once; idempotent. A later `open` begins anew."""
        ...


def backend(sandbox: Sandbox, workspace: Path, readable: Mapping[str, Path] | None = None) -> Backend:
    """Where shells on `workspace` are opened.

    Args:
        sandbox: how programs are started.
        workspace: the directory that they work in.
        readable: more host files and directories that they may read, by their path inside.
    """
    kind = Inside if sandbox.apart else Outside
    return kind(sandbox, workspace, bash.ARGV, readable or {})
