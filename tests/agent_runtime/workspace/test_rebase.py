from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.workspace.diffs import LineEdit
from agent_runtime.workspace.edits import rebase, rebased

SEEN = tuple("abcdef")
LINES = st.lists(st.sampled_from("abc"), max_size=8)


def test_lines_before_and_behind_every_change_are_found() -> None:
    now = (*"ab", "new", "newer", *"def")
    assert rebase(SEEN, now, 1, 2) == 0
    assert rebase(SEEN, now, 4, 6) == 1
    assert rebase(SEEN, now, 3, 3) is None


def test_unique_lines_between_two_changes_are_found() -> None:
    now = ("top", *"abcdef", "end")
    assert rebase(SEEN, now, 3, 4) == 1


def test_a_line_that_stands_twice_is_told_by_its_neighbours() -> None:
    seen = ("def f", "  return", "def g", "  return", "end")
    now = ("import", "def f", "  return", "def g", "  return", "END")
    assert rebase(seen, now, 4, 4) == 1


def test_a_line_whose_twin_disappeared_is_not_mistaken_for_it() -> None:
    seen = ("def f", "  return", "def g", "  return", "end")
    now = ("import", "def f", "  changed", "def g", "  return", "END")
    assert rebase(seen, now, 2, 2) is None


@given(LINES, LINES, LINES, st.data())
def test_the_answer_always_points_at_equal_lines(a: list[str], b: list[str], c: list[str], data: st.DataObject) -> None:
    seen, now = a + b + ["x"], c + b + ["x"]
    start = data.draw(st.integers(1, len(seen)))
    end = data.draw(st.integers(start, len(seen)))
    moved = rebase(seen, now, start, end)
    if moved is not None:
        assert now[start - 1 + moved : end + moved] == seen[start - 1 : end]


@given(LINES, LINES, LINES)
def test_marked_lines_are_found_wherever_they_went(before: list[str], block: list[str], other: list[str]) -> None:
    seen = [*before, "<", *block, ">"]
    now = [*other, "<", *block, ">", *other]
    assert rebase(seen, now, len(before) + 1, len(seen)) == len(other) - len(before)


def test_an_insertion_goes_between_the_lines_that_it_parted() -> None:
    now = ("top", *SEEN, "end")
    assert rebased([LineEdit(start=4, end=3, text="x")], SEEN, now) == [LineEdit(start=5, end=4, text="x")]
    assert rebased([LineEdit(start=4, end=3, text="x")], SEEN, (*"ab", "c", "new", *"ef")) is None


def test_a_batch_is_moved_whole_or_not_at_all() -> None:
    now = ("top", *"abc", "D", *"ef")
    first, second = LineEdit(start=1, end=1, text=""), LineEdit(start=4, end=4, text="")
    assert rebased([first], SEEN, now) == [LineEdit(start=2, end=2, text="")]
    assert rebased([first, second], SEEN, now) is None
