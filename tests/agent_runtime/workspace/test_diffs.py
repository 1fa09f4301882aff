from __future__ import annotations

import random
import re
from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.workspace.diffs import LineEdit, counted, diff, opcodes

TEN = [f"line {i}" for i in range(1, 11)]
LINES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=10)


def test_a_change_is_shown_with_numbers_and_three_lines_around_it() -> None:
    assert diff(TEN, [*TEN[:4], "new", "newer", *TEN[5:]]).split("\n") == [
        " 2   line 2",
        " 3   line 3",
        " 4   line 4",
        " 5 - line 5",
        " 5 + new",
        " 6 + newer",
        " 7   line 6",
        " 8   line 7",
        " 9   line 8",
    ]


def test_changes_that_were_just_sent_are_shown_by_their_numbers_only() -> None:
    edit = LineEdit(start=4, end=10, text="line 4\n" + "new\n" * 20)
    assert diff(TEN, [*TEN[:4], *["new"] * 20], sent=[edit]).split("\n") == [
        " 2   line 2",
        " 3   line 3",
        " 4   line 4",
        " 5 - line 5",
        " 6 - line 6",
        "   - … 2 more lines",
        " 9 - line 9",
        "10 - line 10",
        " 5 + … 20 lines as sent, to 24",
    ]


def test_changes_elsewhere_are_left_out() -> None:
    after = ["first", *TEN[1:9], "last"]
    assert diff(TEN, after, within=[(8, 10)]).split("\n")[-2:] == ["10 - line 10", "10 + last"]
    assert "first" not in diff(TEN, after, within=[(8, 10)])
    assert diff(TEN, after, within=[(5, 6)]) == ""


def test_changes_are_counted_with_their_places() -> None:
    assert counted(TEN, TEN) == ""
    assert (
        counted(TEN, ["new", *TEN[:4], "five", "more", *TEN[5:9]])
        == "Changed lines: 1, 6-7, after 11 (1 removed) (+3 -2)."
    )
    many = counted(
        [str(number) for number in range(200)], [str(number) if number % 2 else "x" for number in range(200)]
    )
    assert ", 79, 60 more places (+100 -100)." in many


def test_changes_far_apart_are_parted() -> None:
    after = ["first", *TEN[1:9], "last"]
    assert diff(TEN, after).split("\n…\n") == [
        " 1 - line 1\n 1 + first\n 2   line 2\n 3   line 3\n 4   line 4",
        " 7   line 7\n 8   line 8\n 9   line 9\n10 - line 10\n10 + last",
    ]


def test_equal_texts_have_no_diff() -> None:
    assert diff(TEN, TEN) == ""


def test_a_long_run_is_cut_in_its_middle() -> None:
    shown = diff([], [f"new {i}" for i in range(100)]).split("\n")
    assert len(shown) == 13
    assert "… 88 more lines" in shown[6]


def test_a_long_diff_is_cut_with_the_number_of_lines_left_out() -> None:
    before = [f"{i}" for i in range(400)]
    after = [line if i % 10 else f"{line}!" for i, line in enumerate(before)]
    shown = diff(before, after).split("\n")
    assert len(shown) == 41
    assert re.fullmatch(r"… \d+ more lines of diff", shown[-1])


def test_long_lines_are_cut() -> None:
    assert len(diff([], ["x" * 10_000])) < 300


def test_texts_too_long_to_compare_are_only_counted() -> None:
    before, after = [f"a{i}" for i in range(15_000)], [f"b{i}" for i in range(15_000)]
    assert diff(before, after) == "(lines 1-15000 replaced by 15000 lines; too much to compare)"


@given(LINES, LINES)
def test_what_is_shown_is_true_of_the_texts(before: list[str], after: list[str]) -> None:
    removed, added = list(before), list(after)
    for line in diff(before, after).split("\n"):
        if found := re.fullmatch(r" *(\d+) ([-+ ]) (.*)", line):
            side = before if found[2] == "-" else after
            assert side[int(found[1]) - 1] == found[3]
            if found[2] == "-":
                removed.remove(found[3])
            if found[2] == "+":
                added.remove(found[3])
    assert sorted(removed) == sorted(added)


@pytest.mark.parametrize("seed", range(20))
def test_opcodes_make_one_text_of_the_other_whatever_their_length(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - lines to compare
    old = [f"line {chance.randrange(2000)}" for _ in range(chance.choice([0, 5, 80, 600]))]
    new = [line for line in old if chance.random() > 0.1]
    for _ in range(chance.randrange(60)):
        new.insert(chance.randint(0, len(new)), f"line {chance.randrange(2000)}")
    codes = opcodes(old, new)
    assert [line for tag, a, b, c, d in codes for line in (old[a:b] if tag == "equal" else new[c:d])] == new
    assert all(old[a:b] == new[c:d] for tag, a, b, c, d in codes if tag == "equal")
    assert [(b, d) for _, _, b, _, d in codes[:-1]] == [(a, c) for _, a, _, c, _ in codes[1:]]
    assert all(one[0] != other[0] for one, other in pairwise(codes))
    if len(old) <= 100:
        assert codes == SequenceMatcher(None, old, new).get_opcodes()


def test_what_difflib_would_compare_for_minutes_is_taken_to_differ() -> None:
    """No line stands once, and each match is a line or two long."""
    chance = random.Random(1)  # noqa: S311 - lines to compare
    old, new = ([str(chance.randrange(150)) for _ in range(9000)] for _ in range(2))
    assert len(opcodes(old, new)) == 1
