from __future__ import annotations

from agent_runtime.core.errors import ToolError
from agent_runtime.core.events import Event, ToolReturned
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.policy.policy import Policy, RunLimits
from agent_runtime.run.approvals import Gate
from agent_runtime.run.calls import Calls, clip, clip_value
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.state import RunState
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.tools.tool import Registry


def test_clipping_keeps_head_and_tail() -> None:
    assert clip("abcdefghij", 10) == "abcdefghij"
    assert clip("a" * 500 + "z" * 500, 10) == "aaaaa\n[990 characters left out]\nzzzzz"


def test_long_texts_inside_plain_data_are_clipped() -> None:
    short = clip_value({"a": ["x" * 1_000_000, 1, None], "b": ("y",)})
    assert isinstance(short, dict)
    assert len(str(short)) < 20_000
    assert short["b"] == ("y",)


async def step(source: str) -> tuple[str, bool, list[Event]]:
    def big() -> str:
        return "x" * 1_000_000

    def fail() -> str:
        raise ToolError("boom " * 100_000, kind="ValueError")

    registry, events = Registry(), list[Event]()
    registry.register_tool("big", big)
    registry.register_tool("fail", fail)
    state = RunState(InMemorySession(), HookSystem(events.append))
    calls = Calls(registry=registry, policy=Policy(limits=RunLimits()), gate=Gate(state), state=state)
    calls.begin_step()
    interpreter = Interpreter(tools=registry.names, stubs=registry.stubs)
    try:
        block = interpreter.run(source, call=calls, show=calls.output.add_print)
        shown, ok = await calls.finish_step(block)
    finally:
        await interpreter.close()
    return shown, ok, events


async def test_the_log_of_calls_does_not_contain_file_contents() -> None:
    _, ok, events = await step("for _ in range(20): big()")
    assert ok
    assert sum(len(e.text) + len(str(e.value)) for e in events if isinstance(e, ToolReturned)) < 500_000


async def test_a_huge_failure_is_shown_by_head_and_tail() -> None:
    for source in ("fail()", "raise ValueError('x' * 1_000_000)"):
        shown, ok, _ = await step(source)
        assert not ok
        assert "characters left out" in shown
        assert len(shown) < 40_000


async def test_output_before_a_failure_stays() -> None:
    shown, ok, _ = await step("print('before')\nassert False, 'why'")
    assert not ok
    assert shown.startswith("before\n\nTraceback")
    assert shown.endswith("AssertionError: why")
