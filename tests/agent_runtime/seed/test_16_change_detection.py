"""§16: what somebody else does to files that the agent knows is told at the next step, by line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_runtime import AsyncRuntime, EventType
from tests.agent_runtime.seed.parts import Model, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_changed_created_and_deleted_files_are_told_between_steps(start: Start, place: Path) -> None:
    (place / "main.py").write_text("".join(f"line {number}\n" for number in range(1, 61)))
    (place / "old_config.py").write_text("old\n")
    (place / "unread.txt").write_text("nobody looks\n")
    runtime, model = start(
        reply(
            'read_file("main.py")\nread_file("old_config.py")\n'
            "try:\n    read_file('.env')\nexcept FileNotFoundError:\n    pass"
        ),
        reply("print('look again')"),
        reply(done="Saw it."),
    )

    def meanwhile(step: int, **_: object) -> None:
        if step == 2:
            lines = (place / "main.py").read_text().splitlines(keepends=True)
            lines[0:4] = ["new\n"] * 4
            lines[46] = "new\n"
            (place / "main.py").write_text("".join(lines))
            (place / ".env").write_text("A=1\nB=2\nC=3\n")
            (place / "old_config.py").unlink()
            (place / "unread.txt").write_text("changed\n")

    runtime.hooks.register(EventType.STEP, meanwhile)
    await runtime.run("Watch")
    told = model.read[1][model.read[1].index("[ENVIRONMENT CHANGE] 20") :]
    assert "Modified: main.py\nChanged lines: 1-4, 47\n" in told
    assert "Created: .env (3 lines)" in told
    assert "Deleted: old_config.py" in told
    assert "unread.txt" not in told
    assert "again before you edit" in told
    assert "[ENVIRONMENT CHANGE]" not in model.read[2]


async def test_changes_between_runs_are_told_as_well(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("one\n")
    runtime, model = start(reply('read_file("a.txt")', done="Read."), reply(done="Seen."))
    await runtime.run("Read")
    (place / "a.txt").write_text("two\n")
    await runtime.run("And now?")
    assert "Modified: a.txt" in model.read[1]


async def test_what_the_agent_itself_writes_is_no_news(start: Start) -> None:
    runtime, model = start(
        reply('write_file("a.txt")', "one"), reply('write_file("a.txt")', "two"), reply(done="Written.")
    )
    await runtime.run("Write")
    assert not any("[ENVIRONMENT CHANGE]" in text for text in model.read)


async def test_an_edit_by_line_is_refused_until_the_changed_file_is_read_again(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("one\ntwo\nthree\n")
    edit = reply('write_file("a.txt", 2, 2, mode="edit")', "TWO")
    runtime, model = start(reply('read_file("a.txt")'), edit, reply('read_file("a.txt")'), edit, reply(done="Fixed."))

    def meanwhile(step: int, **_: object) -> None:
        if step == 2:
            (place / "a.txt").write_text("zero\none\ntwo\nthree\n")

    runtime.hooks.register(EventType.STEP, meanwhile)
    await runtime.run("Fix")
    lines = (place / "a.txt").read_text().splitlines()
    assert "TWO" in lines
    assert "three" in lines
    assert "Modified: a.txt" in model.read[1]


async def test_long_lists_of_changed_lines_are_bounded(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("".join(f"line {number}\n" for number in range(200)))
    runtime, model = start(reply('read_file("a.txt")'), reply(done="Seen."))

    def meanwhile(step: int, **_: object) -> None:
        if step == 2:
            changed = (f"line {number}\n" if number % 2 else "new\n" for number in range(200))
            (place / "a.txt").write_text("".join(changed))

    runtime.hooks.register(EventType.STEP, meanwhile)
    await runtime.run("Read")
    [ranges] = [line for line in model.read[1].splitlines() if line.startswith("Changed lines:")]
    assert ranges.count(",") == 30
    assert ranges.endswith("70 more")
