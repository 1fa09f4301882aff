"""§7: the agent archives what is finished; what grows too long all the same is summarised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_runtime import AsyncRuntime, MemorySettings, SettingsError, Status, Summarised
from tests.agent_runtime.seed.parts import Model, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]
LONG = "print('\\n'.join(f'fact {n} of the first task' for n in range(500)))"


def conversation(model: Model) -> str:
    return "\n".join(message.text for message in model.requests[-1].messages)


async def test_an_archived_task_gives_way_to_its_summary_and_can_be_shown_again(start: Start) -> None:
    runtime, model = start(
        reply(LONG, say="Looking.", done="Found 500 facts."),
        reply('archive_context(task=1, summary="There are 500 facts.")', done="Archived."),
        reply("list_archived_context()"),
        reply(done="Listed."),
        reply("reveal_context(1)"),
        reply(done="Revealed."),
    )
    await runtime.run("Find the facts")
    await runtime.run("Archive that")
    await runtime.run("What is archived?")
    told = conversation(model)
    assert "[ARCHIVED TASK 1]\nThere are 500 facts." in told
    assert "fact 499" not in told
    assert "tokens saved" in model.read[-1]
    await runtime.run("Show it again")
    assert "[TASK 1 REVEALED]" in model.read[-1]
    assert "fact 499 of the first task" in model.read[-1]
    assert "Find the facts" in model.read[-1]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('archive_context(task=2, summary="Second.")', [2]),
        ('archive_context(position=1, summary="First.")', [1]),
        ('archive_context(task=(1, 2), summary=["First.", "Second."])', [1, 2]),
        ('archive_context(task=[1, 2], summary=("First.", "Second."))', [1, 2]),
    ],
)
async def test_tasks_are_named_one_or_many_by_either_name(start: Start, call: str, expected: list[int]) -> None:
    runtime, model = start(
        reply(done="One."),
        reply(done="Two."),
        reply(f'{call}\nprint([each["task"] for each in list_archived_context()])'),
        reply(done="Archived."),
    )
    for task in ("One", "Two", "Archive"):
        assert (await runtime.run(task)).status is Status.FINISHED
    assert str(expected) in model.read[-1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('archive_context(task=1, position=1, summary="x")', "task and position"),
        ('archive_context(summary="x")', "no task is given"),
        ('archive_context(task=7, summary="x")', "no task 7"),
        ('archive_context(task=2, summary="x")', "current"),
        ('archive_context(task=1, summary="")', "empty"),
        ('archive_context(task=(1, 1), summary=["x", "y"])', "twice"),
        ("reveal_context(1)", "not archived"),
    ],
)
async def test_what_cannot_be_archived_is_told_with_the_reason(start: Start, call: str, said: str) -> None:
    runtime, model = start(reply(done="One."), reply(call), reply(done="Understood."))
    await runtime.run("One")
    assert (await runtime.run("Try")).status is Status.FINISHED
    assert said in model.read[-1]


async def test_a_conversation_past_the_threshold_is_summarised_by_the_model_oldest_first(start: Start) -> None:
    words = "[GLOBAL SUMMARY] The first task found nine hundred facts, all of them about numbers."
    replies = [reply(LONG.replace("first", f"{n}th"), done=f"Found {n}.") for n in range(4)]
    runtime, model = start(*replies, words, reply(done="I remember."), memory=MemorySettings(max_context_tokens=14_000))
    for number in range(4):
        await runtime.run(f"Find facts, round {number}")
    outcome = await runtime.run("What do you remember?")
    assert str(outcome) == "I remember."
    asked, after = model.requests[-2], model.requests[-1]
    assert asked.system == model.requests[-3].system
    assert asked.messages[: len(model.requests[-3].messages)] == model.requests[-3].messages
    assert after.messages[0].text.startswith("[GLOBAL SUMMARY]\nThe first task found nine hundred facts")
    assert "fact 499 of the 0th" not in conversation(model)
    assert "What do you remember?" in after.messages[-1].text
    [summary] = [event for event in runtime.session.events if isinstance(event, Summarised)]
    assert outcome.usage.requests == 2
    assert summary.usage.requests == 1


async def test_a_model_that_writes_no_summary_does_not_end_the_run(start: Start) -> None:
    replies = [reply(LONG.replace("first", f"{n}th"), done=f"Found {n}.") for n in range(4)]
    runtime, model = start(
        *replies,
        reply("print('I act instead')"),
        reply(done="Went on."),
        memory=MemorySettings(max_context_tokens=14_000),
    )
    for number in range(4):
        await runtime.run(f"Find facts, round {number}")
    assert str(await runtime.run("Go on")) == "Went on."
    assert model.requests[-1].messages[0].text.startswith("[GLOBAL SUMMARY]\n")
    assert "Find facts, round 0" in model.requests[-1].messages[0].text


async def test_the_defaults_are_the_seeds() -> None:
    memory = MemorySettings()
    assert (memory.max_context_tokens, memory.global_summary_threshold, memory.global_summary_max_tokens) == (
        120_000,
        0.9,
        500,
    )
    with pytest.raises(SettingsError, match="global_summary_threshold"):
        MemorySettings(global_summary_threshold=90)
