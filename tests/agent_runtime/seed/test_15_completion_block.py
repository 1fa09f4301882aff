"""§15: a completion ends the run, in a step of its own or in the one that proves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import AsyncRuntime, EventType, Status, on_finish
from tests.agent_runtime.seed.parts import Model, reply, watch

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_in_a_step_of_its_own(start: Start) -> None:
    runtime, _ = start(
        reply("print('tests pass')"), reply(say="All green.", done="Fixed:\n(1) the `route`\n(2) a test")
    )
    summaries: list[str] = []

    @on_finish(runtime)
    def handle(summary: str, **_: object) -> None:
        summaries.append(summary)

    outcome = await runtime.run("Fix it")
    assert outcome.summary == "Fixed:\n(1) the `route`\n(2) a test"
    assert summaries == [outcome.summary]
    assert outcome.steps == 2


async def test_in_the_step_that_does_the_work(start: Start, place: Path) -> None:
    runtime, model = start(
        reply('write_file("a.py")\nexecute("main", "grep 30 a.py", check=True)', "T = 30", done="30 s.")
    )
    assert str(await runtime.run("Set it")) == "30 s."
    assert len(model.requests) == 1
    assert (place / "a.py").read_text() == "T = 30\n"


async def test_it_counts_only_when_the_step_succeeds(start: Start) -> None:
    runtime, model = start(reply('execute("main", "exit 3", check=True)', done="All is well."), reply(done="It fails."))
    seen = watch(runtime, EventType.COMPLETION_WITHDRAWN, EventType.FINISH)
    outcome = await runtime.run("Test it")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "It fails.", 2)
    assert [kind for kind, _ in seen] == [EventType.COMPLETION_WITHDRAWN, EventType.FINISH]
    assert "The completion was withdrawn" in model.read[1]


@pytest.mark.parametrize("with_action", [True, False])
async def test_its_text_streams_as_it_is_written_or_after_its_step(start: Start, with_action: bool) -> None:  # noqa: FBT001 - a test's parameter
    text = "One long sentence about what was done, and another about what was not."
    runtime, _ = start(reply("print(1)" if with_action else "", done=text), using={"stream": True})
    seen = watch(runtime, EventType.STREAM, EventType.FINISH)
    await runtime.run("Say it")
    pieces = [arguments["text"] for kind, arguments in seen if kind is EventType.STREAM]
    assert (len(pieces) == 1) is with_action
    assert "".join(pieces).strip() == text
    assert seen[-1] == (EventType.FINISH, {"summary": text})


async def test_a_run_that_ends_in_another_way_has_none(start: Start) -> None:
    runtime, _ = start()
    seen = watch(runtime, EventType.FINISH, EventType.END, EventType.RUNTIME_ERROR)
    outcome = await runtime.run("No model")
    assert (outcome.status, outcome.summary) == (Status.FAILED, None)
    assert [kind for kind, _ in seen] == [EventType.RUNTIME_ERROR, EventType.END]
