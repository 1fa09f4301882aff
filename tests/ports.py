"""Ports for programs that have to be told one."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from pathlib import Path

_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FEWEST, _MOST = 10_000, 32_768


def free_port() -> int:
    """A port of the loopback that stays free until its program listens: one of those that the system gives to nobody.

    A port that the system chose could be given to another worker's test, or to a connection, once it is free again.
    """
    first = int(_GIVEN_AWAY.read_text().split()[0]) if _GIVEN_AWAY.exists() else _MOST
    while True:
        port = _FEWEST + secrets.randbelow(max(first, _FEWEST + 1_000) - _FEWEST)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
