"""Servers at an address that answer otherwise than they should."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import McpServerError
from agent_runtime.core.values import Network
from agent_runtime.mcp import client
from agent_runtime.mcp.client import McpConnection, ServerEnvironment
from agent_runtime.mcp.settings import McpServer
from agent_runtime.sandbox import egress
from tests.agent_runtime.mcp.parts import python_sandbox
from tests.clocks import Clock
from tests.waiting import eventually

DENSE = json.dumps({"content": [], "structuredContent": {"a": [[]] * 60_000}})


def answer(body: bytes | str, kind: str = "application/json", status: int = 200, more: str = "") -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def result(number: object, of: str) -> str:
    return f'{{"jsonrpc": "2.0", "id": {json.dumps(number)}, "result": {of}}}'


WAYS: dict[str, Callable[[object], bytes]] = {
    "dense": lambda number: answer(result(number, DENSE)),
    "dense stream": lambda number: answer(f"data: {result(number, DENSE)}\n\n", "text/event-stream"),
    "huge": lambda _number: answer(b"x" * 7_000_000),
    "huge stream": lambda _number: answer(b"data: " + b"x" * 7_000_000 + b"\n\n", "text/event-stream"),
    "lines": lambda _number: answer(b":\n" * 3_400_000, "text/event-stream"),
    "many": lambda _number: answer(b":\r\r" * 100_001, "text/event-stream"),
    "packed": lambda _number: answer(b"x", more="Content-Encoding: gzip\r\n"),
    "refused": lambda _number: answer("no", "text/plain", 401),
}


@dataclass(kw_only=True)
class Odd:
    """A server; the first call of its tool is answered in its way. `left` are the answers whose reader went away."""

    way: str
    session: str = "1"
    methods: list[str] = field(default_factory=list)
    disconnects: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().lower():
                fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                verb = head.split(" ", 1)[0]
                message: dict[str, Any] = json.loads(body) if body else {}
                method = message.get("method", verb)
                self.methods.append(method)
                writer.write(self._answer(method, message, fields.get("mcp-session-id")))
                await writer.drain()
                if self.way == "endless" and method == "tools/call":
                    await self._go_on(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _go_on(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(b": not yet\n\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            self.disconnects += 1
            raise

    def _answer(self, method: str, message: dict[str, Any], session: str | None) -> bytes:
        number, made = message.get("id"), answer("none", "text/plain", 404)
        match method:
            case "get":
                made = answer("retry: 0\n\nid: 1\ndata:\n\n", "text/event-stream")
            case "initialize":
                info = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
                given = json.dumps({**info, "serverInfo": {"name": "odd", "version": "1"}})
                made = answer(result(number, given), more=f"Mcp-Session-Id: {self.session}\r\n")
            case "tools/call" if self.way == "endless":
                made = b""
            case "tools/call" if self.methods.count(method) == 1 and self.way in WAYS:
                made = WAYS[self.way](number)
            case "tools/call" if session == self.session:
                made = answer(result(number, '{"content": [{"type": "text", "text": "said"}]}'))
            case _ if number is None:
                made = answer("", status=202)
            case _:
                pass
        return made


@asynccontextmanager
async def connected(
    odd: Odd, place: Path, *, seconds: float = 20.0, clock: Callable[[], float] = time.monotonic
) -> AsyncGenerator[McpConnection]:
    listening = await asyncio.start_server(odd.serve, "127.0.0.1", 0, limit=2**20)
    port = listening.sockets[0].getsockname()[1]
    server = McpServer(name="odd", url=f"http://127.0.0.1:{port}/mcp", private=True, timeout=seconds)
    where = ServerEnvironment(
        sandbox=python_sandbox(), workspace=place, network=Network(), on_connection=lambda _connection: None
    )
    connection = McpConnection(server, where, clock=clock)
    try:
        yield connection
    finally:
        await connection.close()
        listening.close()


async def call_echo(connection: McpConnection) -> object:
    return (await connection.call("echo", {})).content[0].model_dump()["text"]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("dense", "It sent a message of more than 40,000 values"),
        ("dense stream", "It sent a message of more than 40,000 values"),
        ("huge", "It sent a message of more than 6,291,456 bytes"),
        ("huge stream", "6291456"),
        ("lines", "It said more than 268,435,456 bytes, or 100,000 messages"),
        ("many", "It said more than 268,435,456 bytes, or 100,000 messages"),
        ("packed", "answered with compressed content"),
        ("refused", r"HTTP 401: check `headers`"),
    ],
)
async def test_what_goes_wrong_with_an_answer_is_told(way: str, told: str, tmp_path: Path) -> None:
    async with connected(Odd(way=way), tmp_path) as connection:
        with pytest.raises(McpServerError, match=told) as failed:
            await call_echo(connection)
        assert failed.value.down
        assert await call_echo(connection) == "said"


async def test_a_server_that_was_started_anew_is_connected_to_again(tmp_path: Path) -> None:
    odd = Odd(way="plain")
    async with connected(odd, tmp_path) as connection:
        assert await call_echo(connection) == "said"
        odd.session = "2"
        with pytest.raises(McpServerError, match="it is started again by the next call"):
            await call_echo(connection)
        assert await call_echo(connection) == "said"


async def test_a_server_listens_at_one_of_its_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(egress, "resolve", resolve)
    async with connected(Odd(way="plain"), tmp_path) as connection:
        assert await call_echo(connection) == "said"


async def test_a_stream_is_not_opened_again_without_end(tmp_path: Path) -> None:
    odd = Odd(way="plain")
    async with connected(odd, tmp_path) as connection:
        assert await call_echo(connection) == "said"
        await eventually(lambda: odd.methods.count("get") >= 200, within=30)
        for _ in range(100):
            assert await call_echo(connection) == "said"
        assert odd.methods.count("get") == 200


async def test_a_server_that_said_too_much_is_connected_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 3_000)
    odd = Odd(way="plain")
    async with connected(odd, tmp_path) as connection:
        assert await call_echo(connection) == "said"
        await eventually(lambda: connection.is_spent, within=30)
        assert await call_echo(connection) == "said"
    assert odd.methods.count("initialize") == 2


async def test_an_answer_without_end_is_not_read_after_its_call(tmp_path: Path) -> None:
    odd = Odd(way="endless")
    async with connected(odd, tmp_path, seconds=0.5) as connection:
        with pytest.raises(McpServerError, match=r"did not answer within 0\.5 seconds") as failed:
            await call_echo(connection)
        assert failed.value.down
        await eventually(lambda: odd.disconnects == 1, within=30)


async def test_a_server_that_keeps_ending_is_left_alone_for_a_while(tmp_path: Path) -> None:
    odd, clock = Odd(way="plain"), Clock()
    async with connected(odd, tmp_path, clock=clock) as connection:
        for number in range(5):
            assert await call_echo(connection) == "said"
            odd.session = f"after {number}"
            with pytest.raises(McpServerError, match="it is started again by the next call"):
                await call_echo(connection)
            clock.now += 60
        with pytest.raises(McpServerError, match=r"5 times within 10 minutes .* A call in 300 seconds") as failed:
            await call_echo(connection)
        assert failed.value.down
        clock.now += 300
        assert await call_echo(connection) == "said"
