from __future__ import annotations

import re

from agent_runtime.core.values import ListedLines
from agent_runtime.run.loop import StepOutput


def listing(path: str, first: int, last: int) -> tuple[str, ListedLines]:
    lines = [f"{number:>3} | line {number} of {path}" for number in range(first, last + 1)]
    return "\n".join([f"[read_file] {path!r}", *lines]), ListedLines(path=path, first=first, last=last)


def test_prints_join_and_results_stand_apart() -> None:
    shown = StepOutput(100)
    for text in ("a", "b\n"):
        shown.add_print(text)
    shown.add_result("R")
    shown.add_print("c")
    assert shown.text() == "ab\n\nR\n\nc"


def test_prints_over_the_bound_are_counted_and_results_named() -> None:
    shown = StepOutput(10)
    shown.add_print("x" * 1000)
    shown.add_result("y" * 1000, call="Searching for `y`")
    assert shown.text().split("\n\n") == [
        "x" * 10,
        "[not shown, since a step shows 10 characters: Searching for `y`, 1,000 characters]",
        "[990 more characters were printed in this step and are left out; print less]",
    ]


def test_each_range_that_is_cut_is_named_by_its_file_and_its_lines() -> None:
    shown = StepOutput(1000)
    for path, first, last in (("a.py", 11, 30), ("b.py", 381, 420), ("c.py", 1, 9)):
        text, lines = listing(path, first, last)
        shown.add_result(text, call=f"Reading {path}", lines=lines)
    one, two, three = shown.text().split("\n\n")
    assert one == listing("a.py", 11, 30)[0]
    *kept, note = two.split("\n")
    assert kept == listing("b.py", 381, 380 + len(kept) - 1)[0].split("\n")
    assert note == f"[not shown, since a step shows 1,000 characters: lines {380 + len(kept)}-420 of 'b.py']"
    assert three == "[not shown, since a step shows 1,000 characters: lines 1-9 of 'c.py']"


def test_an_outline_after_the_last_line_is_distinguished_from_lines() -> None:
    text, lines = listing("a.py", 1, 3)
    shown = StepOutput(len(text) + 5)
    shown.add_result(f"{text}\nOutline of the rest:\n", lines=lines)
    assert shown.text() == f"{text}\n[not shown, since a step shows {len(text) + 5} characters: an outline]"


def test_of_any_other_result_whole_lines_of_head_and_tail_stay() -> None:
    shown = StepOutput(60_000)
    shown.add_result("".join(f"line {n}\n" for n in range(1000)), call="Running `make`", max_chars=440)
    head, note, *tail = re.split(r"\n(\[.*\])\n", shown.text())
    assert [head.split("\n")[0], head.split("\n")[-1]] == ["line 0", "line 27"]
    assert note.endswith(" characters left out of Running `make`, since of such a result 440 characters are shown]")
    assert [tail[0].split("\n")[0], tail[0].split("\n")[-1]] == ["line 976", "line 999"]


def test_very_many_results_that_find_no_room_are_counted() -> None:
    shown = StepOutput(1000)
    for _ in range(101):
        shown.add_result("x" * 1000, call="Reading it")
    assert shown.text().count("not shown, since") == 30
    assert shown.text().endswith("\n\n[70 more results are not shown]")


def test_output_continues_after_a_pause() -> None:
    before, after = StepOutput(1000), StepOutput(1000)
    before.add_print("x" * 900)
    before.add_result("y" * 700, call="First")
    after.restore(before.to_plain())
    after.add_print("z" * 200)
    assert after.text().startswith("x" * 900)
    assert "First, 700 characters]" in after.text()
    assert "[100 more characters were printed" in after.text()


def test_binary_data_is_shown_by_its_length_only() -> None:
    shown = StepOutput(1000)
    shown.add_print("\ufffd" * 10_000)
    shown.add_result("head\n" + "\ufffda" * 50 + "\ufffd\ntail", call="Reading a.bin")
    assert shown.text() == "[10,000 characters of binary data]\n\nhead\n[101 characters of binary data]\ntail"
