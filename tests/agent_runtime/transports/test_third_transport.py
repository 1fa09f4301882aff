"""A third transport is one file like this one, its name in `TransportName`, and its entry in `toolbox._TRANSPORTS`.

Its replies have one call a line, `! tool argument …`, and `= text` as the last line of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import Agent, AsyncRuntime, Observed, Policy, Rule, Sandbox, ScriptedProvider, Session, Status
from agent_runtime.core.errors import FormatCode, FormatError, Interrupt, Suspend, ToolError
from agent_runtime.core.events import Streamed
from agent_runtime.core.values import CallTool, ToolAnswer, ToolRequest
from agent_runtime.providers.protocol import Piece, StopReason, TextChunk
from agent_runtime.run import toolbox
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.transports.transport import ReplyState, StepSuspended, SuspendedCalls, Transport
from tests.agent_runtime.pausing.parts import ASKS


@dataclass(slots=True, kw_only=True)
class LineReply(ReplyState):
    text: str = ""


class LineTransport(Transport[LineReply]):
    name = "lines"  # type: ignore[assignment] # the name of a real one stands in `TransportName`
    no_action = correction = "Write `! tool argument` to act, or `= text` to finish."

    @override
    def render_guide(self, tools: str, *, chat: bool) -> str:
        return f"{self.no_action}\n{tools}"

    @override
    def start_reply(self) -> LineReply:
        return LineReply()

    @override
    def feed_reply(self, reply: LineReply, chunk: Piece) -> Sequence[Streamed]:
        reply.text += chunk.text if isinstance(chunk, TextChunk) else ""
        return []

    @override
    def parse_reply(self, reply: LineReply, stop: StopReason) -> None:
        if stop == "length":
            raise FormatError("truncated", "The reply was cut off.")
        lines = reply.text.splitlines()
        reply.contents = tuple(line for line in lines if line.startswith("! "))
        reply.has_calls = bool(reply.contents)
        reply.completion = next((line[2:] for line in lines if line.startswith("= ")), None)

    @override
    async def run_calls(
        self,
        reply: LineReply,
        *,
        call: CallTool,
        show: Callable[[str], None],
        answer: Callable[[ToolRequest, str], ToolAnswer],
        suspended: SuspendedCalls | None = None,
    ) -> None:
        first = suspended.calls["line"] if suspended else 0
        for number, line in enumerate(reply.contents[first:], first):
            tool, *arguments = line[2:].split(" ")
            try:
                await call(tool, tuple(arguments), {}, show=True)
            except ToolError as error:
                raise Interrupt(str(error)) from error
            except Suspend:
                state = SuspendedCalls(calls={"transport": self.name, "line": number, "script": None})
                raise StepSuspended(state) from None

    @override
    def explain_format_errors(self, code: FormatCode, count: int) -> str:
        return f"{count} replies were {code}."


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, place: Path, sandbox: Sandbox) -> Callable[..., AsyncRuntime]:
    monkeypatch.setitem(toolbox._TRANSPORTS, LineTransport.name, LineTransport)

    def make(session: Session, *replies: str, rules: tuple[Rule, ...] = ()) -> AsyncRuntime:
        agent = Agent(
            provider=ScriptedProvider(replies),
            work_dir=place,
            sandbox=sandbox,
            policy=Policy(rules=rules),
            chat=False,
            transport=LineTransport.name,  # type: ignore[arg-type] # as above
        )
        return AsyncRuntime(agent, session, state_key=b"k" * 32)

    return make


async def test_a_third_transport_makes_calls_and_finishes(start: Callable[..., AsyncRuntime]) -> None:
    session = InMemorySession()
    replies = ("Hm.", "! read_file a.txt", "! read_file none.txt\n= Withdrawn.", "! read_file a.txt\n= Done.")
    async with start(session, *replies) as runtime:
        outcome = await runtime.run("Look")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 4)
    refused, listed, failed, _ = [event for event in session.events if isinstance(event, Observed)]
    assert LineTransport.no_action in refused.text
    assert "2 | two" in listed.text
    assert (failed.ok, failed.withdrew) == (False, True)


async def test_a_third_transport_pauses_and_resumes_at_the_waiting_call(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    session = InMemorySession()
    async with start(session, "! read_file a.txt\n! execute main touch${IFS}b\n= Done.", rules=ASKS) as runtime:
        assert (await runtime.run("Touch it")).status is Status.PAUSED
        outcome = await runtime.resume(approve=True)
    assert (outcome.status, outcome.summary) == (Status.FINISHED, "Done.")
    [observed] = [event for event in session.events if isinstance(event, Observed)]
    assert observed.text.index("2 | two") < observed.text.index("touch${IFS}b")
    assert (place / "b").exists()
