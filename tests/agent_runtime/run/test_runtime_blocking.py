"""The blocking runtime: one thread, one loop, for as long as it lives."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    Outcome,
    Policy,
    Rule,
    Runtime,
    ScriptedProvider,
    Status,
    UsageError,
    on_end,
    on_permission_request,
)
from agent_runtime.sandbox.protocol import Sandbox
from tests.waiting import eventually

DONE = "```completion\nDone.\n```\n"


@pytest.fixture
def runtime_of(tmp_path: Path, sandbox: Sandbox) -> Iterator[Callable[..., Runtime]]:
    made: list[Runtime] = []

    def make(*replies: str, policy: Policy | None = None) -> Runtime:
        agent = Agent(provider=ScriptedProvider(replies), work_dir=tmp_path, sandbox=sandbox, policy=policy or Policy())
        made.append(Runtime(agent, quiet=True))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


def test_one_run_after_the_other_uses_the_same_shell(runtime_of: Callable[..., Runtime]) -> None:
    command = '```codepilot\nexecute("main", "echo $((n=n+1))", check=True)\n```\n' + DONE
    runtime = runtime_of(*[command] * 5)
    outcomes = [runtime.run("Count") for _ in range(5)]
    assert {outcome.status for outcome in outcomes} == {Status.FINISHED}
    assert ":cmd5] $ echo $((n=n+1))\n5\n" in runtime.messages[-1]["content"]


async def test_in_an_event_loop_the_error_recommends_async_runtime(runtime_of: Callable[..., Runtime]) -> None:
    runtime = runtime_of(DONE)
    with pytest.raises(UsageError, match="use AsyncRuntime there"):
        runtime.run("Anything")
    assert (await asyncio.to_thread(runtime.run, "Anything")).summary == "Done."


def test_two_runs_at_once_never_interleave(runtime_of: Callable[..., Runtime]) -> None:
    step = '```codepilot\nexecute("main", "true")\n```\n'
    runtime = runtime_of(*[step, step, DONE] * 2)
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(runtime.run("Work"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [outcome.steps for outcome in outcomes] == [3, 3]
    kinds = [type(event).__name__ for event in runtime.session.events]
    assert kinds.index("Ended") < kinds.index("Started", 1)


def test_another_thread_stops_a_run_and_its_command(runtime_of: Callable[..., Runtime]) -> None:
    runtime = runtime_of('```codepilot\nexecute("main", "sleep 1000", timeout=1000)\n```\n', DONE)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtime.run("Sleep")))
    thread.start()
    asyncio.run(eventually(lambda: "sleep 1000" in runtime._async._toolbox.shell.status))
    runtime.abort()
    thread.join(30)
    assert [outcome.status for outcome in outcomes] == [Status.STOPPED]
    assert "running" not in runtime._async._toolbox.shell.status
    assert runtime.run("Again").status is Status.FINISHED


def test_a_handler_may_take_its_time_and_call_the_runtime(runtime_of: Callable[..., Runtime]) -> None:
    policy = Policy(rules=(Rule(decision="ask", tool="execute"),))
    runtime = runtime_of('```codepilot\nexecute("main", "true", check=True)\n```\n' + DONE, policy=policy)
    ended: list[Outcome] = []

    @on_permission_request(runtime)
    def allow(**_: object) -> bool:
        assert threading.current_thread().name != "codepilot"
        runtime.send_message("I said yes.")
        return True

    @on_end(runtime)
    def end(outcome: Outcome, **_: object) -> None:
        ended.append(outcome)

    assert runtime.run("Go").status is Status.FINISHED
    assert len(ended) == 1


def test_closing_twice_is_fine_and_ends_the_thread(runtime_of: Callable[..., Runtime]) -> None:
    earlier = {*threading.enumerate()}
    runtime = runtime_of(DONE)
    runtime.run("Go")
    [thread] = [thread for thread in {*threading.enumerate()} - earlier if thread.name == "codepilot"]
    runtime.close()
    runtime.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("where", ["a handler", "a tool"])
def test_a_handler_that_a_run_waits_for_cannot_start_another(runtime_of: Callable[..., Runtime], where: str) -> None:
    policy = Policy(rules=(Rule(decision="ask", tool="nested"),)) if where == "a handler" else Policy()
    runtime = runtime_of("```codepilot\nnested()\n```\n" + DONE, policy=policy)
    told: list[str] = []

    def nested(**_: object) -> bool:
        """Waits for another run."""
        with pytest.raises(UsageError) as refused:
            runtime.run("Something else")
        told.append(str(refused.value))
        return True

    def tool() -> bool:
        return where == "a handler" or nested()

    on_permission_request(runtime)(nested)
    runtime.register_tool("nested", tool)
    assert runtime.run("Go").status is Status.FINISHED
    assert len(told) == 1
    assert "send_message() or abort()" in told[0]


def test_a_handler_that_interrupts_reaches_the_caller_and_leaves_the_runtime_usable(
    runtime_of: Callable[..., Runtime],
) -> None:
    policy = Policy(rules=(Rule(decision="ask", tool="execute"),))
    runtime = runtime_of('```codepilot\nexecute("main", "true")\n```\n', DONE, policy=policy)

    @on_permission_request(runtime)
    def leave(**_: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runtime.run("Go")
    assert runtime.unfinished
    assert runtime.resume().status is Status.FINISHED


def test_a_forked_process_must_create_its_own_runtime(runtime_of: Callable[..., Runtime]) -> None:
    runtime = runtime_of(DONE, DONE)
    runtime.run("Go")
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            runtime.run("In the child")
        except UsageError as error:
            os.write(writing, str(error).encode())
        finally:
            runtime._loop.stop()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert "forked" in told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert runtime.run("Again").status is Status.FINISHED
