"""A call is planned once, when it is met, and again only after a pause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import Agent, AsyncRuntime, Outcome, Policy, ScriptedProvider, Status, pick_sandbox
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.changes import Planner
from agent_runtime.workspace.files import Workspace

DONE = "```completion\nDone.\n```\n"
FIVE = "".join(f'write_file("{name}.txt")\n' for name in "abcde")
FIVE_WRITES = f"```codepilot\n{FIVE}```\n" + "".join(f"```\n{name}\n```\n" for name in "abcde") + DONE


class Counted:
    """How often something is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.calls: list[tuple[object, ...]] = []
        method: Callable[..., object] = getattr(owner, name)

        def counting(*args: object) -> object:
            self.calls.append(args[1:])
            return method(*args)

        monkeypatch.setattr(owner, name, counting)

    @property
    def count(self) -> int:
        return len(self.calls)


def runtime_on(root: Path, *replies: str, level: str) -> AsyncRuntime:
    policy = Policy(default="ask" if level == "ask" else "allow")
    sandbox = pick_sandbox("local", SandboxSettings())
    agent = Agent(
        provider=ScriptedProvider([*replies]), work_dir=root, sandbox=sandbox, policy=policy, chat=False, name="Counter"
    )
    return AsyncRuntime(agent, state_key=b"k" * 32)


@pytest.mark.parametrize("level", ["ask", "auto"])
async def test_five_writes_are_planned_five_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    planned = Counted(monkeypatch, Planner, "plan")
    async with runtime_on(tmp_path, FIVE_WRITES, level=level) as runtime:
        runtime.hooks.register("permission_request", lambda **_: True)
        outcome = await runtime.run("Write them")
    assert outcome.status is Status.FINISHED
    assert planned.count == 5
    assert [(tmp_path / f"{name}.txt").read_text() for name in "abcde"] == [f"{name}\n" for name in "abcde"]


async def test_a_call_is_planned_again_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Counted(monkeypatch, Planner, "plan")
    one = f'```codepilot\nwrite_file("a.txt")\n```\n```\na\n```\n{DONE}'
    async with runtime_on(tmp_path, one, level="ask") as runtime:
        paused: Outcome = await runtime.run("Write it")
        assert (paused.status, planned.count) == (Status.PAUSED, 1)
        outcome = await runtime.resume(approve=True)
    assert (outcome.status, planned.count) == (Status.FINISHED, 2)


async def test_the_path_of_a_write_is_resolved_when_it_is_planned_and_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = f'```codepilot\nwrite_file("a.txt")\n```\n```\na\n```\n{DONE}'
    resolved = Counted(monkeypatch, Workspace, "resolve")
    async with runtime_on(tmp_path, one, level="auto") as runtime:
        await runtime.run("Write it")
    assert resolved.calls.count(("a.txt",)) == 2
