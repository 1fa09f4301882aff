from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import LineEdit, Text, append, apply, insertion, replacement

LINE = st.text(st.sampled_from("ab \t#é"), max_size=4)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[str], str, bool]:
    """Lines, line ending, and whether the last line is terminated."""
    lines = draw(st.lists(LINE, max_size=12))
    final = draw(st.booleans()) if lines and lines[-1] else True
    return lines, draw(st.sampled_from(["\n", "\r\n"])), final


@st.composite
def batches(draw: st.DrawFn, count: int) -> list[tuple[int, int, list[str]]]:
    """Edits that do not overlap, in any order: start, end, new lines."""
    marks = sorted(draw(st.sets(st.integers(1, count), max_size=count))) if count else []
    ranges = list(zip(marks[::2], marks[1::2], strict=False))
    edits = [(start, end, draw(st.lists(LINE, max_size=3))) for start, end in ranges]
    return draw(st.permutations(edits))


def written(lines: list[str], newline: str, *, final: bool) -> str:
    return newline.join(lines) + (newline if lines and final else "")


@given(st.data())
def test_edits_do_what_a_list_of_lines_would(data: st.DataObject) -> None:
    lines, newline, final = data.draw(files())
    raw = written(lines, newline, final=final)
    text = Text(raw)
    newline = newline if newline in raw else "\n"
    batch = data.draw(batches(len(lines)))
    expected: list[str] = []
    number = 1
    for start, end, new in sorted(batch):
        expected += lines[number - 1 : start - 1] + new
        number = end + 1
    expected += lines[number - 1 :]
    edits = [LineEdit(start=start, end=end, text=written(new, "\n", final=True)) for start, end, new in batch]
    assert apply(text, edits) == written(expected, newline, final=final)


@given(st.data())
def test_an_insertion_does_what_a_list_of_lines_would(data: st.DataObject) -> None:
    lines, newline, final = data.draw(files())
    raw = written(lines, newline, final=final)
    newline = newline if newline in raw else "\n"
    after = data.draw(st.integers(0, len(lines)))
    new = data.draw(st.lists(LINE, max_size=3))
    edit = insertion(after, written(new, "\n", final=True), len(lines))
    expected = lines[:after] + new + lines[after:]
    assert apply(Text(raw), [edit]) == written(expected, newline, final=final)


@given(files())
def test_lines_put_in_their_own_place_change_no_byte(file: tuple[list[str], str, bool]) -> None:
    lines, newline, final = file
    raw = written(lines, newline, final=final)
    edits = [LineEdit(start=i, end=i, text=f"{line}\n") for i, line in enumerate(lines, 1)]
    assert apply(Text(raw), edits) == raw


def test_untouched_lines_keep_their_own_line_endings() -> None:
    edit = LineEdit(start=2, end=2, text="new\n")
    assert apply(Text("a\nb\r\nc\r\nd\r\n"), [edit]) == "a\nnew\r\nc\r\nd\r\n"
    assert apply(Text("a\r\nb\nc\nd\n"), [edit]) == "a\r\nnew\nc\nd\n"


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("a\nb", LineEdit(start=2, end=2, text="c\n"), "a\nc"),
        ("a\nb", LineEdit(start=1, end=1, text="c"), "c\nb"),
        ("a\nb", LineEdit(start=3, end=2, text="c\n"), "a\nb\nc"),
        ("a\nb", LineEdit(start=2, end=2, text=""), "a"),
        ("a\n", LineEdit(start=1, end=1, text=""), ""),
        ("", LineEdit(start=1, end=0, text="x\n"), "x\n"),
        ("a\r\nb", LineEdit(start=3, end=2, text="c\n"), "a\r\nb\r\nc"),
        ("a\n", LineEdit(start=1, end=1, text="b\r\nc\r\n"), "b\nc\n"),
        ("a\nb\n", LineEdit(start=1, end=1, text="\n\n"), "\n\nb\n"),
    ],
)
def test_the_end_of_the_file_stays_as_it_was(before: str, edit: LineEdit, after: str) -> None:
    assert apply(Text(before), [edit]) == after


@pytest.mark.parametrize("pair", [((1, 2), (2, 3)), ((1, 3), (2, 2)), ((2, 2), (2, 2))])
def test_overlapping_edits_are_refused(pair: tuple[tuple[int, int], tuple[int, int]]) -> None:
    edits = [LineEdit(start=start, end=end, text="x\n") for start, end in pair]
    with pytest.raises(ToolError, match="edits overlap: lines") as told:
        apply(Text("a\nb\nc\n"), edits)
    assert told.value.kind == "ValueError"


@pytest.mark.parametrize(("start", "end"), [(0, 1), (2, 1), (3, 4), (4, 4), (-1, -1)])
def test_ranges_outside_the_file_are_refused_with_the_valid_ones(start: int, end: int) -> None:
    with pytest.raises(ToolError, match="1 <= start <= end <= 3"):
        replacement(f"start_line={start}, end_line={end}", start, end, "", 3)


@pytest.mark.parametrize("after", [-1, 4])
def test_insertions_outside_the_file_are_refused_with_the_valid_places(after: int) -> None:
    with pytest.raises(ToolError, match=rf"after_line={after}: .* 0 .* 3"):
        insertion(after, "", 3)


@pytest.mark.parametrize("number", ["1", 1.0, None, True])
def test_line_numbers_are_whole_numbers(number: object) -> None:
    with pytest.raises(ToolError, match="whole number"):
        replacement("x", number, 1, "", 3)
    with pytest.raises(ToolError, match="whole number"):
        insertion(number, "", 3)


@pytest.mark.parametrize(
    ("before", "payload", "after"),
    [
        ("a\n", "b\n", "a\nb\n"),
        ("a", "b\n", "a\nb\n"),
        ("a", "b", "a\nb"),
        ("a\r\nb", "c\nd\n", "a\r\nb\r\nc\r\nd\r\n"),
        ("", "b\n", "b\n"),
        ("a", "", "a"),
    ],
)
def test_appending_joins_no_lines(before: str, payload: str, after: str) -> None:
    assert append(Text(before), payload) == after
