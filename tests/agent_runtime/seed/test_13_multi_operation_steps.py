"""§13: many reads and several writes in one step, contents in order; its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import AsyncRuntime, Status
from tests.agent_runtime.seed.parts import Model, files_in, reply, text_of

Start = Callable[..., tuple[AsyncRuntime, Model]]


@pytest.fixture
def numbered(place: Path) -> Path:
    (place / "routes.py").write_text("".join(f"line {number}\n" for number in range(1, 61)))
    return place / "routes.py"


async def test_files_take_their_contents_in_the_order_of_the_calls(start: Start, place: Path) -> None:
    runtime, _ = start(
        "Both at once.\n"
        '```codepilot\nwrite_file("config.py")\nwrite_file("utils/text.py")\n```\n'
        "```python filename=config.py\nimport json\n```\n"
        "```python filename=utils/text.py\ndef slugify(text):\n    return text.lower()\n```\n"
        "```completion\nWritten.\n```\n"
    )
    assert (await runtime.run("Write both")).steps == 1
    assert (place / "config.py").read_text() == "import json\n"
    assert (place / "utils" / "text.py").read_text() == "def slugify(text):\n    return text.lower()\n"


async def test_any_number_of_files_is_read_in_one_step(start: Start, place: Path) -> None:
    for number in range(40):
        (place / f"{number}.txt").write_text(f"content {number}\n")
    runtime, model = start(reply("for n in range(40):\n    read_file(f'{n}.txt')"), reply(done="Read."))
    await runtime.run("Read all")
    assert all(f"content {number}\n" in f"{model.read[1]}\n" for number in range(40))


async def test_several_ranges_of_a_file_are_edited_without_drift(start: Start, numbered: Path) -> None:
    runtime, _ = start(
        reply('read_file("routes.py")'),
        reply(
            'write_file("routes.py", mode="multi_edit", edits=[(42, 48), (55, 55)])',
            "new 42\nnew 43",
            "new 55",
            done="Fixed.",
        ),
    )
    outcome = await runtime.run("Fix both")
    assert outcome.status is Status.FINISHED, outcome
    lines = text_of(numbered).splitlines()
    assert lines[40:45] == ["line 41", "new 42", "new 43", "line 49", "line 50"]
    assert lines[48:51] == ["line 54", "new 55", "line 56"]
    assert len(lines) == 55


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('write_file("routes.py", mode="a")', [*range(1, 61), "new"]),
        ('write_file("routes.py", after_line=0, mode="insert")', ["new", *range(1, 61)]),
        ('write_file("routes.py", after_line=2, mode="insert")', [1, 2, "new", *range(3, 61)]),
        ('write_file("routes.py", start_line=2, end_line=3, mode="edit")', [1, "new", *range(4, 61)]),
        ('write_file("routes.py")', ["new"]),
    ],
)
async def test_each_mode_changes_what_it_says(start: Start, numbered: Path, call: str, expected: list[object]) -> None:
    runtime, _ = start(reply(f'read_file("routes.py")\n{call}', "new", done="Done."))
    outcome = await runtime.run("Change it")
    assert outcome.status is Status.FINISHED, outcome
    assert text_of(numbered).splitlines() == [f"line {each}" if isinstance(each, int) else each for each in expected]


async def test_contents_that_do_not_fit_the_writes_are_refused_before_anything_is_written(
    start: Start, place: Path
) -> None:
    runtime, model = start(reply('write_file("a.txt")\nwrite_file("b.txt")', "only one"), reply(done="Understood."))
    await runtime.run("Write")
    assert "payload_count" in model.read[1]
    assert files_in(place) == []


async def test_a_step_is_bounded_in_calls_and_in_what_it_shows(start: Start) -> None:
    runtime, model = start(
        reply("for n in range(1000):\n    print(len(list_files()))"),
        reply("print('x' * 200_000)"),
        reply(done="Bounded."),
    )
    assert (await runtime.run("Too much")).status is Status.FINISHED
    assert "200" in model.read[1]
    assert "calls" in model.read[1]
    assert len(model.read[2]) < 17_000
    assert "more characters were printed in this step and are left out" in model.read[2]


async def test_a_step_writes_more_whole_files_than_the_five_that_are_promised(start: Start, place: Path) -> None:
    names = [f"{number}.txt" for number in range(9)]
    runtime, _ = start(reply("\n".join(f'write_file("{name}")' for name in names), *names, done="Written."))
    assert (await runtime.run("Write nine files")).steps == 1
    assert files_in(place) == names


async def test_a_step_edits_a_file_by_its_lines_once(start: Start, numbered: Path) -> None:
    runtime, model = start(
        reply('read_file("routes.py")'),
        reply(
            'write_file("routes.py", 2, 2, mode="edit")\nwrite_file("routes.py", after_line=9, mode="insert")',
            "two",
            "after nine",
        ),
        reply('write_file("routes.py", 2, 2, mode="edit")', "two", done="Edited."),
    )
    assert (await runtime.run("Edit it")).status is Status.FINISHED
    assert "'routes.py' not written: this step has edited it by line numbers already" in model.read[2]
    assert text_of(numbered).splitlines()[:3] == ["line 1", "two", "line 3"]
    assert len(text_of(numbered).splitlines()) == 60
