"""§9: `reset` forgets history, archive, counters, terminals, queued messages and tracked files."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import Agent, AsyncRuntime, FileSession, Outcome, Policy, Rule, Runtime, Status, UsageError
from tests.agent_runtime.seed.parts import Model, reply
from tests.waiting import eventually

Start = Callable[..., tuple[AsyncRuntime, Model]]


@pytest.mark.parametrize("backend", ["memory", "file", "db"])
async def test_the_history_is_gone_from_memory_and_store(start: Start, tmp_path: Path, backend: str) -> None:
    using = {"session": backend, "session_dir": tmp_path / "sessions", "db_url": f"sqlite:///{tmp_path}/a.db"}
    runtime, model = start(reply(done="One."), reply(done="Anew."), using=using)
    await runtime.run("First")
    await runtime.reset()
    assert runtime.messages == []
    assert list(runtime.session.events) == []
    assert not runtime.session.exists()  # type: ignore[attr-defined] # all three have it
    await runtime.run("Second")
    assert model.requests[-1].messages[0].text.startswith("[Task 1]\nSecond")
    assert len(model.requests[-1].messages) == 1
    assert len(runtime.messages) == 2


async def test_the_log_file_is_deleted(start: Start, tmp_path: Path) -> None:
    runtime, _ = start(reply(done="One."), using={"session": "file", "session_dir": tmp_path / "sessions"})
    await runtime.run("First")
    session = runtime.session
    assert isinstance(session, FileSession)
    assert session.path.exists()
    await runtime.reset()
    assert not session.path.exists()


async def test_the_archive_is_empty_and_calls_are_counted_anew(start: Start) -> None:
    runtime, model = start(
        reply(done="One."),
        reply('archive_context(task=1, summary="One.")', done="Two."),
        reply("list_archived_context()"),
        reply(done="None."),
    )
    await runtime.run("One")
    await runtime.run("Two")
    await runtime.reset()
    numbers: list[int] = []
    runtime.hooks.register("tool_call", lambda number, **_: numbers.append(number))
    outcome = await runtime.run("What is archived?")
    assert "no task is archived" in model.read[-1]
    assert numbers == [1]
    assert (outcome.steps, outcome.usage.requests) == (2, 2)


async def test_terminals_are_killed_with_what_they_had(start: Start) -> None:
    runtime, model = start(
        reply('execute("main", "WORD=kept; cd /")\nexecute("server", "sleep 600", 0, new_terminal=True)'),
        reply(done="Set."),
        reply('execute("main", "pwd; echo word=$WORD.")'),
        reply('read_output("server")'),
        reply(done="Gone."),
    )
    await runtime.run("Set up")
    assert "server: running" in model.requests[1].status
    await runtime.reset()
    await runtime.run("Look")
    assert "server" not in model.requests[2].status
    assert "word=.\n" in model.read[-2]
    assert "there is no terminal 'server'" in model.read[-1]


async def test_queued_messages_are_forgotten(start: Start) -> None:
    runtime, model = start(reply(done="Done."))
    runtime.send_message("Never mind this")
    await runtime.reset()
    await runtime.run("Do it")
    assert "Never mind this" not in model.read[0]


async def test_files_are_no_longer_tracked(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("one\n")
    runtime, model = start(reply('read_file("a.txt")', done="Read."), reply("print('look')"), reply(done="Looked."))
    await runtime.run("Read")
    await runtime.reset()
    (place / "a.txt").write_text("two\n")
    await runtime.run("Look")
    assert not any("[ENVIRONMENT CHANGE]" in text for text in model.read)


async def test_a_run_that_waits_for_a_person_is_forgotten(start: Start) -> None:
    asks = Policy(rules=(Rule(decision="ask", tool="execute"),))
    runtime, _ = start(reply('execute("main", "true")'), reply(done="Free."), policy=asks)
    assert (await runtime.run("Ask")).status is Status.PAUSED
    await runtime.reset()
    assert runtime.pending is None
    assert not runtime.unfinished
    assert (await runtime.run("Go")).status is Status.FINISHED


async def test_a_run_under_way_is_stopped_first(start: Start) -> None:
    runtime, _ = start(reply('execute("main", "sleep 600")'), reply(done="Anew."))
    calls: list[str] = []
    runtime.hooks.register("tool_call", lambda tool, **_: calls.append(tool))
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually(lambda: calls)
    await asyncio.wait_for(runtime.reset(), timeout=10)
    assert (await running).status is Status.STOPPED
    assert runtime.messages == []
    assert str(await runtime.run("Again")) == "Anew."


async def test_a_run_that_waits_for_its_turn_is_refused_instead_of_holding_the_reset_up(
    start: Start, place: Path
) -> None:
    runtime, model = start(reply('execute("main", "touch asleep; sleep 600")'), reply(done="Anew."))
    running = [asyncio.create_task(runtime.run("Sleep")), asyncio.create_task(runtime.run("Wait"))]
    await eventually((place / "asleep").exists)
    await asyncio.wait_for(runtime.reset(), timeout=10)
    stopped, waited = await asyncio.gather(*running, return_exceptions=True)
    assert isinstance(stopped, Outcome)
    assert stopped.status is Status.STOPPED
    assert isinstance(waited, UsageError)
    assert str(await runtime.run("Again")) == "Anew."
    assert len(model.requests) == 2


def reset(runtime: AsyncRuntime) -> None:
    """Call it as the document does, without `await`."""
    runtime.reset()  # type: ignore[unused-awaitable]


async def test_without_await_the_state_is_gone_at_once_and_the_next_run_is_new(start: Start) -> None:
    runtime, model = start(
        reply('execute("server", "sleep 600", 0, new_terminal=True)', done="One."), reply(done="Anew."), chat=True
    )
    await runtime.run("First")
    reset(runtime)
    assert runtime.messages == []
    assert str(await runtime.run("Second")) == "Anew."
    assert len(model.requests[-1].messages) == 1
    assert "server" not in model.requests[-1].status


async def test_without_await_programs_end_without_another_run(start: Start, place: Path) -> None:
    runtime, _ = start(reply('execute("server", "sleep 600", 0, new_terminal=True)', done="One."), chat=True)
    await runtime.run("First")
    assert await runtime.list_programs()
    reset(runtime)
    await eventually(lambda: not runtime._stale_tools)
    assert not await runtime.list_programs()


@pytest.mark.parametrize("closes", [False, True])
async def test_without_await_a_run_under_way_is_stopped_and_its_history_deleted(
    start: Start,
    tmp_path: Path,
    closes: bool,  # noqa: FBT001 - a test's parameter
) -> None:
    using = {"session": "file", "session_dir": tmp_path / "sessions"}
    runtime, _ = start(reply('execute("main", "sleep 600")'), reply(done="Anew."), using=using)
    calls: list[str] = []
    runtime.hooks.register("tool_call", lambda tool, **_: calls.append(tool))
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually(lambda: calls)
    reset(runtime)
    if closes:
        await runtime.close()
    else:
        assert str(await runtime.run("Again")) == "Anew."
    assert (await running).status is Status.STOPPED
    await runtime.close()
    logs = [path.read_text() for path in (tmp_path / "sessions").glob("*.jsonl")]
    assert len(logs) == (0 if closes else 1)
    assert "sleep 600" not in "".join(logs)


def test_between_two_event_loops_it_resets_as_well(described: Callable[..., tuple[Agent, Model]]) -> None:
    agent, model = described(reply('execute("main", "cd /")', done="One."), reply('execute("main", "pwd")', done="2."))
    runtime = AsyncRuntime(agent)
    with asyncio.Runner() as runner:
        runner.run(runtime.run("First"))
        reset(runtime)
        assert runtime.messages == []
        runner.run(runtime.run("Second"))
        assert model.requests[-1].messages[0].text.startswith("[Task 1]\nSecond")
        assert "/\n" not in runtime.messages[-1]["content"]
        runner.run(runtime.close())


def test_a_loop_that_ends_while_programs_are_ended_reports_no_error(
    described: Callable[..., tuple[Agent, Model]], caplog: pytest.LogCaptureFixture
) -> None:
    async def run_and_reset(turns: int) -> None:
        runtime = AsyncRuntime(described(reply('execute("main", "true")'), reply(done="Done."))[0])
        await runtime.run("Do it")
        reset(runtime)
        for _ in range(turns):
            await asyncio.sleep(0)

    for turns in range(8):
        asyncio.run(run_and_reset(turns))
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_thread_resets_a_run_that_the_loop_works_on(start: Start) -> None:
    runtime, _ = start(reply('execute("main", "sleep 600")'))
    calls: list[str] = []
    runtime.hooks.register("tool_call", lambda tool, **_: calls.append(tool))
    running = asyncio.create_task(runtime.run("Sleep"))
    await eventually(lambda: calls)
    await asyncio.to_thread(reset, runtime)
    assert (await running).status is Status.STOPPED
    await eventually(lambda: runtime.messages == [])


def test_the_blocking_runtime_resets_as_well(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, model = start_sync(reply(done="One."), reply(done="Anew."))
    runtime.run("First")
    runtime.reset()
    assert runtime.messages == []
    assert str(runtime.run("Start over")) == "Anew."
    assert len(model.requests[-1].messages) == 1
