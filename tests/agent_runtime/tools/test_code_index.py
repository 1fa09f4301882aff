from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import ToolResult
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.tool import Registry
from agent_runtime.workspace.files import Workspace

_SOURCE = '''class Jar:
    """Keeps jam fresh."""

    def open(self):
        self.turn()

    @noisy
    def turn(self): pass


def breakfast(jar):
    Jar().open()
    jar.open()
'''


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Registry]:
    (tmp_path / "jar.py").write_text(_SOURCE)
    (tmp_path / "notes.md").write_text("class Jar\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "lid.py").write_text("def turn(): pass\n")
    with Workspace(tmp_path) as workspace:
        index = WorkspaceIndex(workspace)
        registry = Registry()
        for family in (IndexTools(index), FileTools(workspace), SearchTools(workspace, index=index)):
            registry.add_family(family)
        yield registry
        await index.close()


async def _call(tools: Registry, name: str, **args: Any) -> ToolResult:  # noqa: ANN401 - plain data of any kind
    tool = tools.get(name)
    return await tool.apply(await tool.plan(args))


async def test_a_search_by_words_names_definitions_and_their_lines(tools: Registry) -> None:
    found = await _call(tools, "semantic_search", query="where is jam kept fresh?", top_k=1)
    assert found.value == [{"path": "jar.py", "symbol": "Jar", "kind": "class", "first": 1, "last": 8}]
    assert "jar.py:1-8 class Jar" in found.text


async def test_callers_are_grouped_by_file_and_uncertain_ones_are_marked(tools: Registry) -> None:
    found = await _call(tools, "trace_callers", symbol="Jar.open")
    assert found.text.splitlines()[1:] == ["jar.py", "  12 in breakfast", "  13 in breakfast (maybe)"]
    assert await _call(tools, "semantic_search", query="Jar.open", mode="trace_callers") == found


async def test_a_graph_goes_to_its_depth_in_both_directions(tools: Registry) -> None:
    shallow = await _call(tools, "trace_graph", symbol="breakfast", depth=1)
    deep = await _call(tools, "trace_graph", symbol="breakfast", depth=3)
    assert "Jar.turn" not in shallow.text
    assert "  jar.py:12 Jar.open\n    jar.py:5 Jar.turn" in deep.text
    assert "  jar.py:5 Jar.open\n    jar.py:12 breakfast" in (await _call(tools, "trace_graph", symbol="Jar.turn")).text


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("semantic_search", {"query": " "}),
        ("semantic_search", {"query": "jam", "top_k": 0}),
        ("semantic_search", {"query": "jam", "mode": "guess"}),
        ("trace_graph", {"symbol": "Jar", "depth": 100}),
        ("trace_callers", {"symbol": "nothing"}),
        ("trace_callees", {"symbol": "\n\0"}),
        ("read_file", {"path": "jar.py::nothing"}),
        ("read_file", {"path": "notes.md::Jar"}),
        ("read_file", {"path": "nowhere.py::Jar"}),
    ],
)
async def test_a_wrong_call_is_refused(tools: Registry, tool: str, args: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        await _call(tools, tool, **args)


@pytest.mark.parametrize(
    "query", ['"', "jam OR", "NEAR(jam fresh)", "name:jam*", "^jam - AND ( )", "'; DROP TABLE words; --"]
)
async def test_the_syntax_of_the_search_engine_means_nothing(tools: Registry, query: str) -> None:
    found = await _call(tools, "semantic_search", query=query)
    assert ("jar.py:1-8 class Jar" in found.text) == ("jam" in query)


async def test_a_definition_is_read_by_its_name_as_it_is_now(tools: Registry, tmp_path: Path) -> None:
    assert (await _call(tools, "read_file", path="jar.py::Jar.turn")).value == "    @noisy\n    def turn(self): pass\n"
    (tmp_path / "jar.py").write_text("\n\n" + _SOURCE)
    assert (await _call(tools, "read_file", path="jar.py::breakfast")).value == _SOURCE[_SOURCE.index("def break") :]
    (tmp_path / "a::b").write_text("a file of that name\n")
    assert (await _call(tools, "read_file", path="a::b")).value == "a file of that name\n"


async def test_find_gives_the_definitions_of_a_name(tools: Registry) -> None:
    assert (await _call(tools, "find", pattern="turn", symbol=True)).value == [
        {"file": "jar.py", "line": 8, "text": "method Jar.turn"},
        {"file": "sub/lid.py", "line": 1, "text": "function turn"},
    ]
    below = await _call(tools, "find", pattern="turn", symbol=True, target="sub")
    assert below.value == [{"file": "sub/lid.py", "line": 1, "text": "function turn"}]
    assert (await _call(tools, "find", pattern="turn", symbol=True, include="*.js")).value == []


async def test_half_a_character_is_no_name_to_look_for(tools: Registry) -> None:
    with pytest.raises(ToolError, match="whole characters"):
        await _call(tools, "find", pattern="\ud800", symbol=True)


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("trace_callers", {"symbol": "\ud800"}),
        ("trace_graph", {"symbol": "\ud800"}),
    ],
)
async def test_a_question_without_an_answer_is_an_error(tools: Registry, tool: str, args: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="gave no answer"):
        await _call(tools, tool, **args)
