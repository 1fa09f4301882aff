"""§5: each `run` goes on with the same conversation, terminals and variables' files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_runtime import AsyncRuntime, Runtime
from tests.agent_runtime.seed.parts import Model, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_every_turn_sees_all_earlier_ones_and_extends_them(start: Start, place: Path) -> None:
    runtime, model = start(
        reply('write_file("app.py")', "items = []", done="There is an app."),
        reply('execute("main", "cd /; export WORD=kept")', done="Moved."),
        reply('execute("main", "pwd; echo $WORD")'),
        reply(done="Still there."),
    )
    for task in ("Make an app", "Go to the root", "Where are you?"):
        await runtime.run(task)
    first, second, third, last = model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert third.messages[: len(second.messages)] == second.messages
    assert "There is an app." in second.messages[1].text
    assert "[Task 2]\nGo to the root" in second.messages[2].text
    assert "[Task 3]\nWhere are you?" in third.messages[-1].text
    assert "/\nkept\n" in last.messages[-1].text
    assert (place / "app.py").exists()


def test_the_blocking_runtime_keeps_its_terminals_between_runs(
    start_sync: Callable[..., tuple[Runtime, Model]],
) -> None:
    runtime, model = start_sync(
        reply('execute("main", "X=one")', done="Set."), reply('execute("main", "echo $X two")'), reply(done="Seen.")
    )
    runtime.run("Set")
    runtime.run("Show")
    assert "one two\n" in model.read[-1]
