from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import LineEdit
from agent_runtime.workspace.edits import find_block, find_shift, rebase_edits

FILE = textwrap.dedent(
    """\
    class A:
        def one(self):
            x = 1
            return x

        def two(self):
            x = 2
            return x
    """
).splitlines()


def applied(lines: list[str], old: list[str], new: list[str]) -> tuple[str, list[str]]:
    match = find_block(lines, old, new)
    return match.level, lines[: match.start - 1] + match.lines + lines[match.end :]


def test_exact_lines_are_replaced_verbatim() -> None:
    rung, after = applied(FILE, ["        x = 2"], ["  x = 3", ""])
    assert rung == "exact"
    assert after == [*FILE[:6], "  x = 3", "", FILE[7]]


def test_trailing_whitespace_is_ignored_and_preserved() -> None:
    rung, after = applied(["a  ", "b\t", "c"], ["a", "b"], ["a", "B"])
    assert (rung, after) == ("trailing whitespace", ["a  ", "B", "c"])


@pytest.mark.parametrize("given_indent", ["", "  ", "    ", "\t"])
def test_new_text_is_indented_as_the_file_is(given_indent: str) -> None:
    old = [f"{given_indent}def two(self):", f"{given_indent}    x = 2"]
    new = [f"{given_indent}def two(self):", f"{given_indent}    x = 3", "", f"{given_indent}    y = x"]
    rung, after = applied(FILE, old, new)
    assert rung == ("exact" if given_indent == "    " else "indentation")
    assert after == [*FILE[:6], "        x = 3", "", "        y = x", FILE[7]]


def test_text_that_is_indented_too_far_comes_back_out() -> None:
    rung, after = applied(["if a:", "    b"], ["        if a:", "            b"], ["        if a:", "            c"])
    assert (rung, after) == ("indentation", ["if a:", "    c"])


def test_tabs_are_translated_line_by_line() -> None:
    rung, after = applied(["if a:", "\tif b:", "\t\tc"], ["if a:", "    if b:", "        c"], ["if a:", "    d"])
    assert (rung, after) == ("indentation", ["if a:", "\td"])


def test_an_indentation_that_the_old_text_does_not_explain_is_no_match() -> None:
    with pytest.raises(ToolError, match=r"1 \|"):
        find_block(["if a:", "\tb"], ["if a:", "    b"], ["if a:", "            b"])


def test_inconsistent_indentation_is_no_match() -> None:
    with pytest.raises(ToolError, match=r"1 \|"):
        find_block(["a", "  b", "    c"], ["a", "b", "c"], ["x"])


def test_typographic_punctuation_is_ignored_and_preserved() -> None:
    lines = ["say “hello” — now", "it\u2019s\u00a0fine…"]
    rung, after = applied(lines, ['say "hello" - now', "it's fine..."], ['say "hello" - now', "it is"])
    assert (rung, after) == ("Unicode punctuation", [lines[0], "it is"])


def test_the_first_rung_with_a_match_decides() -> None:
    rung, after = applied(["  a", "a ", "a"], ["a"], ["b"])
    assert (rung, after) == ("exact", ["  a", "a ", "b"])


@pytest.mark.parametrize(
    ("lines", "old"),
    [(["a", "b", "a"], ["a"]), (["a ", "a\t"], ["a"]), ([" a", "  a"], ["a"]), (["“a”", "”a”"], ['"a"'])],
)
def test_text_that_stands_twice_on_a_rung_is_refused_with_the_lines(lines: list[str], old: list[str]) -> None:
    with pytest.raises(ToolError, match=r"lines 1, [23]\)") as told:
        find_block(lines, old, ["new"])
    assert told.value.kind == "ValueError"


def test_an_already_applied_replacement_is_recognised() -> None:
    with pytest.raises(ToolError, match=r"already applied: .* 3-3"):
        find_block(FILE, ["        x = 7"], ["        x = 1"])


def test_a_refusal_shows_the_nearest_lines() -> None:
    with pytest.raises(ToolError, match=r"7 \|         x = 2"):
        find_block(FILE, ["    def two(self):", "        x = 99", "        return x"], ["y"])
    with pytest.raises(ToolError, match=r"6 \|     def two"):
        find_block(FILE, ["def twoo(self):"], ["y"])
    with pytest.raises(ToolError, match=r"^[^|]*$"):
        find_block(FILE, ["§§§§§§§§§"], ["y"])


def test_likeness_is_never_enough() -> None:
    with pytest.raises(ToolError):
        find_block(["value = compute(1)"], ["value = compute(2)"], ["x"])


@pytest.mark.parametrize("old", [[], [""], ["  ", ""]])
def test_old_text_without_text_is_refused(old: list[str]) -> None:
    with pytest.raises(ToolError, match="empty"):
        find_block(FILE, old, ["x"])


@given(
    st.lists(st.sampled_from(["a", " a", "a ", "b", "", "“a”", '"a"']), max_size=8),
    st.lists(st.sampled_from(["a", " a", "b", "", '"a"']), min_size=1, max_size=3),
)
def test_nothing_but_the_one_place_is_ever_touched(lines: list[str], old: list[str]) -> None:
    try:
        match = find_block(lines, old, ["new"])
    except ToolError:
        return
    assert match.end - match.start + 1 == len(old)
    there = lines[match.start - 1 : match.end]
    plain = [line.strip().replace("“", '"').replace("”", '"') for line in there]
    assert plain == [line.strip() for line in old]
    assert match.level != "exact" or there == old


class _Counted(str):
    """A line that counts comparisons."""

    __slots__ = ()
    compared = 0

    @override
    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_repeated_lines_are_compared_a_few_times() -> None:
    lines = [_Counted("a") for _ in range(2_000)]
    with pytest.raises(ToolError, match="nearest lines"):
        find_block(lines, [*["a"] * 1_000, "b"], ["x"])
    assert _Counted.compared < 20 * len(lines)


def test_very_ambiguous_text_is_refused_quickly() -> None:
    with pytest.raises(ToolError, match=r"1501 times \(at lines 1, 2, 3,"):
        find_block(["a"] * 3_000, [" a"] * 1_500, [" a"] * 1_500)


@given(st.text("ab", max_size=12), st.text("ab", min_size=1, max_size=4))
def test_text_is_found_anywhere(lines: str, old: str) -> None:
    places = [i + 1 for i in range(len(lines)) if lines.startswith(old, i)]
    if len(places) == 1:
        assert find_block(lines, old, ["x"]).start == places[0]
    else:
        told = f"stands {len(places)} times .at lines {', '.join(map(str, places))}" if places else "nowhere|nearest"
        with pytest.raises(ToolError, match=told):
            find_block(lines, old, ["x"])


SEEN = tuple("abcdef")
LINES = st.lists(st.sampled_from("abc"), max_size=8)


def test_lines_around_changes_are_found() -> None:
    now = (*"ab", "new", "newer", *"def")
    assert find_shift(SEEN, now, 1, 2) == 0
    assert find_shift(SEEN, now, 4, 6) == 1
    assert find_shift(SEEN, now, 3, 3) is None


def test_unique_lines_between_two_changes_are_found() -> None:
    now = ("top", *"abcdef", "end")
    assert find_shift(SEEN, now, 3, 4) == 1


def test_a_repeated_line_is_identified_by_its_neighbours() -> None:
    seen = ("def f", "  return", "def g", "  return", "end")
    now = ("import", "def f", "  return", "def g", "  return", "END")
    assert find_shift(seen, now, 4, 4) == 1


def test_a_line_whose_twin_disappeared_is_not_mistaken_for_it() -> None:
    seen = ("def f", "  return", "def g", "  return", "end")
    now = ("import", "def f", "  changed", "def g", "  return", "END")
    assert find_shift(seen, now, 2, 2) is None


@given(LINES, LINES, LINES, st.data())
def test_the_answer_always_points_at_equal_lines(a: list[str], b: list[str], c: list[str], data: st.DataObject) -> None:
    seen, now = a + b + ["x"], c + b + ["x"]
    start = data.draw(st.integers(1, len(seen)))
    end = data.draw(st.integers(start, len(seen)))
    moved = find_shift(seen, now, start, end)
    if moved is not None:
        assert now[start - 1 + moved : end + moved] == seen[start - 1 : end]


@given(LINES, LINES, LINES)
def test_moved_lines_are_found(before: list[str], block: list[str], other: list[str]) -> None:
    seen = [*before, "<", *block, ">"]
    now = [*other, "<", *block, ">", *other]
    assert find_shift(seen, now, len(before) + 1, len(seen)) == len(other) - len(before)


def test_an_insertion_goes_between_the_lines_that_it_parted() -> None:
    now = ("top", *SEEN, "end")
    assert rebase_edits([LineEdit(start=4, end=3, text="x")], SEEN, now) == [LineEdit(start=5, end=4, text="x")]
    assert rebase_edits([LineEdit(start=4, end=3, text="x")], SEEN, (*"ab", "c", "new", *"ef")) is None


def test_a_batch_is_moved_whole_or_not_at_all() -> None:
    now = ("top", *"abc", "D", *"ef")
    first, second = LineEdit(start=1, end=1, text=""), LineEdit(start=4, end=4, text="")
    assert rebase_edits([first], SEEN, now) == [LineEdit(start=2, end=2, text="")]
    assert rebase_edits([first, second], SEEN, now) is None
