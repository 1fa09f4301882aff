"""§1: replies of prose, one control block, contents and a completion; what runs, what is only shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_runtime import AsyncRuntime, Status
from tests.agent_runtime.seed.parts import Model, files_in, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_an_action_step_shows_its_result_and_the_run_goes_on(start: Start, place: Path) -> None:
    (place / "profile.py").write_text("".join(f"line {number}\n" for number in range(1, 90)))
    action = reply('# Line numbers first.\nread_file("profile.py", start_line=35, end_line=37)', say="Reading first.")
    runtime, model = start(action, reply(done="Read."))
    outcome = await runtime.run("Look at the profile")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Read.", 2)
    assert model.read[1].startswith("[read_file] 'profile.py' (lines 35\N{EN DASH}37 of 89")
    assert "35 | line 35\n36 | line 36\n37 | line 37" in model.read[1]
    assert "line 38" not in model.read[1]


async def test_a_simple_task_takes_one_step_with_action_content_and_completion(start: Start, place: Path) -> None:
    (place / "config.py").write_text("A = 1\nTIMEOUT = 10\n")
    simple = (
        "Updating the timeout.\n"
        '```codepilot\nwrite_file("config.py", start_line=2, end_line=2, mode="edit")\n```\n'
        "```python filename=config.py\nTIMEOUT = 30\n```\n"
        "```completion\nDone: 30 s now.\n```\n"
    )
    runtime, model = start(simple)
    outcome = await runtime.run("Set the timeout to 30")
    assert (str(outcome), len(model.requests)) == ("Done: 30 s now.", 1)
    assert (place / "config.py").read_text() == "A = 1\nTIMEOUT = 30\n"


async def test_a_python_fence_is_shown_and_never_run(start: Start, place: Path) -> None:
    answer = "Like this:\n\n```python\nopen('made.txt', 'w').write('x')\nwrite_file('made.txt')\n```\n\nThat is all.\n"
    runtime, _ = start(answer)
    outcome = await runtime.run("How would you make a file?")
    assert outcome.status is Status.ANSWERED
    assert "That is all." in str(outcome)
    assert files_in(place) == []


async def test_a_display_block_before_the_control_block_is_no_content(start: Start, place: Path) -> None:
    mixed = (
        "So far it is:\n```python\nold = 1\n```\n"
        '```codepilot\nwrite_file("new.py")\n```\n```python filename=new.py\nnew = 2\n```\n'
        "```completion\nWritten.\n```\n"
    )
    runtime, _ = start(mixed)
    assert str(await runtime.run("Write it")) == "Written."
    assert (place / "new.py").read_text() == "new = 2\n"


async def test_the_loop_goes_on_until_completion_and_every_result_is_in_the_history(start: Start) -> None:
    runtime, model = start(reply("print(1)"), reply("x = 2"), reply("print(x)"), reply(done="Counted."))
    await runtime.run("Count")
    assert model.read[1:] == ["1", "[Control block executed with no output.]", "2"]
    assert [message["role"] for message in runtime.messages] == ["user", "assistant"] * 4
    assert runtime.messages[0]["content"].startswith("[Task 1]\nCount")


async def test_an_exception_in_the_control_block_is_told_and_the_agent_goes_on(start: Start) -> None:
    runtime, model = start(reply("print('before')\nprint(1 // 0)\nprint('after')"), reply(done="Saw it."))
    assert (await runtime.run("Divide")).status is Status.FINISHED
    assert "before" in model.read[1]
    assert "ZeroDivisionError" in model.read[1]
    assert "after\n" not in model.read[1]
