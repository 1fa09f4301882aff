"""A run whose commands may reach something: what the model is told, and what those who watch are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Event,
    EventType,
    Network,
    NetworkLimits,
    NetworkLost,
    NetworkUsed,
    ScriptedProvider,
    SettingsError,
    Started,
    Status,
    pick_sandbox,
)
from agent_runtime.prompts import system_prompt
from agent_runtime.sandbox.protocol import SandboxSettings
from tests.waiting import eventually

_ASKS = """exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT b.example:443 HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"""


async def test_a_refused_connection_is_reported_to_model_and_listeners(tmp_path: Path) -> None:
    events: list[Event] = []
    errors: list[str] = []
    agent = Agent(
        provider=ScriptedProvider(
            [f"```codepilot\nprint(execute('main', {_ASKS!r})['output'])\n```\n", "```completion\nDone.\n```\n"]
        ),
        work_dir=tmp_path,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        network=Network.of("a.example"),
    )
    async with AsyncRuntime(agent, listeners=[events.append]) as runtime:
        runtime.hooks.register(EventType.SECURITY_ERROR, lambda error, **_: errors.append(error))
        outcome = await runtime.run("Fetch it")
        assert outcome.status is Status.FINISHED
        messages = "".join(message["content"] for message in runtime.messages)
        [started] = [event for event in runtime.session.events if isinstance(event, Started)]
    assert "Network: HTTPS to a.example only" in started.opening
    system = system_prompt(name="A", role="an agent.", replies="", step_chars=1_000)
    assert "without network unless told" in system
    assert "HTTP/1.1 403 b.example is not on the list" in messages
    used = await eventually(lambda: [event for event in events if isinstance(event, NetworkUsed)])
    assert [(each.connection.host, each.connection.allowed) for each in used] == [("b.example", False)]
    assert errors == [f"network: {used[0].connection}"]


async def test_a_run_ends_with_the_step_that_lost_its_network_and_the_next_one_starts_a_new_sandbox(
    tmp_path: Path,
) -> None:
    asks = f"```codepilot\nprint(execute('main', {_ASKS!r})['output'])\n```\n"
    finishes = "```completion\nDone.\n```\n"
    agent = Agent(
        provider=ScriptedProvider([asks, f"{asks}{finishes}"]),
        work_dir=tmp_path,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        network=replace(Network.of("a.example"), limits=NetworkLimits(connections=1)),
    )
    events: list[Event] = []
    async with AsyncRuntime(agent, listeners=[events.append]) as runtime:
        first = await runtime.run("Fetch it")
        assert (first.status, first.usage.requests) == (Status.NETWORK_LOST, 1)
        assert "1 connections were made" in str(first)
        second = await runtime.run("Finish it")
        # What finished in the very step that lost the network is finished.
        assert (second.status, second.usage.requests) == (Status.FINISHED, 1)
        [_, started] = [event for event in runtime.session.events if isinstance(event, Started)]
    assert "Every terminal was ended, because its sandbox had lost its network." in started.opening
    assert sum(isinstance(event, NetworkLost) for event in events) == 2


async def test_without_a_network_the_first_message_has_none(tmp_path: Path) -> None:
    agent = Agent(
        provider=ScriptedProvider(["```completion\nDone.\n```\n"]),
        work_dir=tmp_path,
        sandbox=pick_sandbox("auto", SandboxSettings()),
    )
    async with AsyncRuntime(agent) as runtime:
        await runtime.run("Look")
        [started] = [event for event in runtime.session.events if isinstance(event, Started)]
    assert "Network:" not in started.opening


def test_a_list_of_hosts_needs_a_sandbox_that_keeps_to_it(tmp_path: Path) -> None:
    agent = Agent(
        provider=ScriptedProvider([]),
        work_dir=tmp_path,
        sandbox=pick_sandbox("local", SandboxSettings()),
        network=Network.of("a.example"),
    )
    with pytest.raises(SettingsError, match="cannot enforce a list of hosts"):
        AsyncRuntime(agent)
