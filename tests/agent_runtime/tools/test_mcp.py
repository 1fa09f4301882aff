"""What is made of a server's list of tools."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import Tool

from agent_runtime.core.events import ServedTool
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.mcp.settings import McpServer
from agent_runtime.tools.mcp import build_tool, select_tools

SERVER = McpServer(name="odd", command=("odd",), secrets=("k-12345",))


def listed(schema: dict[str, Any], description: str = "") -> ServedTool:
    (tool,) = select_tools(SERVER, [Tool(name="echo", description=description, input_schema=schema)])
    return tool


def test_no_secret_is_in_a_list() -> None:
    word = {"type": "string", "description": "Not k-12345", "default": "k-12345", "enum": ["k-12345"]}
    tool = listed({"type": "object", "properties": {"word": word}}, "x" * 396 + "k-12345")
    assert tool.description == "x" * 396 + "***"
    assert "12345" not in str(tool.parameters)
    assert "Not ***" in str(tool.parameters)


def test_required_names_of_a_schema_are_properties() -> None:
    properties = {"word": {"type": "string"}}
    lists: list[list[object]] = [["word", "other", ["word"], {}], ["word"]]
    for required in lists:
        tool = listed({"type": "object", "properties": properties, "required": required})
        assert tool.parameters == {"type": "object", "properties": properties, "required": ["word"]}
    others: list[object] = [5, "word", {"word": 1}, None]
    for other in others:
        tool = listed({"type": "object", "properties": properties, "required": other})
        assert tool.parameters == {"type": "object", "properties": properties}


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_definitions_of_a_schema_are_kept(place: str) -> None:
    schema = {
        "type": "object",
        "properties": {"word": {"$ref": f"#/{place}/Word"}},
        place: {"Word": {"type": "string", "enum": ["yes", "no"]}},
    }
    assert listed(schema).parameters == schema


async def test_names_of_parameters_that_become_alike_stay_apart() -> None:
    names = ["a.b", "a-b", "a_b", "a_b_2", "class", "1", *(chr(0x4E00 + number) for number in range(400))]
    given: list[dict[str, Plain]] = []

    async def serve(_served: ServedTool, arguments: dict[str, Plain]) -> ToolResult:
        given.append(arguments)
        return ToolResult(value=None, text="")

    tool = build_tool("odd", listed({"type": "object", "properties": {name: {} for name in names}}), serve)
    own = list(tool.signature.parameters)
    assert own[:8] == ["a_b", "a_b_2", "a_b_3", "a_b_2_2", "class_", "p_1", "_", "__2"]
    assert len(set(own)) == len(names)
    assert max(map(len, own)) < 10
    await tool.func(**dict.fromkeys(own, 1))
    assert list(given[0]) == names
