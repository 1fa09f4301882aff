"""A completion beside commands: it waits for those that run, and is asked for again once where one failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    CompletionWithdrawn,
    InMemorySession,
    Observed,
    Policy,
    Rule,
    RunLimits,
    Sandbox,
    Status,
    ToolReturned,
)
from agent_runtime.providers.scripted import ScriptedReply
from agent_runtime.run import loop
from tests.agent_runtime.transports.native.parts import Model, asks, finish
from tests.waiting import eventually

Call = tuple[str, dict[str, Any]]
ENDS = "for n in $(seq 20000); do :; done; echo finished > end.txt"
RUNS_ON = "sleep 1000"
ASKS = Policy(rules=(Rule(decision="ask", tool="write_file", reason="a person decides"),))


@pytest.fixture(params=["blocks", "tools"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(command: str, *, terminal: str = "main", **options: object) -> Call:
    """Return a call that does not wait for the command's end unless `timeout` says so."""
    if terminal != "main":
        options["new_terminal"] = True
    return "execute", {"session_id": terminal, "command": command, **options}


class Script:
    """Replies of one transport, and the runtime that gets them."""

    def __init__(self, transport: str, place: Path, sandbox: Sandbox) -> None:
        self.transport, self.place, self.sandbox = transport, place, sandbox
        self.session = InMemorySession()

    def reply(self, *calls: Call, summary: str = "Done.") -> str | ScriptedReply:
        if self.transport == "tools":
            return asks(*calls, finish(summary))
        lines = "\n".join(
            f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls
        )
        code = f"```codepilot\n{lines}\n```\n" if calls else ""
        return f"{code}```completion\n{summary}\n```\n"

    def act(self, *calls: Call) -> str | ScriptedReply:
        """Return a reply without a completion."""
        return asks(*calls) if self.transport == "tools" else str(self.reply(*calls)).partition("```completion")[0]

    def start(self, replies: Sequence[str | ScriptedReply], **settings: object) -> AsyncRuntime:
        settings = {"policy": Policy(), "chat": False} | settings
        agent = Agent(
            provider=Model(replies),
            work_dir=self.place,
            sandbox=self.sandbox,
            transport=self.transport,  # type: ignore[arg-type] # one of the two words
            **settings,  # type: ignore[arg-type] # of an agent
        )
        return AsyncRuntime(agent, self.session)

    @property
    def observations(self) -> list[str]:
        return [event.text for event in self.session.events if isinstance(event, Observed)]


@pytest.fixture
def script(transport: str, place: Path, sandbox: Sandbox) -> Script:
    return Script(transport, place, sandbox)


async def test_a_completion_waits_for_a_command_that_timed_out_in_its_step(script: Script) -> None:
    async with script.start([script.reply(run(ENDS, timeout=0))]) as runtime:
        outcome = await runtime.run("Do it")
        assert (outcome.status, outcome.steps) == (Status.FINISHED, 1)
        assert (script.place / "end.txt").read_text() == "finished\n"
        *_, last = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
        assert isinstance(last.value, dict)
        assert (last.tool, last.value["status"], last.value["exit_code"]) == ("read_output", "completed", 0)


async def test_a_completion_waits_for_a_command_of_the_step_before(script: Script) -> None:
    first = script.act(run(ENDS, timeout=0))
    async with script.start([first, script.reply()]) as runtime:
        outcome = await runtime.run("Do it")
        assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 2)
        assert (script.place / "end.txt").read_text() == "finished\n"


async def test_a_completion_above_a_known_failure_counts_and_one_above_an_unknown_failure_does_not(
    script: Script,
) -> None:
    async with script.start([script.act(run("exit 3 | cat; (exit 3)")), script.reply()]) as runtime:
        assert (await runtime.run("Do it")).steps == 2
    script.session = InMemorySession()
    fails = script.act(run(f"{ENDS}; (exit 4)", timeout=0))
    async with script.start([fails, script.reply(summary="First."), script.reply(summary="Second.")]) as runtime:
        outcome = await runtime.run("Do it")
    assert (outcome.summary, outcome.steps) == ("Second.", 3)
    assert "ended with exit code 4" in script.observations[1]
    assert "withdrawn, once" in script.observations[1]


@pytest.mark.parametrize("calls", [[run("exit 3 | cat; (exit 3)")], [run("(exit 3)"), run("true")]])
async def test_a_completion_beside_a_failed_command_is_asked_for_again_once(script: Script, calls: list[Call]) -> None:
    replies = [script.reply(*calls, summary="First."), script.reply(*calls, summary="Second.")]
    async with script.start(replies) as runtime:
        withdrawn: list[object] = []
        runtime.hooks.add(lambda event: withdrawn.append(event) if isinstance(event, CompletionWithdrawn) else None)
        outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Second.", 2)
    assert f"`{calls[0][1]['command']}` in main ended with exit code 3" in script.observations[0]
    assert len(withdrawn) == 1


async def test_a_block_without_calls_counts_after_a_known_failure(place: Path, sandbox: Sandbox) -> None:
    script = Script("blocks", place, sandbox)
    prints = "```codepilot\nprint('as seen')\n```\n```completion\nIt fails.\n```\n"
    async with script.start([script.act(run("(exit 3)")), prints]) as runtime:
        outcome = await runtime.run("Check")
    assert (outcome.summary, outcome.steps) == ("It fails.", 2)


async def test_a_later_run_of_the_same_command_counts(script: Script) -> None:
    calls: list[Call] = [run("test -e fixed"), ("write_file", {"path": "fixed", "content": "x"}), run("test -e fixed")]
    if script.transport == "blocks":
        calls[1] = run("touch fixed")
    async with script.start([script.reply(*calls)]) as runtime:
        assert (await runtime.run("Do it")).steps == 1


async def test_a_command_that_never_ends_is_reported_once_and_listed_at_the_end(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_SETTLE_SECONDS", 0.01)
    replies = [
        script.reply(run(RUNS_ON, timeout=0)),
        script.reply(("read_output", {"session_id": "main", "timeout": 0})),
    ]
    async with script.start(replies) as runtime:
        outcome = await runtime.run("Do it")
        assert (outcome.status, outcome.steps) == (Status.FINISHED, 2)
        assert f"`{RUNS_ON}` in main has not ended" in script.observations[0]
        assert await runtime.list_programs() == (RUNS_ON,)


async def test_a_completion_waits_once_for_all_commands(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SETTLE_SECONDS", 0.5)
    calls = [run(RUNS_ON, timeout=0), *(run(f"{RUNS_ON}{n}", terminal=f"t{n}", timeout=0) for n in range(2))]
    async with script.start([script.reply(*calls), script.reply()]) as runtime:
        assert (await runtime.run("Do it")).steps == 2
        returned = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
    seconds = [event.args["timeout"] for event in returned if event.tool == "read_output"]
    assert len(seconds) == 3
    assert sum(float(str(number)) for number in seconds) < 2 * 0.5


async def test_an_interrupted_command_and_an_ended_terminal_are_no_reason_to_ask_again(script: Script) -> None:
    calls: list[Call] = [
        run("cat"),
        ("send_input", {"session_id": "main", "text": "\x03"}),
        run("cat", terminal="server"),
        ("terminate_terminal", {"session_id": "server"}),
    ]
    code = "\n".join(f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls)
    reply = script.reply(*calls) if script.transport == "blocks" else asks(("script", {"code": code}), finish())
    async with script.start([reply]) as runtime:
        assert (await runtime.run("Do it")).steps == 1
        assert await runtime.list_programs() == ()


@pytest.mark.parametrize("settings", [{"policy": Policy(limits=RunLimits(max_steps=1))}, {"chat": True}])
async def test_no_completion_is_withdrawn_in_the_last_step_or_in_a_chat(
    script: Script, settings: dict[str, object]
) -> None:
    async with script.start([script.reply(run("false"))], **settings) as runtime:
        outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 1)


async def test_a_paused_run_is_not_asked_a_second_time(script: Script) -> None:
    second = script.reply(run("false"), ("write_file", {"path": "b.txt", "content": "x"}))
    if script.transport == "blocks":
        second = (
            '```codepilot\nexecute("main", "false")\nwrite_file("b.txt")\n```\n```text\nx\n```\n'
            "```completion\nDone.\n```\n"
        )
    async with script.start([script.reply(run("false")), second], policy=ASKS) as runtime:
        assert (await runtime.run("Do it")).status is Status.PAUSED
        outcome = await runtime.resume(approve=True)
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 2)


async def test_programs_in_the_background_are_listed_until_they_end(script: Script) -> None:
    async with script.start([script.reply(run("(setsid sleep 1001 &) ; sleep 1002 & true"))]) as runtime:
        await runtime.run("Do it")

        async def find_both() -> set[str]:  # a fork of the shell has its name until it starts the program
            programs = {*await runtime.list_programs()}
            return programs if programs == {"sleep 1001", "sleep 1002"} else set()

        assert len(await eventually(find_both)) == 2
        await runtime.registry.get("terminate_terminal").func("main")
        assert await runtime.list_programs() == ()
