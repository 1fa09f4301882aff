"""`codepilot mcp`, with the official client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.waiting import eventually


async def call(client: Client, name: str, **arguments: object) -> tuple[str, bool]:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text, not result.is_error


def served(directory: Path, *options: str) -> Client:
    words = ["-m", "bot", "mcp", "--dir", str(directory), *options]
    return Client(StdioServerParameters(command=sys.executable, args=words))


async def test_another_agent_reads_writes_and_runs_in_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with served(tmp_path) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"read_file", "find", "list_files", "write_file", "execute"} <= tools.keys()
        assert not {"ask_user", "finish", "script", "delegate"} & tools.keys()
        assert tools["read_file"].input_schema["required"] == ["path"]
        text, ok = await call(client, "read_file", path="a.txt")
        assert ok
        assert "1 | one" in text
        _, ok = await call(client, "write_file", path="b.txt", content="two\n")
        assert ok
        assert (tmp_path / "b.txt").read_text() == "two\n"
        text, ok = await call(client, "execute", session_id="main", command="cat b.txt; pwd; ls /home")
        assert ok
        assert "two\n/workspace\nagent" in text
        assert await call(client, "nothing") == (f"there is no tool 'nothing'; there are: {', '.join(tools)}", False)
        text, ok = await call(client, "read_file", path="../secret")
        assert not ok
        text, ok = await call(client, "read_file", path=3)
        assert (text, ok) == ("read_file: argument path.str: Input should be a valid string", False)


async def test_a_repository_that_a_command_makes_is_set_aside_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "work"
    directory.mkdir()
    async with served(directory) as client:
        text, ok = await call(client, "execute", session_id="main", command="git init -q sub; ls -A sub")
        assert ok
        assert "Set aside: sub/.git" in text
        assert not (directory / "sub/.git").exists()
        (directory / "d/objects").mkdir(parents=True)
        (directory / "d/refs").mkdir()
        text, ok = await call(client, "write_file", path="d/HEAD", content="ref: refs/heads/main")
        assert not ok
        assert "git takes 'd' for a repository" in text
        await call(client, "execute", session_id="main", command="(sleep 1; git init -q late; sleep 60) >&0 2>&0 &")
        await eventually((directory / "late").exists)
    assert not (directory / "late/.git").exists()


async def test_what_would_need_an_approval_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with served(tmp_path, "--sandbox", "local", "--allow", "echo *") as client:
        assert (await call(client, "execute", session_id="main", command="echo hi"))[1]
        text, ok = await call(client, "execute", session_id="main", command="touch x")
        assert not ok
        assert "--allow PATTERN" in text
        assert not (tmp_path / "x").exists()
    async with served(tmp_path, "--level", "read-only") as client:
        assert "execute" not in {tool.name for tool in (await client.list_tools()).tools}
