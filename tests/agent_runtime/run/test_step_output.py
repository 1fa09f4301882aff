from __future__ import annotations

import re

from agent_runtime.core.values import ListedLines
from agent_runtime.run.loop import StepOutput


def listing(path: str, first: int, last: int, *, version: str = "v", notes: str = "") -> ListedLines:
    lines = [f"{number} | line {number} of {path}" for number in range(first, last + 1)]
    text = "\n".join([f"[read_file] {path!r}", *lines]) + notes
    return ListedLines(value="", text=text, path=path, version=version, first=first, last=last)


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


def test_each_range_that_is_cut_is_named_by_the_call_that_shows_it() -> None:
    shown = StepOutput(1000)
    shown.add_lines([listing("a.py", 11, 30), listing("b.py", 381, 420)])
    shown.add_lines([listing("c.py", 1, 9)])
    one, two, three = shown.text().split("\n\n")
    assert one == listing("a.py", 11, 30).text
    *kept, note = two.split("\n")
    assert kept == listing("b.py", 381, 380 + len(kept) - 1).text.split("\n")
    assert note == f"[not shown, since a step shows 1,000 characters: read_file('b.py', {380 + len(kept)}, 420)]"
    assert three == "[not shown, since a step shows 1,000 characters: read_file('c.py', 1, 9)]"


def test_an_outline_after_the_last_line_is_distinguished_from_lines() -> None:
    part = listing("a.py", 1, 3, notes="\n4-9 f\n10-12 g")
    shown = StepOutput(len(part.text) - 2)
    shown.add_lines([part])
    expected = f"[not shown, since a step shows {len(part.text) - 2} characters: the rest of read_file('a.py')]"
    assert shown.text() == f"{listing('a.py', 1, 3).text}\n4-9 f\n{expected}"


def test_lines_of_a_file_are_shown_once_in_a_step() -> None:
    shown = StepOutput(5000)
    shown.add_lines([listing("a.py", 10, 20)])
    shown.add_lines([listing("./a.py", 5, 25), listing("a.py", 11, 19), listing("a.py", 19, 21)])
    _, second, third, fourth = shown.text().split("\n\n")
    rows = second.split("\n")
    assert rows[5:8] == ["9 | line 9 of ./a.py", "[lines 10-20: above]", "21 | line 21 of ./a.py"]
    assert third == "[read_file] 'a.py'\n[lines 11-19: above]"
    assert fourth == "[read_file] 'a.py'\n[lines 19-21: above]"


def test_lines_that_were_cut_or_have_changed_are_shown_again() -> None:
    shown = StepOutput(300)
    shown.add_lines([listing("a.py", 1, 30)])
    assert "10 | line 10" in shown.text()
    assert "read_file('a.py', 15, 30)" in shown.text()
    wide = StepOutput(5000)
    wide._listed_lines = shown._listed_lines
    wide.add_lines([listing("a.py", 1, 30)])
    assert "[lines 1-14: above]\n15 | line 15" in wide.text()
    wide.add_lines([listing("a.py", 1, 3, version="w"), listing("b.py", 1, 3)])
    assert wide.text().endswith(f"{listing('a.py', 1, 3).text}\n\n{listing('b.py', 1, 3).text}")


def test_a_call_that_asks_for_more_raises_the_limit_for_its_own_result() -> None:
    shown = StepOutput(110)
    shown.add_lines([listing("a.py", 1, 20)], quota=430)
    assert shown.text() == listing("a.py", 1, 20).text
    shown.add_result("x" * 200, call="Looking")
    assert "[not shown, since a step shows 110 characters: Looking, 200 characters]" in shown.text()
    shown.add_lines([listing("b.py", 1, 90)], quota=9_000)
    assert "since a step shows 440 characters: read_file('b.py'," in shown.text()
    narrow = StepOutput(100)
    narrow.add_lines([listing("a.py", 1, 20), listing("b.py", 1, 20)], max_chars=60, quota=600)
    assert len(narrow.text()) < 300
    assert "of such a result 60 characters are shown: read_file('a.py', 3, 20)]" in narrow.text()


def test_a_result_that_is_cut_names_the_call_that_shows_it() -> None:
    shown = StepOutput(500)
    for _ in range(2):
        shown.add_result("x\n" * 400, call="Running `make`", rest="read_output('main') shows it")
    first, second = re.findall(r"\[.*\]", shown.text())
    assert first.endswith("since a step shows 500 characters; read_output('main') shows it]")
    assert second.endswith("800 characters; read_output('main') shows it]")


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
