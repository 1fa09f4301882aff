"""What a service is told of the tools, and how much."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from typing_extensions import TypedDict

from agent_runtime import SettingsError
from agent_runtime.core.errors import ToolError
from agent_runtime.tools.tool import Registry, call_arguments, tool_schema
from tests.agent_runtime.transports.native.parts import answers, asks, finish, requests_of
from tests.agent_runtime.transports.native.test_runs import Start


class Place(TypedDict):
    file: str
    line: int


def declared(func: Callable[..., object]) -> dict[str, Any]:
    registry = Registry()
    registry.register_tool("tool", func)
    schema = tool_schema(registry.get("tool"))
    parameters = json.loads(json.dumps(schema.parameters))
    Draft202012Validator.check_schema(parameters)
    return {"description": schema.description, **parameters}


def test_a_registered_tool_is_declared_by_its_signature_and_docstring() -> None:
    def tool(
        name: str,
        kind: Literal["a", "b"],
        since: date | None = None,
        *more: int,
        places: list[Place],
        **rest: str,
    ) -> None:
        """Do it
        well.

        Not for the model.
        """

    schema = declared(tool)
    assert schema["description"] == "Do it well."
    assert schema["required"] == ["name", "kind", "places"]
    assert schema["properties"] == {
        "name": {"type": "string"},
        "kind": {"enum": ["a", "b"], "type": "string"},
        "since": {"format": "date", "type": "string"},
        "more": {"type": "array", "items": {}},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    }
    assert schema["$defs"]["Place"]["required"] == ["file", "line"]
    assert declared(lambda anything=None: anything)["properties"] == {"anything": {}}


def test_arguments_reach_parameters_of_every_kind() -> None:
    def tool(first: int, /, second: int = 2, *rest: int, named: int = 0, **more: int) -> None: ...

    registry = Registry()
    registry.register_tool("tool", tool)
    made = registry.get("tool")
    assert call_arguments(made, {"first": 1, "second": 5, "rest": [3, 4], "named": 6, "extra": 7}) == (
        (1, 5, 3, 4),
        {"named": 6, "extra": 7},
    )
    assert call_arguments(made, {"first": 1, "named": 6}) == ((1,), {"named": 6})
    with pytest.raises(ToolError, match="rest: must be a list"):
        call_arguments(made, {"first": 1, "rest": "no"})


def test_a_name_that_services_refuse_is_refused_with_the_remedy(start: Start) -> None:
    runtime = start(asks(finish()))
    runtime.register_tool("größe", lambda: 1)
    with pytest.raises(SettingsError, match=r"'größe'.*ASCII.*`blocks`"):
        _ = runtime._toolbox.schemas


async def test_help_can_be_called_beside_other_tools(start: Start) -> None:
    async with start(asks(("help", {"tool": "write_file"}), ("help", {"tool": "nothing"})), asks(finish())) as runtime:
        await runtime.run("Do it")
    shown, refused, *_ = answers(runtime)
    assert "force: bool = False" in shown.text
    assert "there is no tool 'nothing'; there are: read_file," in refused.text


async def test_a_tool_listed_for_scripts_only_can_be_called_directly(start: Start) -> None:
    async with start(asks(("list_archived_context", {})), asks(finish())) as runtime:
        await runtime.run("Do it")
    assert answers(runtime)[0].ok
    assert "list_archived_context" not in [each.name for each in requests_of(runtime)[0].tools]
