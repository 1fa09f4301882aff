from __future__ import annotations

import base64
import json

import pytest

from agent_runtime.errors import ToolError
from agent_runtime.workspace.globs import Include
from agent_runtime.workspace.hits import Hits


def begin(path: str) -> bytes:
    return json.dumps({"type": "begin", "data": {"path": {"text": path}}}, separators=(",", ":")).encode()


def match(path: str, line: int, text: str, start: int = 0, kind: str = "match") -> bytes:
    data = {
        "path": {"text": path},
        "lines": {"text": text},
        "line_number": line,
        "submatches": [{"start": start, "end": start + 1}] if kind == "match" else [],
    }
    return json.dumps({"type": kind, "data": data}, separators=(",", ":")).encode()


def fed(hits: Hits, *lines: bytes) -> Hits:
    for line in lines:
        hits.add(line)
    return hits


def test_hits_are_in_order_of_path_and_line_however_they_came() -> None:
    hits = fed(
        Hits(most=9), begin("./b"), match("./b", 2, "x\n"), match("./b", 9, "y\n"), begin("./a"), match("./a", 1, "z\n")
    )
    assert hits.text() == "[find] 3 match(es) (showing 3 of 3):\na:1:z\nb:2:x\nb:9:y"


def test_all_matches_are_counted_and_the_first_shown() -> None:
    hits = Hits(most=2)
    for name in ("c", "a", "b"):
        fed(hits, begin(name), *(match(name, i, "x\n") for i in range(1, 101)))
    assert hits.text().split("\n") == [
        "[find] 300 match(es) (showing 2 of 300):",
        "a:1:x",
        "a:2:x",
        "[more: a 100, b 100, c 100. Narrow it with target or include, or a more exact pattern.]",
    ]


def test_what_is_kept_stays_bounded_and_the_first_are_among_it() -> None:
    hits = Hits(most=3)
    for i in range(30_000, 0, -1):
        fed(hits, begin(f"{i:05}"), match(f"{i:05}", 1, "x\n"))
    assert [hit.file for hit in hits.shown()] == ["00001", "00002", "00003"]
    assert hits._kept <= 20_001
    assert "30000 match(es)" in hits.text()


def test_counts_replace_what_was_found_and_name_the_files_that_come_first() -> None:
    hits = fed(Hits(most=3), begin("z"), match("z", 1, "x\n"))
    assert hits.start_over(b"./z\x0040\n./d/b\x002\n./d/a\x001\n./d/c\x005\n") == ["d/a", "d/b"]
    hits.take_again(
        [begin("d/a"), match("d/a", 1, "x\n"), begin("d/b"), match("d/b", 7, "x\n"), match("d/b", 8, "x\n")]
    )
    assert [(hit.file, hit.line) for hit in hits.shown()] == [("d/a", 1), ("d/b", 7), ("d/b", 8)]
    assert hits.text().startswith("[find] 48 match(es) (showing 3 of 48):")
    assert hits.text().endswith("[more: z 40, d/ 8. Narrow it with target or include, or a more exact pattern.]")


def test_where_the_matches_are_is_told_by_the_first_directory_in_which_they_differ() -> None:
    hits = Hits(most=1)
    hits.start_over(b"".join(b"./src/pkg/%d/f\x00%d\n" % (number, number) for number in range(1, 13)))
    assert "[more: src/pkg/12/ 12, src/pkg/11/ 11, " in hits.text()
    assert ", src/pkg/5/ 5, 4 other places 10. Narrow" in hits.text()


def test_context_is_marked_and_groups_are_parted() -> None:
    hits = fed(
        Hits(most=2),
        begin("a"),
        match("a", 1, "before\n", kind="context"),
        match("a", 2, "x\n"),
        match("a", 3, "after\n", kind="context"),
        match("a", 8, "before\n", kind="context"),
        match("a", 9, "x\n"),
        match("a", 10, "after\n", kind="context"),
        match("a", 19, "unwanted\n", kind="context"),
        match("a", 20, "x\n"),
    )
    assert hits.text().split("\n")[1:] == [
        "a-1-before", "a:2:x", "a-3-after", "--", "a-8-before", "a:9:x", "a-10-after",
    ]  # fmt: skip


def test_a_long_line_is_cut_around_its_match() -> None:
    line = "é" * 1000 + "NEEDLE" + "ü" * 1000
    hits = fed(Hits(most=1), begin("a"), match("a", 1, line + "\n", start=2000))
    (hit,) = hits.shown()
    assert "NEEDLE" in hit.text
    assert hit.text.startswith("[920 characters]…é")
    assert hit.text.endswith("ü…[846 characters]")


def test_bytes_that_are_no_text_are_shown_as_far_as_they_can_be() -> None:
    raw = base64.b64encode(b"caf\xe9 x\n").decode()
    data = {"path": {"text": "a"}, "lines": {"bytes": raw}, "line_number": 1, "submatches": [{"start": 5, "end": 6}]}
    line = json.dumps({"type": "match", "data": data}, separators=(",", ":")).encode()
    (hit,) = fed(Hits(most=1), begin("a"), line).shown()
    assert hit.text == "caf\ufffd x"


def test_a_name_cannot_forge_a_line_of_the_answer() -> None:
    hits = fed(Hits(most=1), begin("a\nb:1:forged"), match("a\nb:1:forged", 1, "x\n"))
    assert hits.text().split("\n")[1:] == ["a\\nb:1:forged:1:x"]


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
