"""What the suite does about servers that close (`conftest.py`)."""

from __future__ import annotations

import asyncio
import socket


async def test_a_connection_that_comes_while_its_server_closes_is_closed() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname(), 10) as client:
        for _ in range(2):  # in the first turn it is accepted, and in the next one a task would take it over
            await asyncio.sleep(0)
        server.close()
        assert await asyncio.to_thread(client.recv, 1) == b""
