"""§17: an answer without code ends the run; the agent is told how far it is, ever more plainly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest
from typing_extensions import override

from agent_runtime import Agent, AsyncRuntime, Chunk, EventType, Policy, ReplyEnd, Request, RunLimits, Status
from tests.agent_runtime.seed.parts import Model, reply, watch

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_an_answer_ends_the_run_and_the_next_task_acts(start: Start) -> None:
    runtime, model = start("It gives an empty dict.\n", reply("print('acting')", done="Added a default."))
    seen = watch(runtime, EventType.FINISH, EventType.END)
    answered = await runtime.run("What if the file is missing?")
    assert (answered.status, str(answered), answered.steps) == (Status.ANSWERED, "It gives an empty dict.", 1)
    acted = await runtime.run("Add a default")
    assert (acted.status, str(acted)) == (Status.FINISHED, "Added a default.")
    assert "It gives an empty dict." in model.requests[1].messages[1].text
    assert [kind for kind, _ in seen].count(EventType.END) == 2
    finished = [arguments["summary"] for kind, arguments in seen if kind is EventType.FINISH]
    assert finished == ["Agent replied. Standing by for next task.", "Added a default."]


async def test_without_chat_an_answer_alone_is_an_error_the_model_is_told_of(start: Start) -> None:
    runtime, model = start("I think about it.\n", reply(done="Done."), chat=False)
    outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 2)
    assert "neither a ```codepilot block nor a ```completion" in model.read[1]


async def test_urgency_grows_at_the_seeds_thresholds(start: Start) -> None:
    runtime, model = start(
        *[reply(f"print({number})") for number in range(30)], policy=Policy(limits=RunLimits(max_steps=30))
    )
    await runtime.run("Count")
    counters = [request.status.split("]")[0].removeprefix("[") for request in model.requests]
    assert counters[2] == "Agentic step 3 / 30"
    assert "40% agentic steps consumed!" in counters[11]
    assert "80% agentic steps consumed. Approaching step limit!" in counters[23]
    assert "93% agentic steps consumed! Hard Limit Near!" in counters[27]
    kinds = ["Near" if "Near" in c else "Approaching" if "App" in c else "mild" if "%" in c else "" for c in counters]
    assert kinds == [""] * 9 + ["mild"] * 13 + ["Approaching"] * 4 + ["Near"] * 4


async def test_time_and_counter_ride_last_and_leave_the_prefix_alone(start: Start) -> None:
    runtime, model = start(*[reply(f"print({number})") for number in range(5)], reply(done="Done."))
    await runtime.run("Count")
    assert len({request.system for request in model.requests}) == 1
    assert len({request.status.split("]")[0] for request in model.requests}) == 6
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages


@pytest.mark.parametrize(
    ("limits", "replies", "status", "said"),
    [
        ({"max_steps": 2}, [reply("print(1)"), reply("print(2)"), reply(done="late")], Status.MAX_STEPS, "2 steps"),
        ({"max_tokens": 1000}, [reply("print(1)"), reply("print(2)")], Status.MAX_TOKENS, "1,000"),
        ({"max_seconds": 2.0}, [reply('execute("main", "sleep 600", 600)')], Status.TIMEOUT, "seconds"),
        ({}, [reply('write_file("a.txt")')] * 3, Status.FORMAT_ERRORS, "payload"),
        ({}, [reply("print(len(list_files()))")] * 5, Status.REPEATED_CALLS, "5 steps in a row"),
    ],
)
async def test_each_budget_ends_the_run_with_a_status_of_its_own_and_the_work_kept(
    start: Start, limits: dict[str, float], replies: list[str], status: Status, said: str
) -> None:
    runtime, _ = start(*replies, reply(done="Next."), policy=Policy(limits=RunLimits(**limits)))  # type: ignore[arg-type]
    outcome = await runtime.run("Go on and on")
    assert outcome.status is status
    assert said in str(outcome)
    assert outcome.summary is None
    assert outcome.steps == runtime.session.events[-1].outcome.steps > 0  # type: ignore[union-attr]
    assert len(runtime.messages) > 1


class Costly(Model):
    """Takes half a dollar for each reply."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        async for chunk in super().reply(request):
            yield replace(chunk, usage=replace(chunk.usage, cost_usd=0.5)) if isinstance(chunk, ReplyEnd) else chunk


async def test_the_budget_of_money_ends_the_run_too(described: Callable[..., tuple[Agent, Model]]) -> None:
    agent, _ = described(policy=Policy(limits=RunLimits(max_cost_usd=1.0)))
    agent = replace(agent, provider=Costly([reply(f"print({number})") for number in range(5)]))
    async with AsyncRuntime(agent) as runtime:
        outcome = await runtime.run("Go on and on")
    assert (outcome.status, outcome.steps, outcome.usage.cost_usd) == (Status.MAX_COST, 2, 1.0)
    assert "$1.00" in str(outcome)


async def test_four_repetitions_with_a_change_between_are_no_circle_and_a_warning_comes_first(start: Start) -> None:
    same, other = reply("print(len(list_files()))"), reply('print(len(list_files("*.py")))')
    runtime, model = start(*[same] * 4, other, *[same] * 4, reply(done="Done."))
    assert (await runtime.run("Look around")).status is Status.FINISHED
    assert any("same calls as in the 2 steps before" in text for text in model.read)
