"""Half of a surrogate pair: JSON can spell it, UTF-8 cannot. No message that holds one is left unanswered."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types import TextContent

from agent_runtime import Network
from agent_runtime.core.text import find_surrogate
from agent_runtime.mcp.client import McpConnection, ServerEnvironment
from tests.agent_runtime.mcp.parts import odd, python_sandbox


@asynccontextmanager
async def raw_session(directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server on real pipes, for lines that the official client never sends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "mcp", "--dir", str(directory), "--sandbox", "local",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    try:
        assert "result" in await ask(process, '{"jsonrpc":"2.0","id":0,"method":"initialize","params":%s}', opening)
        await send(process, '{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield process
    finally:
        process.kill()
        await process.wait()


async def send(process: asyncio.subprocess.Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    await process.stdin.drain()


async def ask(process: asyncio.subprocess.Process, line: str, params: object = None) -> dict[str, Any]:
    assert process.stdout is not None
    await send(process, line.replace("%s", json.dumps(params)))
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    return answer


def tool_call(name: str, **arguments: object) -> str:
    return json.dumps(
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    )


async def test_every_request_is_answered_whatever_its_text_is(tmp_path: Path) -> None:
    deep = "[" * 500 + "]" * 500
    async with raw_session(tmp_path) as process:
        for line, request_id, code, text in (
            (
                tool_call("write_file", path="a.txt", content="a\ud800b"),
                7,
                -32602,
                "params.arguments.content is not valid",
            ),
            (tool_call("write_file", path="\udfff", content=""), 7, -32602, "params.arguments.path is not valid"),
            (
                tool_call("write_file", **{"\ud800": ""}),
                7,
                -32602,
                r"the key '\ud800' of params.arguments is not valid",
            ),
            (tool_call("find", paths=["a", {"b": "\udc00"}]), 7, -32602, "params.arguments.paths[1].b is not valid"),
            (r'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}', None, -32602, "id is not valid"),
            (r'{"jsonrpc":"2.0","id":"x","method":"\ud800"}', "x", -32602, "method is not valid"),
            (f'{{"jsonrpc":"2.0","id":8,"method":"ping","params":{{"a":{deep}}}}}', 8, -32700, "recursion limit"),
            ('{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}', 9, -32600, "`params` are not an object"),
            ('{"jsonrpc":"2.0","id":10,"method":5}', 10, -32600, "not a JSON-RPC request"),
            ('{"jsonrpc":"2.0","id":11,"met', None, -32700, "cannot be read"),
            ("[1]", None, -32600, "not a JSON-RPC request"),
        ):
            answer = await ask(process, line)
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), line
            assert text in answer["error"]["message"]
        for line in (
            "",
            r'{"jsonrpc":"2.0","method":"x","params":{"a":"\ud800"}}',
            r'{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}',
        ):
            await send(process, line)  # asks for no answer
        assert await ask(process, '{"jsonrpc":"2.0","id":12,"method":"ping"}') == {
            "jsonrpc": "2.0",
            "id": 12,
            "result": {},
        }
    assert not (tmp_path / "a.txt").exists()


async def test_an_answer_of_a_server_arrives_with_a_sign_for_the_half(tmp_path: Path) -> None:
    place = ServerEnvironment(
        sandbox=python_sandbox(), workspace=tmp_path, network=Network(), on_connection=lambda _connection: None
    )
    connection = McpConnection(odd("halves"), place)
    try:
        (content,) = (await connection.call("echo", {"word": "said"})).content
    finally:
        await connection.close()
    assert isinstance(content, TextContent)
    assert content.text == "said \N{REPLACEMENT CHARACTER} \N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": ["x", {"b": "\ud800"}]}, "a[1].b"),
        ({"a": {"\udfff": 1}}, "the key '\\udfff' of a"),
        ({"\udfff": 1}, "the key '\\udfff' of the message"),
        ("\udc00", "whole"),
        ({"a": "\N{GRINNING FACE}", "b": [None, 1, True, 1.5]}, None),
    ],
)
def test_the_place_of_a_half_is_named(value: object, place: str | None) -> None:
    assert find_surrogate(value, "whole" if isinstance(value, str) else "") == place


def test_the_place_is_bounded_however_long_the_keys_are() -> None:
    value: object = "\ud800"
    for _ in range(200):
        value = {"k" * 10_000: [value] * 3}
    place = find_surrogate(value)
    assert place is not None
    assert len(place) <= 200
