from __future__ import annotations

from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, SandboxSettings, ScriptedProvider, pick_sandbox
from bench.host_cases import CASES


def test_each_tool_is_measured_with_the_largest_that_it_can_be_given(tmp_path: Path) -> None:
    """A tool that is new needs a case: `make bench` holds its memory and the silence of the event loop to bounds."""
    agent = Agent(provider=ScriptedProvider([]), work_dir=tmp_path, sandbox=pick_sandbox("auto", SandboxSettings()))
    assert {case.tool for case in CASES if case.tool} == set(AsyncRuntime(agent).registry.names)
