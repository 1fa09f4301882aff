"""Open terminals: the place that a runtime's shells share.

On Linux that is one sandbox, with an engine one container; without a sandbox, and so on macOS, each shell is a child of
ours on a terminal of its own. Windows is another place: see `place`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent_runtime.sandbox.docker import Docker
from agent_runtime.sandbox.protocol import Sandbox, TemporaryFiles
from agent_runtime.terminals import bash
from agent_runtime.terminals.contained import Contained
from agent_runtime.terminals.inside import Inside
from agent_runtime.terminals.outside import Outside
from agent_runtime.terminals.pty import Pty

if TYPE_CHECKING:  # few runs have a network
    from agent_runtime.sandbox.egress.proxy import Egress


class Backend(Protocol):
    """Opens terminals whose programs meet: their processes, network and temporary files are the same."""

    async def open(self) -> Pty:
        """Start a shell on a terminal of its own.

        Raises:
            SandboxError: it cannot be started.
        """
        ...

    async def close(self) -> None:
        """End everything that was started, at once; idempotent. A later `open` starts again."""
        ...


def backend(
    sandbox: Sandbox,
    workspace: Path,
    readable: Mapping[str, Path] | None = None,
    egress: Egress | None = None,
    scratch: TemporaryFiles | None = None,
) -> Backend:
    """Where shells on `workspace` are opened.

    Args:
        sandbox: how programs are started.
        workspace: the directory that they work in.
        readable: more host files and directories that they may read, by their path inside.
        egress: the way out of a sandbox that is `apart`; None for no network there.
        scratch: informed of the `/tmp` of a sandbox that is `apart`.
    """
    if isinstance(sandbox, Docker):
        return Contained(sandbox, workspace, bash.ARGV, readable or {}, scratch)
    if sandbox.apart:
        return Inside(sandbox, workspace, bash.ARGV, readable or {}, egress, scratch=scratch)
    return Outside(sandbox, workspace, bash.ARGV, readable or {})
