from __future__ import annotations

import random
import re
from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import (
    LineEdit,
    Text,
    append,
    apply,
    decode,
    diff,
    make_insertion,
    make_replacement,
    opcodes,
    summarize_changes,
    version_of,
)

TEN = [f"line {i}" for i in range(1, 11)]
LINES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=10)


def test_a_diff_has_line_numbers_and_three_lines_of_context() -> None:
    assert diff(TEN, [*TEN[:4], "new", "newer", *TEN[5:]]).split("\n") == [
        "2   line 2",
        "3   line 3",
        "4   line 4",
        "5 - line 5",
        "5 + new",
        "6 + newer",
        "7   line 6",
        "8   line 7",
        "9   line 8",
    ]


def test_sent_edits_are_rendered_by_line_numbers_only() -> None:
    edit = LineEdit(start=4, end=10, text="line 4\n" + "new\n" * 20)
    assert diff(TEN, [*TEN[:4], *["new"] * 20], edits=[edit]).split("\n") == [
        "2   line 2",
        "3   line 3",
        "4   line 4",
        "5 - line 5",
        "6 - line 6",
        "- … 2 more lines",
        "9 - line 9",
        "10 - line 10",
        "5 + … 20 lines as sent, to 24",
    ]


def test_changes_outside_the_regions_are_omitted() -> None:
    after = ["first", *TEN[1:9], "last"]
    assert diff(TEN, after, regions=[(8, 10)]).split("\n")[-2:] == ["10 - line 10", "10 + last"]
    assert "first" not in diff(TEN, after, regions=[(8, 10)])
    assert diff(TEN, after, regions=[(5, 6)]) == ""


def test_changes_are_counted_with_their_places() -> None:
    assert summarize_changes(TEN, TEN) == ""
    assert (
        summarize_changes(TEN, ["new", *TEN[:4], "five", "more", *TEN[5:9]])
        == "Changed lines: 1, 6-7, after 11 (1 removed) (+3 -2)."
    )
    many = summarize_changes(
        [str(number) for number in range(200)], [str(number) if number % 2 else "x" for number in range(200)]
    )
    assert ", 79, 60 more places (+100 -100)." in many


def test_distant_changes_form_separate_groups() -> None:
    after = ["first", *TEN[1:9], "last"]
    assert diff(TEN, after).split("\n…\n") == [
        "1 - line 1\n1 + first\n2   line 2\n3   line 3\n4   line 4",
        "7   line 7\n8   line 8\n9   line 9\n10 - line 10\n10 + last",
    ]


def test_equal_texts_have_no_diff() -> None:
    assert diff(TEN, TEN) == ""


def test_a_long_run_is_cut_in_its_middle() -> None:
    shown = diff([], [f"new {i}" for i in range(100)]).split("\n")
    assert len(shown) == 13
    assert "… 88 more lines" in shown[6]


def test_a_long_diff_is_truncated_with_a_count() -> None:
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
def test_a_diff_is_true_of_the_texts(before: list[str], after: list[str]) -> None:
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
def test_opcodes_transform_texts_of_any_length(seed: int) -> None:
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


def test_texts_too_expensive_for_difflib_count_as_different() -> None:
    """No line is unique, and matches are a line or two long."""
    chance = random.Random(1)  # noqa: S311 - lines to compare
    old, new = ([str(chance.randrange(150)) for _ in range(9000)] for _ in range(2))
    assert len(opcodes(old, new)) == 1


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
    edit = make_insertion(after, written(new, "\n", final=True), len(lines))
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
        make_replacement(f"start_line={start}, end_line={end}", start, end, "", 3)


@pytest.mark.parametrize("after", [-1, 4])
def test_insertions_outside_the_file_are_refused_with_the_valid_places(after: int) -> None:
    with pytest.raises(ToolError, match=rf"after_line={after}: .* 0 .* 3"):
        make_insertion(after, "", 3)


@pytest.mark.parametrize("number", ["1", 1.0, None, True])
def test_line_numbers_are_whole_numbers(number: object) -> None:
    with pytest.raises(ToolError, match="whole number"):
        make_replacement("x", number, 1, "", 3)
    with pytest.raises(ToolError, match="whole number"):
        make_insertion(number, "", 3)


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


@pytest.mark.parametrize(
    ("data", "encoding", "raw"),
    [
        (b"plain\n", "utf-8", "plain\n"),
        ("žluťoučký\n".encode(), "utf-8", "žluťoučký\n"),
        (b"\xef\xbb\xbfmarked\n", "utf-8", "marked\n"),
        (b"\xff\xfea\0\n\0", "utf-16-le", "a\n"),
        (b"\xfe\xff\0a\0\n", "utf-16-be", "a\n"),
        (b"\xff\xfe\0\0a\0\0\0", "utf-32-le", "a"),
        (b"caf\xe9 au lait, d\xe9j\xe0 vu\n", "latin-1", "café au lait, déjà vu\n"),
        (b"", "utf-8", ""),
    ],
)
def test_encodings_are_recognised_and_preserved(data: bytes, encoding: str, raw: str) -> None:
    text = decode(data)
    assert text is not None
    assert (text.encoding, text.raw) == (encoding, raw)
    assert text.encode(text.raw) == data


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"a\0b", bytes(range(256)), b"\x80\x81\x82\x83" * 100])
def test_binary_data_is_no_text(data: bytes) -> None:
    assert decode(data) is None


@given(st.binary(max_size=200))
def test_any_text_encodes_to_its_original_bytes(data: bytes) -> None:
    text = decode(data)
    assert text is None or text.encode(text.raw) == data


def test_only_newlines_end_lines() -> None:
    assert Text("a\x0cb\u2028c\rd\ne").lines == ("a\x0cb\u2028c\rd", "e")


def test_carriage_returns_belong_to_the_line_ending_where_most_lines_have_them() -> None:
    assert Text("a\r\nb\r\nc\n").lines == ("a", "b", "c")
    assert Text("a\r\nb\nc\n").lines == ("a\r", "b", "c")


def test_an_unencodable_character_is_reported() -> None:
    with pytest.raises(ToolError, match=r"latin-1 and cannot hold '€' \(U\+20AC\)"):
        Text("x", "latin-1").encode("5 €")


def test_only_unusual_formats_are_noted() -> None:
    assert Text("a\n").format_notes == ""
    assert Text("").format_notes == ""
    assert Text("a\r\nb", "utf-16-le", b"\xff\xfe").format_notes == (
        "utf-16-le, CRLF line endings, no newline at the end"
    )
    assert Text("a\n", "utf-8", b"\xef\xbb\xbf").format_notes == "UTF-8 with byte order mark"


def test_a_version_is_the_beginning_of_the_content_s_sha256() -> None:
    assert version_of(b"") == "e3b0c442"
