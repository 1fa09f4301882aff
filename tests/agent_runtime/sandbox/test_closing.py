from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_runtime import Network
from agent_runtime.sandbox import egress as egress_module
from agent_runtime.sandbox.egress import Egress


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    monkeypatch.setattr(egress_module, "listen_inside", lambda _namespace: listener)
    return listener


@pytest.fixture
def namespace() -> Iterator[int]:
    with Path("/proc/self/ns/net").open() as entry:
        yield entry.fileno()


@asynccontextmanager
async def serving(namespace: int) -> AsyncIterator[None]:
    egress = Egress(Network.of("a.example"), told=lambda _: None, lost=lambda _: None)
    await egress.serve(namespace)
    yield
    await egress.close()


async def test_a_proxy_that_is_closed_before_it_has_begun_listens_no_more(
    namespace: int, listener: socket.socket
) -> None:
    async with serving(namespace):
        pass
    assert listener.fileno() < 0


@pytest.mark.parametrize("turns", range(6))
async def test_a_proxy_that_is_closed_while_a_connection_comes_closes_that(
    turns: int, namespace: int, listener: socket.socket
) -> None:
    async with serving(namespace):
        for _ in range(3):  # now it waits for connections
            await asyncio.sleep(0)
        client = socket.create_connection(listener.getsockname(), 10)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionResetError):  # it was never taken
        assert await asyncio.to_thread(client.recv, 1) == b""
