"""Names to addresses, asked of the host's resolver."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port; raises OSError when there are none."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """What the host's resolver says.

    Raises:
        OSError: the name is not known, or nobody can be asked.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
