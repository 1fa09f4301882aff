"""Whole runs by native tool calls against each service, on a real socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    FileSession,
    Policy,
    Provider,
    Rule,
    Sandbox,
    ScriptedProvider,
    SettingsError,
    Status,
)
from tests.agent_runtime.providers.conversations import WIRES, provider_on
from tests.agent_runtime.transports.native.parts import answers
from tests.model_server import ModelServer, Says, Wire

READ = ("toolu_1", "read_file", '{"path": "a.txt"}')
WRITE = ("toolu_2", "write_file", '{"path": "b.txt", "content": "é\\n"}')
ASKS = Policy(rules=(Rule(decision="ask", tool="write_file", reason="writes need a person"),))


def conversation_in(wire: Wire, body: dict[str, object]) -> str:
    """Return the conversation in a request."""
    return json.dumps(body["input" if wire == "responses" else "messages"], ensure_ascii=False)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_run_works_pauses_and_finishes(wire: Wire, place: Path, tmp_path: Path, sandbox: Sandbox) -> None:
    def runtime(provider: Provider) -> AsyncRuntime:
        agent = Agent(provider=provider, work_dir=place, sandbox=sandbox, policy=ASKS, chat=False, transport="tools")
        return AsyncRuntime(agent, FileSession("run", session_dir=tmp_path / "sessions"), state_key=b"k" * 32)

    finish = ("toolu_3", "finish", '{"summary": "Written."}')
    async with ModelServer(replies=[Says("I look.", calls=(READ, WRITE)), Says("", calls=(finish,))]) as server:
        async with runtime(provider_on(server, wire)) as first:
            assert (await first.run("Write it")).status is Status.PAUSED
        async with runtime(provider_on(server, wire)) as later:
            outcome = await later.resume(approve=True)
            given = answers(later)
        assert (outcome.status, outcome.summary, outcome.usage.requests) == (Status.FINISHED, "Written.", 2)
    assert (place / "b.txt").read_text() == "é\n"
    assert [(each.id, each.ok) for each in given] == [("toolu_1", True), ("toolu_2", True), ("toolu_3", True)]
    second = server.requests[1].json
    names = json.dumps(second["tools"])
    assert all(f'"name": "{name}"' in names for name in ("read_file", "script", "finish"))
    assert all(each.text.split("\n")[0] in conversation_in(wire, second) for each in given[:2])


class Speaks(ScriptedProvider):
    tool_calling = "unsupported"


async def test_another_service_goes_on_with_the_conversation_without_foreign_thoughts(
    place: Path, sandbox: Sandbox
) -> None:
    finish = ("toolu_3", "finish", '{"summary": "Looked."}')
    replies = [Says("I look.", thinking="Hm.", calls=(READ,)), Says("", calls=(finish,)), Says("", calls=(finish,))]
    async with ModelServer(replies=replies) as server:
        agent = Agent(
            provider=provider_on(server, "anthropic"), work_dir=place, sandbox=sandbox, chat=False, transport="tools"
        )
        async with AsyncRuntime(agent) as runtime:
            assert (await runtime.run("Look")).status is Status.FINISHED
            await runtime.set_provider(provider_on(server, "responses"))
            assert (await runtime.run("Look again")).status is Status.FINISHED
            with pytest.raises(SettingsError, match="no tool calls of its own"):
                await runtime.set_provider(Speaks([]))
            assert runtime.agent.provider.model == "gpt-6.2-sol"
        assert "Hm." in conversation_in("anthropic", server.requests[1].json)
    last = server.requests[2]
    assert last.wire == "responses"
    assert all(text in conversation_in("responses", last.json) for text in ("I look.", "toolu_1", "Look again"))
    assert "Hm." not in conversation_in("responses", last.json)
