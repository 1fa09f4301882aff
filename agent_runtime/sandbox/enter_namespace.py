"""Listen in another network namespace and send the socket: `enter_namespace.py NAMESPACE SOCKET PORT`.

The arguments are descriptors of the namespace and of a unix socket. A program, since a thread cannot enter the owning
user namespace (setns(2), ioctl_ns(2)); it stays outside the sandbox's PID namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_OWNER = 0xB701  # NS_GET_USERNS
_USER, _NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_BACKLOG = 128


def main(namespace: int, sink: int, port: int) -> None:
    """Create the socket in `namespace` and send it over `sink`."""
    owner = fcntl.ioctl(namespace, _OWNER)
    if not os.path.sameopenfile(owner, os.open("/proc/self/ns/user", os.O_RDONLY)):
        _enter(owner, _USER)
    _enter(namespace, _NETWORK)
    # Loopback only, though there is nothing else in a sandbox's network.
    with socket.create_server(("127.0.0.1", port), backlog=_BACKLOG) as server, socket.socket(fileno=sink) as target:
        socket.send_fds(target, [b"."], [server.fileno()])


def _enter(namespace: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
