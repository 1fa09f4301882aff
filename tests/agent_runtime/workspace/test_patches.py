"""Replace and patch against oracles in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import Text, apply
from agent_runtime.workspace.edits import find_block
from agent_runtime.workspace.patches import Hunk, UpdateFile, parse_patch, place_hunks, replace_hunks

LINE = st.sampled_from(["a", " a", "a ", "b", "  b", "", "“a”", '"a"', "\ta", "c()", "def f():", "    x"])
LINES = st.lists(LINE, max_size=12)


def flat(line: str) -> str:
    return line.replace("“", '"').replace("”", '"').strip()


RUNGS: list[Callable[[str], str]] = [lambda line: line, str.rstrip, str.strip, flat]


def places(lines: Sequence[str], old: Sequence[str], key: Callable[[str], str]) -> list[int]:
    wanted = [key(line) for line in old]
    return [i for i in range(len(lines) - len(old) + 1) if [key(line) for line in lines[i : i + len(old)]] == wanted]


@given(LINES, st.lists(LINE, min_size=1, max_size=3), LINES, st.sampled_from(["\n", "\r\n"]))
def test_replace_puts_the_new_text_where_the_old_stands_once(
    lines: list[str], old: list[str], new: list[str], newline: str
) -> None:
    raw = "".join(f"{line}{newline}" for line in lines)
    text = Text(raw)
    try:
        match = find_block(text.lines, old, new)
    except ToolError:
        if any(line.strip() for line in old):
            assert len(places(lines, old, RUNGS[0])) != 1
        return
    after = apply(text, match.edits)
    first = next(key for key in RUNGS if places(lines, old, key))
    if first is RUNGS[0]:
        [at] = places(lines, old, first)
        assert after == "".join(f"{line}{newline}" for line in [*lines[:at], *new, *lines[at + len(old) :]])
    at, end = match.start - 1, match.end
    assert at in places(lines, old, RUNGS[-1])
    assert after == "".join(f"{line}{newline}" for line in [*lines[:at], *match.lines, *lines[end:]])
    assert [flat(line) for line in match.lines if flat(line) == line.strip()] == [
        flat(line) for line, kept in zip(new, match.lines, strict=True) if flat(kept) == kept.strip()
    ]


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[str], list[str], list[str]]:
    """Return a file, an edited version, and the patch lines."""
    count = draw(st.integers(1, 15))
    before = [f"{draw(LINE)}#{i}" for i in range(count)]
    after: list[str] = []
    patch: list[str] = []
    for i, line in enumerate(before):
        match draw(st.sampled_from(["keep", "keep", "keep", "remove", "change", "add", "split"])):
            case "remove":
                patch.append(f"-{line}")
            case "change":
                new = draw(LINE)
                after.append(f"{new}!{i}")
                patch += [f"-{line}", f"+{new}!{i}"]
            case "add":
                new = draw(LINE)
                after += [line, f"{new}+{i}"]
                patch += [f" {line}", f"+{new}+{i}"]
            case "split":
                after.append(line)
                patch += [f" {line}", "@@"]
            case _:
                after.append(line)
                patch.append(f" {line}")
    return before, after, patch


@given(edited(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_patch_built_from_a_difference_reproduces_it(
    case: tuple[list[str], list[str], list[str]],
    newline: str,
    final: bool,  # noqa: FBT001 - drawn by position
) -> None:
    before, after, body = case
    hunks = [
        part for part in "\n".join(body).split("\n@@") if any(line[:1] in "+-" for line in part.split("\n") if line)
    ]
    if not hunks:
        return
    patch = "\n".join(
        [
            "*** Begin Patch",
            "*** Update File: f",
            *("@@\n" + hunk.removeprefix("\n") for hunk in hunks),
            "*** End Patch",
        ]
    )
    [section] = parse_patch(patch)
    assert isinstance(section, UpdateFile)
    end = newline if final else ""
    text = Text(newline.join(before) + end)
    placed = place_hunks("f", text.lines, section.hunks)
    assert not placed.notes
    joined = newline if newline in text.raw else "\n"
    assert apply(text, placed.edits) == (joined.join(after) + (end and joined) if after else "")


@given(LINES, st.lists(st.tuples(st.lists(LINE, max_size=3), st.lists(LINE, max_size=3)), min_size=1, max_size=3))
def test_any_hunks_are_placed_where_they_stand_once_or_refused(
    lines: list[str], parts: list[tuple[list[str], list[str]]]
) -> None:
    hunks = [Hunk(old=tuple(old), new=tuple(new)) for old, new in parts]
    text = Text("".join(f"{line}\n" for line in lines))
    try:
        edits = place_hunks("f", text.lines, hunks).edits
        after = apply(text, edits)
    except ToolError:
        return
    untouched = sum(edit.end - edit.start + 1 for edit in edits)
    added = sum(edit.text.count("\n") for edit in edits)
    assert after.count("\n") == len(lines) - untouched + added
    for old, _ in parts:
        assert not old or any(len(places(lines, old, key)) >= 1 for key in RUNGS)


@pytest.mark.parametrize(
    ("header", "places_told"),
    [("class A", "2"), ("class B", "7"), ("class", "stands 2 times"), ("clas", "stands 2 times")],
)
def test_a_header_narrows_by_whole_words_and_by_indentation(header: str, places_told: str) -> None:
    lines = [
        "class A(Base):",
        "    def run(self):",
        "        pass",
        "    # end",
        "",
        "class B(Base):",
        "    def run(self):",
    ]
    hunk = Hunk(headers=(header,), old=("    def run(self):",), new=("    def go(self):",))
    try:
        [edit] = place_hunks("f", lines, [hunk]).edits
    except ToolError as error:
        assert places_told in str(error)  # noqa: PT017 - either the place or the refusal is expected
    else:
        assert str(edit.start) == places_told


HUNKS = ["@@ class A\n@@ def f\n one\n-two\n+TWO\n", "@@\n-three\n+THREE\n \n", "@@\n-end\n+END\n*** End of File\n"]
PATCH = f"*** Begin Patch\n*** Update File: a\n{HUNKS[0]}{HUNKS[1]}*** Update File: b\n{HUNKS[2]}*** End Patch\n"


def test_hunks_are_numbered_over_all_files() -> None:
    sections = parse_patch(PATCH)
    assert [hunk.number for section in sections if isinstance(section, UpdateFile) for hunk in section.hunks] == [
        1,
        2,
        3,
    ]
    [alone] = parse_patch("*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch")
    assert isinstance(alone, UpdateFile)
    assert alone.hunks[0].number == 0


@pytest.mark.parametrize(
    ("number", "correction", "old", "new"),
    [
        (1, "-2\n+zwei\n", HUNKS[0], "@@ class A\n@@ def f\n-2\n+zwei\n"),
        (1, "@@ def g\n-2\n+zwei", HUNKS[0], "@@ def g\n-2\n+zwei\n"),
        (
            2,
            "*** Begin Patch\r\n*** Update File: a\r\n@@\r\n-3\r\n+drei\r\n*** End Patch\r\n",
            HUNKS[1],
            "@@\n-3\n+drei\n",
        ),
        (2, "", HUNKS[1], ""),
        (3, "-end\n+ENDE\n", "-end\n+END\n", "-end\n+ENDE\n"),
    ],
)
def test_a_hunk_is_put_in_the_place_of_another(number: int, correction: str, old: str, new: str) -> None:
    assert replace_hunks(PATCH, {number: correction}) == PATCH.replace(old, new)


@given(st.dictionaries(st.integers(1, 3), st.sampled_from(["-x\n+y\n", "@@ z\n+y\n"]), min_size=1))
def test_hunks_without_correction_stay(corrections: dict[int, str]) -> None:
    before, after = (
        [hunk for section in parse_patch(patch) if isinstance(section, UpdateFile) for hunk in section.hunks]
        for patch in (PATCH, replace_hunks(PATCH, corrections))
    )
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        assert ((old.headers, old.old, old.new, old.at_end) == (new.headers, new.old, new.new, new.at_end)) is (
            number not in corrections
        )
