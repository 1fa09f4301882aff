# ruff: noqa: ANN401 - the functions under test take whatever control code may pass

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any, ClassVar

import pytest

from agent_runtime.core.errors import SandboxError, SettingsError, ToolError
from agent_runtime.core.values import ToolResult
from agent_runtime.policy.policy import Policy
from agent_runtime.tools.tool import Registry, ToolFamily
from tests.block_files import call
from tests.waiting import eventually


def registered(func: Any, name: str = "tool") -> Registry:
    registry = Registry()
    registry.register_tool(name, func)
    return registry


async def called(func: Any, *args: Any, **kwargs: Any) -> Any:
    tool = registered(func).get("tool")
    return (await call(tool, tool.bind(args, kwargs))).value


def everything(a: int, /, b: str = "b", *rest: int, key: bool = False, **more: Any) -> str:
    return f"{a} {b} {rest} {key} {sorted(more.items())}"


def odd_default(x: object = object(), y: int = 1, /, *, z: str) -> None:
    'Ends in a "quote"'


@pytest.mark.parametrize(
    ("args", "kwargs", "answer"),
    [
        ((1,), {}, "1 b () False []"),
        ((1, "x", 2, 3), {"key": True}, "1 x (2, 3) True []"),
        ((1,), {"b": "y", "other": [1]}, "1 y () False [('other', [1])]"),
        ((1,), {"a": 2}, "1 b () False [('a', 2)]"),
    ],
)
async def test_every_kind_of_parameter_gets_its_argument(args: Any, kwargs: Any, answer: str) -> None:
    assert await called(everything, *args, **kwargs) == answer


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (bool, "no"),
        (bool, 1),
        (int, "5"),
        (int, True),
        (int, 1.5),
        (float, "5"),
        (float, True),
        (str, 5),
        (int | None, "5"),
    ],
)
async def test_nothing_becomes_another_type_on_the_way(annotation: Any, value: Any) -> None:
    def func(x: Any) -> str:
        return str(x)

    func.__annotations__["x"] = annotation
    with pytest.raises(ToolError, match="tool: argument x: ") as refusal:
        await called(func, value)
    assert refusal.value.kind == "TypeError"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(float, 5.0), (int | None, None), (list[tuple[int, int]], [[1, 2]]), (str, ""), (Any, {"a": 1})],
)
async def test_compatible_arguments_are_converted(annotation: Any, value: Any) -> None:
    def func(x: Any) -> int:
        return len(repr(x))

    func.__annotations__["x"] = annotation
    assert await called(func, value) == len(repr(value))


async def test_an_exception_of_a_strangers_tool_is_the_calls_failure() -> None:
    def broken() -> None:
        raise KeyError("lost")

    with pytest.raises(ToolError, match="tool: KeyError: 'lost'"):
        await called(broken)


async def test_stop_iteration_fails_its_call_like_any_error() -> None:
    with pytest.raises(ToolError, match="StopIteration"):
        async with asyncio.timeout(10):
            await called(lambda: next(iter(())))


async def test_a_broken_machine_is_not_the_calls_failure() -> None:
    async def broken() -> None:
        raise SandboxError("no machine")

    with pytest.raises(SandboxError):
        await called(broken)


@pytest.mark.parametrize("value", [{1}, object(), b"x", {1: 2}, "x" * 3_000_000, 10**30])
async def test_a_result_that_is_no_plain_data_is_rejected(value: object) -> None:
    with pytest.raises(ToolError, match="Return plain data from the tool"):
        await called(lambda: value)


@pytest.mark.parametrize("name", ["", "a b", "class", "print", "open", "_hidden", "1st"])
def test_a_name_that_control_code_could_not_call_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="identifier"):
        registered(lambda: None, name)


def test_a_name_is_taken_once() -> None:
    registry = registered(lambda: 1)
    with pytest.raises(SettingsError, match="replace=True"):
        registry.register_tool("tool", lambda: 2)
    registry.register_tool("tool", lambda: 3, replace=True)
    registry.remove_tool("tool")
    registry.remove_tool("tool")
    assert "tool" not in registry


def test_an_annotation_that_cannot_be_used_shows_before_the_first_call() -> None:
    def func(x: Any) -> None: ...

    for annotation in ("Nowhere", Registry):
        func.__annotations__["x"] = annotation
        with pytest.raises(SettingsError, match="signature cannot be used"):
            registered(func)


@pytest.mark.parametrize("func", [everything, odd_default, lambda *, a=1: a, lambda x=[]: x])
def test_every_stub_is_python(func: Any) -> None:
    registry = registered(func)
    ast.parse(registry.stubs)
    assert "odd_default" not in registry.stubs


def test_a_stub_marks_positional_and_keyword_parameters() -> None:
    assert "def tool(a: int, /, b: str = 'b', *rest: int, key: bool = False, **more: Any) -> str" in (
        registered(everything).stubs
    )


async def test_a_long_argument_is_described_in_a_few_words() -> None:
    def func(x: str, y: list[int]) -> None: ...

    tool = registered(func).get("tool")
    told = tool.describe_call(tool.bind(("a\nb" * 500_000, [1, 2]), {}))
    assert told.startswith("tool(a ba b")
    assert len(told) < 200


async def test_a_generator_reports_progress_and_its_return_value_is_the_result() -> None:
    def steps(n: int) -> Generator[str, None, str]:
        """Count."""
        for i in range(n):
            yield f"step {i}"
        return "counted"

    async def slow_steps(n: int) -> AsyncGenerator[str]:
        """Count slowly."""
        for i in range(n):
            yield f"step {i}"

    registry = Registry()
    registry.register_tool("steps", steps)
    registry.register_tool("slow_steps", slow_steps)
    told: list[str] = []
    assert (await call(registry.get("steps"), {"n": 2}, told.append)).value == "counted"
    assert (await call(registry.get("slow_steps"), {"n": 3}, told.append)).value == "step 2"
    assert told == ["step 0", "step 1", "step 0", "step 1", "step 2"]


async def test_a_generator_that_raises_fails_its_call() -> None:
    def broken() -> Generator[str, None, None]:
        """Break."""
        yield "so far"
        raise KeyError("gone")

    registry = Registry()
    registry.register_tool("broken", broken)
    with pytest.raises(ToolError, match="KeyError"):
        await call(registry.get("broken"), {})


async def test_a_foreign_sync_tool_does_not_block_the_event_loop() -> None:
    inside, done = threading.Event(), threading.Event()

    def wait_for_the_loop() -> str:
        """Wait until the event loop has moved on."""
        inside.set()
        return "moved on" if done.wait(10) else "held up"

    registry = Registry()
    registry.register_tool("wait_for_the_loop", wait_for_the_loop)
    running = asyncio.create_task(call(registry.get("wait_for_the_loop"), {}))
    await eventually(inside.is_set)
    done.set()
    assert (await running).value == "moved on"


def test_tools_are_added_by_decorator_and_taken_away() -> None:
    class Own(ToolFamily):
        value_types: ClassVar[dict[str, str]] = {"look": "str"}

        def look(self) -> ToolResult:
            """Look."""
            return ToolResult(value="own", text="own")

    registry = Registry()
    registry.add_family(Own())

    @registry.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @registry.tool("look", replace=True)
    def look() -> str:
        """Look elsewhere."""
        return "other"

    assert (add(1, 2), registry.names) == (3, ("look", "add"))
    assert "Look elsewhere" in registry.declarations
    registry.remove_tool("add")
    registry.reset_tools()
    assert registry.names == ("look",)
    assert "Look elsewhere" not in registry.declarations
    registry.clear_tools()
    assert not registry.names


def test_input_passes_the_gate_of_commands() -> None:
    policy = Policy(denied_tools={"execute": "read-only"})
    assert policy.denial_reason("send_input") == "read-only"
    assert policy.denial_reason("read_file") is None
