"""A listening socket inside a sandbox's network that is served from outside.

Nothing of it runs inside: code in the sandbox finds an open port on its loopback, and has no process to stop, no file
to replace and no socket of another sandbox to look for.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from agent_runtime.core.errors import SandboxError

PORT = 3128
"""The same in every sandbox: each has a network of its own, and this is taken before anything else runs there."""

_PROGRAM = Path(__file__).with_name("entering.py")
_SECONDS = 20.0


def listen_inside(namespace: int) -> socket.socket:
    """Listen on `PORT` of the loopback of another network namespace; takes some 20 ms.

    Args:
        namespace: an open descriptor of it (`/proc/[pid]/ns/net`).

    Raises:
        SandboxError: the kernel refuses; the text has its words.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        numbers = [namespace, theirs.fileno()]
        argv = [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, numbers), str(PORT)]
        try:
            done = subprocess.run(
                argv,
                env={},
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"The sandbox's network cannot be opened: {error}") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(
                f"The sandbox's network cannot be opened: {said or 'its helper gave no reason'}. Run without a "
                "network, or let this user enter the namespaces that it creates (setns)."
            )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=descriptors[0])
    listener.settimeout(0)
    return listener
