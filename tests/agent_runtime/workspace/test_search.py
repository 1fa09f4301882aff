from __future__ import annotations

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.listing import Include
from agent_runtime.workspace.search import Hits


def fed(hits: Hits, output: bytes, size: int = 1 << 16) -> Hits:
    for start in range(0, len(output), size):
        hits.feed(output[start : start + size])
    return hits


def test_hits_are_in_order_of_path_and_line_however_they_came() -> None:
    hits = fed(Hits(limit=9), b"./b\x002:x\n9:y\n\n./a\x001:z\n")
    assert hits.render() == "[find] 3 match(es) (showing 3 of 3):\na:1:z\nb:2:x\nb:9:y"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_all_matches_are_counted_and_the_first_listed(size: int) -> None:
    lines = b"".join(b"%d:x\n" % number for number in range(1, 101))
    output = b"\n".join(b"./%c\0%b" % (name, lines) for name in b"cab")
    hits = fed(Hits(limit=2), output, size)
    assert hits.render().split("\n") == [
        "[find] 300 match(es) (showing 2 of 300):",
        "a:1:x",
        "a:2:x",
        "[more: a 100, b 100, c 100. Narrow it with target or include, or a more exact pattern.]",
    ]


def test_stored_hits_are_bounded_and_include_the_first() -> None:
    output = b"\n".join(b"%05d\x001:x\n2:y\n" % number for number in range(30_000, 0, -1))
    hits = fed(Hits(limit=3), output)
    assert [(hit.file, hit.line) for hit in hits.first_hits()] == [("00001", 1), ("00001", 2), ("00002", 1)]
    assert len(hits._files) <= 3
    assert "60000 match(es)" in hits.render()


def test_excluded_files_do_not_count() -> None:
    hits = fed(Hits(limit=9, include=Include.parse("*.py")), b"./a.py\x001:x\n\n./b.c\x001:x\n2:x\n")
    assert hits.render() == "[find] 1 match(es) (showing 1 of 1):\na.py:1:x"


@pytest.mark.parametrize("size", [1, 5, 1 << 16])
def test_a_remark_of_ripgrep_is_no_match(size: int) -> None:
    remark = b'./a: WARNING: stopped searching binary file after match (found "\\0" byte around offset 9)\n'
    for context in (0, 1):
        hits = fed(Hits(limit=9, context=context), b"./a\x001:x\n" + remark + b"\n./b\x001:x\n", size)
        assert [(hit.file, hit.line, hit.text) for hit in hits.first_hits()] == [("a", 1, "x"), ("b", 1, "x")]


@pytest.mark.parametrize("size", [1, 4, 1 << 16])
def test_no_content_of_a_file_can_be_taken_for_another_file(size: int) -> None:
    hits = fed(Hits(limit=9), b"./a\x001:x\0./b\x001:y\n3:\n4:\0\n\n./c\x001:z\n", size)
    assert [(hit.file, hit.line) for hit in hits.first_hits()] == [("a", 1), ("a", 3), ("a", 4), ("c", 1)]


def test_matches_are_summarised_by_first_differing_directory() -> None:
    lines = [b"".join(b"%d:x\n" % line for line in range(1, number + 1)) for number in range(1, 13)]
    output = b"\n".join(b"./src/pkg/%d/f\0%b" % (number, each) for number, each in enumerate(lines, 1))
    hits = fed(Hits(limit=1), output)
    assert "[more: src/pkg/12/ 12, src/pkg/11/ 11, " in hits.render()
    assert ", src/pkg/5/ 5, 4 other places 10. Narrow" in hits.render()


def test_context_groups_and_file_names_are_rendered() -> None:
    hits = fed(
        Hits(limit=3, context=1),
        b"./src/a\x001-before\n2:x\n3-after\n--\n8-before\n9:x\n10-after\n\n"
        b"./src/b\x001:x\n2-after\n--\n19-unwanted\n20:x\n",
    )
    assert hits.render().split("\n") == [
        "[find] 4 match(es) (showing 3 of 4):",
        "src/a", "1-before", "2:x", "3-after", "--", "8-before", "9:x", "10-after", "",
        "src/b", "1:x", "2-after",
        "[more: src/a 2, src/b 2. Narrow it with target or include, or a more exact pattern.]",
    ]  # fmt: skip


def test_a_long_line_is_cut_around_its_match() -> None:
    line = "é" * 1000 + "NEEDLE" + "ü" * 1000
    hits = fed(Hits(limit=1), f"./a\0001:{line}\n".encode())
    assert hits.truncated_files() == ["a"]
    hits.use_columns(fed(Hits(limit=1, columns=True), f"./a\0001:2001:{line}\n".encode()))
    (hit,) = hits.first_hits()
    assert "NEEDLE" in hit.text
    assert hit.text.startswith("[920 characters]…é")
    assert hit.text.endswith("ü…[846 characters]")
    assert hits.truncated_files() == []


def test_the_file_of_an_overlong_line_is_reported() -> None:
    hits = Hits(limit=1)
    with pytest.raises(ToolError, match=r"'dist/a\.js' .* 16,000,000 bytes"):
        fed(hits, b"./dist/a.js\x001:" + b"x" * 16_000_001, 1 << 22)


def test_undecodable_bytes_are_replaced() -> None:
    (hit,) = fed(Hits(limit=1), b"./a\x001:caf\xe9 x\r\n").first_hits()
    assert hit.text == "caf\ufffd x"
    (hit,) = fed(Hits(limit=1), b"./a\x001:pin" + b"\xff\xfe" * 60 + b"\n").first_hits()
    assert hit.text == "pin[120 characters of binary data]"


def test_a_name_that_is_not_printable_is_escaped() -> None:
    hits = fed(Hits(limit=1), b"a\x1b[2J\x001:x\n")
    assert hits.render().split("\n")[1:] == ["a\\x1b[2J:1:x"]


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py.txt"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("tests/**", ["tests/a", "tests/x/a"], ["x/tests/a", "a"]),
        ("src/*.{ts,tsx}", ["src/a.ts", "src/a.tsx"], ["src/x/a.ts", "a.ts", "src/a.t"]),
        ("./a/b.py", ["a/b.py"], ["b.py", "x/a/b.py"]),
        ("/a/b.py", ["a/b.py"], ["x/a/b.py"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["src/a.py", "test_a.py"]),
        ("tests/", ["tests/a", "tests/x/a"], ["a"]),
        ("{a,{b,c}}/*.x", ["a/1.x", "b/1.x", "c/1.x"], ["d/1.x"]),
    ],
)
def test_globs_choose_files(glob: str, matching: list[str], other: list[str]) -> None:
    include = Include.parse(glob)
    assert [path for path in matching if not include.matches(path)] == []
    assert [path for path in other if include.matches(path)] == []


@pytest.mark.parametrize(
    ("glob", "directory"), [("*.py", ""), ("**/a.py", ""), ("a/b/*.py", "a/b"), ("a/*/b/c", "a"), ("{a,b}/c", "")]
)
def test_a_glob_tells_where_to_begin(glob: str, directory: str) -> None:
    assert Include.parse(glob).directory == directory


@pytest.mark.parametrize("glob", ["", "/", "!x", "#x", "../x", "a/../b", "a\0b", "a\nb", "{a,b}" * 8])
def test_a_glob_that_is_none_is_refused(glob: str) -> None:
    with pytest.raises(ToolError, match="include="):
        Include.parse(glob)
