"""The difference in a prompt: every file is named, and the changes most worth reading are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.difference import ChangedFile, DiffLines, Hunk, Section, parse_patch, quote_name
from bot.prompt.difference import Difference, choose_readable, find_ignored, is_cut, order_files
from tests.differences import difference_of, new_file
from tests.origin import git

LOCK = [f'"dep{number}": "1.0.{number}",' for number in range(1_500)]


def shown_lines(text: str) -> dict[str, int]:
    """Return the number of changed lines that a rendered difference shows, by path."""
    return {
        section.path: sum(line[:1] in {"+", "-"} for hunk in section.hunks for line in hunk.lines)
        for section in parse_patch(text)
    }


def test_a_lock_file_does_not_hide_the_source() -> None:
    text = difference_of({"package-lock.json": LOCK, "src/app.js": ["const a = 1;"]}).render(60_000)
    assert text == (
        "2 files (+1,501) changed:\n"
        "Source:\n"
        "- src/: app.js (new, +1)\n"
        "Seldom worth reading:\n"
        "- package-lock.json (lock file, new, +1,500)\n"
        "--- /dev/null\n"
        "+++ b/src/app.js\n"
        "@@ -0,0 +1,1 @@\n"
        "+const a = 1;\n"
        "[Shown: all changes of 1 files, a part of 0, none of 1.]"
    )
    assert is_cut(text)


def test_a_difference_of_lock_files_alone_is_shown() -> None:
    assert shown_lines(difference_of({"package-lock.json": LOCK}).render(60_000)) == {"package-lock.json": 1_500}


def test_a_small_change_of_a_lock_file_is_shown_last() -> None:
    text = difference_of({"a/yarn.lock": ["x"], "b.py": ["y"]}).render(60_000)
    assert list(shown_lines(text)) == ["b.py", "a/yarn.lock"]
    assert not is_cut(text)


def test_all_of_450_files_are_named() -> None:
    files = {f"src/mod{n % 30}/file{n}.py": ["x = 1"] * 80 for n in range(450)}
    text = difference_of(files).render(60_000)
    table = text.partition("\n--- ")[0]
    assert {f"file{n}.py" for n in range(450)} <= set(re.findall(r"file\d+\.py", table))
    assert len(text) <= 60_000
    assert len(shown_lines(text)) > 50


@pytest.mark.parametrize("room", [2_000, 17_000, 60_000])
def test_files_that_do_not_fit_are_counted_by_directory(room: int) -> None:
    files = {f"pkg{n % 300}/{'deep/' * (n % 7)}f{n}.go": ["a"] * 3 for n in range(5_000)}
    text = difference_of(files).render(room)
    table = text.partition("\n--- ")[0]
    assert table.startswith("5,000 files (+15,000) changed:\n")
    named = len(re.findall(r"f\d+\.go \(", table))
    counted = sum(int(count.replace(",", "")) for count in re.findall(r"(?:and |: |- )([\d,]+) files? \(", table))
    assert named + counted == 5_000
    assert len(text) <= room


def test_source_comes_before_tests_documents_and_data() -> None:
    paths = ["a.json", "docs/b.md", "tests/test_c.py", "src/d.py", "dist/e.min.js"]
    text = difference_of({path: ["x"] for path in paths}).render(60_000)
    assert list(shown_lines(text)) == list(reversed(paths[:-1])) + paths[-1:]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("please look at z.py first", "src/z.py"),
        ("in `src/z.py`, line 3", "src/z.py"),
        ("The Makefile is wrong", "build/Makefile"),
        ("see ./docs/x.md.", "docs/x.md"),
    ],
)
def test_files_that_the_thread_names_come_first(words: str, path: str) -> None:
    files = {name: ["x"] for name in ("a.py", "src/z.py", "build/Makefile", "docs/x.md")}
    assert next(iter(shown_lines(difference_of(files, words).render(60_000)))) == path


def test_only_the_request_brings_a_marked_file_to_the_front() -> None:
    files = [new_file(path, ["x"])[0] for path in ("a.py", "yarn.lock")]
    assert [entry.file.path for entry in order_files(files, ["Bump yarn.lock"])] == ["a.py", "yarn.lock"]
    assert [entry.file.path for entry in order_files(files, [], "check yarn.lock")] == ["yarn.lock", "a.py"]


def sections_of(tmp_path: Path, before: str, after: str) -> tuple[ChangedFile, Section]:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "--quiet", str(repo))
    (repo / "big.py").write_text(before)
    git(repo, "add", "--all")
    (repo / "big.py").write_text(after)
    [section] = parse_patch(git(repo, "diff"))
    added, removed, _ = git(repo, "diff", "--numstat").split("\t")
    return ChangedFile(path="big.py", status="modified", added=int(added), removed=int(removed)), section


def test_a_large_file_is_cut_at_a_hunk_behind_small_ones(tmp_path: Path) -> None:
    before = "".join(f"line {n}\n" for n in range(2_000))
    file, section = sections_of(tmp_path, before, before.replace("0\n", "zero\n"))
    small, small_section = new_file("small.py", ["x"])
    ordered = order_files([file, small], [])
    text = Difference.of(ordered, [section, small_section]).render(6_000)
    shown = {each.path: each for each in parse_patch(text)}
    assert shown["small.py"].hunks == small_section.hunks
    hunks = shown["big.py"].hunks
    assert 3 < len(hunks) < len(section.hunks)
    assert [hunk.lines for hunk in hunks[:-1]] == [hunk.lines for hunk in section.hunks[: len(hunks) - 1]]
    assert re.search(r"^\[cut: \d+ of the 400 changed lines of this file are shown\]$", text, re.MULTILINE)


def test_a_single_huge_hunk_is_cut_at_a_line_with_a_header_that_counts() -> None:
    text = difference_of({"a.py": [f"line {n}" for n in range(50_000)]}).render(20_000)
    [section] = parse_patch(text)
    [hunk] = section.hunks
    assert hunk.lines[-1] == f"+line {hunk.count('+') - 1}"
    assert f"[cut: {hunk.count('+'):,} of the 50,000 changed lines of this file are shown]" in text
    assert 15_000 < len(text) <= 20_000


def test_a_line_that_is_longer_than_the_room_is_not_shown_in_part() -> None:
    text = difference_of({"a.py": ["x" * 100_000], "b.py": ["y"]}).render(20_000)
    assert shown_lines(text) == {"b.py": 1}


def test_a_file_whose_patch_is_that_of_a_minified_one_comes_last() -> None:
    file = ChangedFile(path="a.js", status="modified", added=1, removed=1)
    hunk = Hunk(old=1, new=1, lines=(f"-{'x' * 4_000}", f"+{'y' * 4_000}"))
    other, other_section = new_file("b.md", ["text"])
    difference = Difference.of(order_files([file, other], []), [Section(path="a.js", hunks=(hunk,)), other_section])
    assert [(entry.file.path, entry.file.mark) for entry in difference.files] == [("b.md", ""), ("a.js", "minified")]


def test_nothing_in_a_file_looks_like_a_header() -> None:
    headers = ["++ b/fake.py", "@@ -1,9 +1,9 @@", "-- a/fake.py"]
    after_a_return = ["x\r--- a/fake.py\r+++ b/fake.py\r@@ -1,1 +1,1 @@\r+y"]
    text = difference_of({"a.py": headers, "b.py": after_a_return}).render(60_000)
    assert shown_lines(text) == {"a.py": 3, "b.py": 1}


@pytest.mark.parametrize(
    "name", ['q"\\.py', "line\nfeed\r.py", "\u202eevil\u200b.py", "\udcff.py", "a\t b.py", "naïve.py"]
)
def test_names_are_quoted_so_that_they_can_be_read_back(name: str) -> None:
    text = difference_of({name: ["x"]}).render(60_000)
    assert [section.path for section in parse_patch(text)] == [name]
    assert quote_name(name) in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_path_of_3000_bytes_is_shortened_in_the_table() -> None:
    table = difference_of({"/".join(["d" * 99] * 30) + "/x.py": ["x"]}).render(60_000).partition("\n--- ")[0]
    assert "x.py (new, +1)" in table
    assert len(table) < 300


def test_files_are_left_out_by_globs_as_rules_match_them() -> None:
    files = [new_file(path, ["x"])[0] for path in ("docs/a/b.md", "x/yarn.lock", "src/a.py", "src/a.gen.py")]
    assert find_ignored([file.path for file in files], ["docs/", "**/YARN.lock", "src/*.gen.py"]) == [0, 1, 3]
    text = Difference.of(order_files(files[2:3], []), [], files[:1]).render(5_000)
    assert "Left out of reviews by the repository: docs/a/b.md (new, +1)" in text


def test_globs_are_no_regular_expressions_and_do_not_backtrack() -> None:
    paths = ["a" * 3_000, "(a+)+$", "/".join(["a"] * 1_500)]
    assert find_ignored(paths, ["*a" * 90 + "b", "(a+)+$", "**/a" * 40 + "/b"]) == [1]


def test_readable_files_are_as_many_as_a_prompt_can_show() -> None:
    files = [new_file(f"f{n}.py", ["x"] * 200)[0] for n in range(2_000)]
    assert len(choose_readable(order_files(files, []))) == 150
    huge = new_file("huge.py", ["x"] * 100_000)[0]
    assert [file.path for file in choose_readable(order_files([huge, files[0]], ["huge.py"]))] == ["huge.py", "f0.py"]


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=40),
        st.lists(st.text(max_size=300).map(lambda text: text.replace("\n", " ")), min_size=1, max_size=60),
        min_size=1,
        max_size=30,
    ),
    st.integers(2_000, 30_000),
)
def test_no_difference_takes_more_than_its_room(files: dict[str, list[str]], room: int) -> None:
    text = difference_of(files).render(room)
    assert len(text) <= room
    lines = DiffLines.of(parse_patch(text))
    for (path, side), numbers in lines.hunks.items():
        if side == "RIGHT" and path in files:
            assert max(numbers, default=0) <= len(files[path])
