"""Rules about files and commands apply to a function registered under a built-in tool's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Policy,
    Rule,
    SandboxSettings,
    ScriptedProvider,
    SettingsError,
    Status,
    pick_sandbox,
)

CAREFUL = Policy(
    rules=(
        Rule(decision="deny", tool="*", paths=("secrets/**",), reason="not for agents"),
        Rule(decision="deny", tool="execute", commands=("git push *", "rm *"), reason="not from here"),
    )
)


def runtime_for(root: Path, control: str, policy: Policy = CAREFUL, **settings: Any) -> AsyncRuntime:  # noqa: ANN401 - an agent's
    replies = [f"```codepilot\n{control}\n```\n```completion\nDone.\n```\n", "```completion\nI could not.\n```\n"]
    agent = Agent(
        provider=ScriptedProvider(replies),
        work_dir=root,
        sandbox=pick_sandbox("local", SandboxSettings()),
        policy=policy,
        chat=False,
        **settings,
    )
    return AsyncRuntime(agent)


def recording(calls: list[object]) -> dict[str, Callable[..., object]]:
    """Create functions with the documented parameters that record their calls."""

    def execute(session_id: str, command: object = "rm all") -> None:
        calls.append((session_id, command))

    def send_input(session_id: str, text: str) -> None:
        calls.append((session_id, text))

    def read_file(path: object) -> None:
        calls.append(path)

    def write_file(path: str, content: str) -> None:
        calls.append((path, content))

    def find(pattern: str, target: object = None) -> None:
        calls.append((pattern, target))

    return {each.__name__: each for each in (execute, send_input, read_file, write_file, find)}


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ('execute("main", "git push origin")', "not from here"),
        ('execute("main", "ls; rm -r .")', "not from here"),
        ('execute("main")', "not from here"),
        ('execute("main", ["rm", "-r", "."])', "rules decide by it"),
        ('execute("main", 7)', "rules decide by it"),
        ('execute("main", "ls")', None),
        ('send_input("main", "rm -r .\\n")', "not from here"),
        ('read_file("secrets/key")', "not for agents"),
        ('read_file("docs/../secrets/key")', "not for agents"),
        ('read_file(["readme", "secrets/key"])', "not for agents"),
        ('read_file(["readme", 7])', "rules decide by it"),
        ('read_file("linked/key")', "not for agents"),
        ("read_file(None)", "rules decide by it"),
        ('read_file("readme")', None),
        ('write_file("secrets/new", "text")', "not for agents"),
        ('write_file("new", "text")', None),
        ('find("KEY", target="secrets")', "not for agents"),
        ('find("KEY", target=["docs", "secrets"])', "not for agents"),
        ('find("KEY")', None),
    ],
)
async def test_rules_apply_to_a_replaced_tool(tmp_path: Path, call: str, refused: str | None) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "linked").symlink_to("secrets")
    calls: list[object] = []
    async with runtime_for(tmp_path, call) as runtime:
        for name, function in recording(calls).items():
            runtime.register_tool(name, function, replace=True)
        outcome = await runtime.run("Try")
        told = outcome.pending.reason if outcome.pending is not None else runtime.messages[-2]["content"]
    if refused is None:
        assert (outcome.summary, len(calls)) == ("Done.", 1)
    else:
        assert calls == []
        assert refused in told


async def test_rules_hold_for_a_name_whose_built_in_the_agent_does_not_have(tmp_path: Path) -> None:
    calls: list[object] = []
    async with runtime_for(tmp_path, 'execute("main", "git push origin")', tools=("read_file",)) as runtime:
        runtime.register_tool("execute", recording(calls)["execute"])
        await runtime.run("Try")
    assert calls == []


async def test_a_function_whose_calls_rules_cannot_be_held_against_is_refused(tmp_path: Path) -> None:
    async with runtime_for(tmp_path, "shell('ls')") as runtime:
        with pytest.raises(SettingsError, match="'command'"):
            runtime.register_tool("execute", lambda line: None, replace=True)
        with pytest.raises(SettingsError, match="'path'"):
            runtime.register_tool("read_file", lambda **options: None, replace=True)
        runtime.register_tool("shell", lambda line: None)
        assert (await runtime.run("Try")).status is Status.FINISHED


async def test_without_such_rules_any_function_may_stand_there(tmp_path: Path) -> None:
    calls: list[object] = []
    policy = Policy(rules=(Rule(decision="allow", tool="execute"),), default="deny")
    async with runtime_for(tmp_path, 'execute("make")', policy=policy) as runtime:
        runtime.register_tool("execute", calls.append, replace=True)
        assert str(await runtime.run("Try")) == "Done."
    assert calls == ["make"]
