"""§19: `abort` stops a run from anywhere: before the next call, in a command, in the model's stream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Chunk,
    EventType,
    ReplyStart,
    Request,
    Runtime,
    Status,
    TextChunk,
    on_tool_call,
)
from agent_runtime.delegation.children import ChildRuns
from tests.agent_runtime.seed.parts import Model, files_in, reply, watch
from tests.waiting import eventually

Start = Callable[..., tuple[AsyncRuntime, Model]]


class Endless(Model):
    """Streams for ever, and remembers that its stream was closed."""

    def __init__(self) -> None:
        super().__init__([])
        self.begun = self.closed = False

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        try:
            yield ReplyStart(attempt=1)
            while True:
                self.begun = True
                yield TextChunk(text="and so on ")
                await asyncio.sleep(0)
        finally:
            self.closed = True


async def test_it_stops_a_run_that_was_called_and_has_not_begun(start: Start) -> None:
    runtime, model = start(reply(done="Anew."))
    task = asyncio.create_task(runtime.run("Build a complete backend"))
    runtime.abort()
    outcome = await task
    assert (outcome.status, model.requests) == (Status.STOPPED, [])
    assert "before it began" in str(outcome)
    assert str(await runtime.run("Again")) == "Anew."


async def test_it_stops_before_the_next_call(start: Start, place: Path) -> None:
    runtime, _ = start(reply('first()\nexecute("main", "touch second")'), reply(done="Anew."))

    def first() -> str:
        """Be the first call."""
        runtime.abort()
        return "made"

    runtime.register_tool("first", first)
    seen = watch(runtime, EventType.TOOL_CALL, EventType.FINISH, EventType.END)
    outcome = await runtime.run("Do both")
    assert outcome.status is Status.STOPPED
    assert "stopped" in str(outcome)
    assert outcome.summary is None
    assert [arguments.get("tool") for _, arguments in seen] == ["first", None]
    assert not (place / "second").exists()
    assert str(await runtime.run("Start again")) == "Anew."


async def test_whoever_is_told_of_a_call_can_still_prevent_it(start: Start, place: Path) -> None:
    runtime, _ = start(reply('write_file("a")\nwrite_file("b")', "a", "b"))

    @on_tool_call(runtime)
    def prevent(**_: object) -> None:
        runtime.abort()

    assert (await runtime.run("Write")).status is Status.STOPPED
    assert files_in(place) == []


async def test_the_next_run_is_told_what_of_the_step_was_done(start: Start, place: Path) -> None:
    runtime, model = start(reply('write_file("a")\nstop()\nwrite_file("b")', "a", "b"), reply(done="Understood."))

    def stop() -> None:
        """Stop the run."""
        runtime.abort()

    runtime.register_tool("stop", stop)
    await runtime.run("Write")
    assert files_in(place) == ["a"]
    await runtime.run("What was done?")
    assert "[The run was stopped. Calls of this step that were answered: Writing a" in model.read[-1]
    assert model.read[-1].index("Writing a") < model.read[-1].index("[Task 2]")


async def test_it_interrupts_a_command_that_runs_and_the_terminal_lives_on(start: Start, place: Path) -> None:
    runtime, model = start(
        reply('execute("main", "WORD=kept; touch asleep; sleep 30; touch woken", 30)'),
        reply('execute("main", "echo $WORD")'),
        reply(done="Seen."),
    )
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually((place / "asleep").exists)
    runtime.abort()
    outcome = await asyncio.wait_for(running, timeout=10)
    assert outcome.status is Status.STOPPED
    await runtime.run("Look")
    assert "kept\n" in model.read[-1]
    assert not (place / "woken").exists()


async def test_it_closes_the_models_stream(described: Callable[..., tuple[Agent, Model]]) -> None:
    model = Endless()
    async with AsyncRuntime(replace(described()[0], provider=model)) as runtime:
        running = asyncio.create_task(runtime.run("Talk"))
        await eventually(lambda: model.begun)
        runtime.abort()
        outcome = await asyncio.wait_for(running, timeout=10)
        assert outcome.status is Status.STOPPED
        assert model.closed


async def test_with_nothing_under_way_it_does_nothing(start: Start) -> None:
    runtime, _ = start(reply(done="One."), reply(done="Two."))
    runtime.abort()
    assert str(await runtime.run("Do it")) == "One."
    runtime.abort()
    assert str(await runtime.run("Do it")) == "Two."


async def test_cancelling_the_task_that_runs_it_is_recorded_and_goes_on_up(start: Start) -> None:
    runtime, _ = start(reply('execute("main", "sleep 30", 30)'), reply(done="Anew."))
    calls = watch(runtime, EventType.TOOL_CALL)
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually(lambda: calls)
    running.cancel()
    [result] = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError)
    assert runtime.session.events[-1].outcome.status is Status.STOPPED  # type: ignore[union-attr]
    assert str(await runtime.run("Again")) == "Anew."


async def test_a_resumable_run_whose_caller_is_cancelled_goes_on_later(start: Start) -> None:
    runtime, _ = start(reply('execute("main", "sleep 30", 30)'), reply(done="Gone on."), using={"resumable": True})
    calls = watch(runtime, EventType.TOOL_CALL)
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually(lambda: calls)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert runtime.unfinished
    assert str(await runtime.resume()) == "Gone on."


async def test_a_run_that_came_to_its_end_has_ended_though_its_caller_is_cancelled_while_copies_are_removed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _ = start(reply(done="Finished."), using={"resumable": True})
    begun = asyncio.Event()

    async def block_close(_: ChildRuns) -> None:
        if runtime.session.events:  # else it is what begins a run
            begun.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(runtime.run("Go"))
    with monkeypatch.context() as patched:
        patched.setattr(ChildRuns, "close", block_close)
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert not runtime.unfinished
    assert str(runtime.outcome) == "Finished."


def test_another_thread_stops_the_blocking_runtime(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, _ = start_sync(reply('execute("main", "sleep 30", 30)'), reply(done="Anew."))
    running = threading.Event()
    runtime.hooks.register(EventType.TOOL_CALL, lambda **_: running.set())

    def stop() -> None:
        assert running.wait(10)
        runtime.abort()

    thread = threading.Thread(target=stop)
    thread.start()
    assert runtime.run("Sleep").status is Status.STOPPED
    thread.join()
    assert str(runtime.run("Again")) == "Anew."


async def test_of_two_runs_at_once_the_second_waits_for_the_first(start: Start) -> None:
    runtime, model = start(
        reply('execute("main", "echo one")'), reply("print('one again')"), reply(done="One."), reply(done="Two.")
    )
    seen = watch(runtime, EventType.START, EventType.END)
    first, second = await asyncio.gather(runtime.run("First"), runtime.run("Second"))
    assert (str(first), str(second)) == ("One.", "Two.")
    assert [kind for kind, _ in seen] == [EventType.START, EventType.END] * 2
    assert [arguments["task"] for kind, arguments in seen if kind is EventType.START] == ["First", "Second"]
    assert "Second" not in "".join(model.read[:3])


def test_of_two_runs_at_once_from_two_threads_the_second_waits(
    start_sync: Callable[..., tuple[Runtime, Model]],
) -> None:
    runtime, _ = start_sync(*[reply("print(1)"), reply(done="Done.")] * 4)
    seen = watch(runtime, EventType.START, EventType.END)
    threads = [threading.Thread(target=runtime.run, args=(f"Task {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [kind for kind, _ in seen] == [EventType.START, EventType.END] * 4
