from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.run.loop import StepOutput
from agent_runtime.workspace.diffs import version_of
from agent_runtime.workspace.files import Workspace
from tests.block_files import BlockFiles, call

NUMBERS = "".join(f"{i}\n" for i in range(1, 11))


class Agent:
    """The tools as a run uses them: one `step` a reply."""

    def __init__(self, root: Path, workspace: Workspace) -> None:
        self.root = root
        self.tools = BlockFiles(workspace)

    def step(self, *payloads: str, control: str = "") -> BlockFiles:
        return self.tools.take(*payloads, control=control)

    def put(self, path: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        (self.root / path).write_bytes(data)

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Workspace(tmp_path) as workspace:
        yield Agent(tmp_path, workspace)


def refused(
    agent: Agent,
    path: str,
    words: str,
    *payloads: str,
    **arguments: Any,  # noqa: ANN401 - wrong types, too
) -> ToolError:
    """The error of a write that changes nothing."""
    before = {each: each.read_bytes() for each in agent.root.rglob("*") if each.is_file()}
    with pytest.raises(ToolError, match=words) as told:
        agent.step(*payloads).write(path, **arguments)
    assert {each: each.read_bytes() for each in agent.root.rglob("*") if each.is_file()} == before
    return told.value


# Reading.


def test_a_read_shows_numbered_lines_with_exact_content(agent: Agent) -> None:
    agent.put("a.txt", "one  \n\n\tthree\n")
    result = agent.tools.read_file("a.txt")
    version = version_of(b"one  \n\n\tthree\n")
    assert result.text == f"[read_file] 'a.txt' (lines 1\u20133 of 3, version {version})\n1 | one  \n2 |\n3 | \tthree"
    assert result.value == "one  \n\n\tthree\n"


def test_a_range_is_shown_and_returned_as_it_was_asked_for(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    result = agent.tools.read_file("a.txt", 9, 99)
    assert result.value == "9\n10\n"
    assert result.text.endswith("(lines 9\u201310 of 10, version " + version_of(NUMBERS.encode()) + ")\n9 | 9\n10 | 10")


LONG = '"""A module."""\n\n' + "".join(
    f"class C{i}:\n    def f{i}(self):\n        return {i}\n\n    def g(self):\n        def inner(): pass\n\n\n"
    for i in range(100)
)


def test_a_long_file_is_shown_by_its_head_and_outline_and_returned_whole(agent: Agent) -> None:
    agent.put("a.py", LONG)
    result = agent.tools.read_file("a.py")
    head, *rows = result.text.split("\n")
    assert head.startswith("[read_file] 'a.py' (lines 1\u20132 of 802")
    assert rows[:3] == ['1 | """A module."""', "2 |", "[the rest by name, e.g. read_file('a.py::C0'), or by lines:]"]
    assert rows[3:5] == ["3-8 class C0", "11-16 class C1"]
    assert len(result.text) < 4_000
    assert result.value == LONG
    agent.put("a.py", LONG[: LONG.index("class C60")] + "x = 1\n" * 1_000)
    text = agent.tools.read_file("a.py").text
    assert "\n3-8 class C0\n  4-5 f0\n  7-8 g\n11-16 class C1\n" in text
    assert "inner" not in text


def test_of_very_many_definitions_the_first_ones_are_listed(agent: Agent) -> None:
    agent.put("a.py", "".join(f"def f{i}(): pass\n" for i in range(1_000)))
    result = agent.tools.read_file("a.py")
    *_, last = result.text.split("\n")
    assert len(result.text) < 5_000
    match = re.fullmatch(r"… (\d+) more, from line (\d+) on", last)
    assert match is not None
    assert int(match[1]) + int(match[2]) == 1_001


def test_a_long_file_is_shown_whole_if_so_many_characters_are_asked_for(agent: Agent) -> None:
    agent.put("a.py", LONG)
    result = agent.tools.read_file("a.py", max_chars=40_000)
    assert "\n802 |" in result.text
    assert result.max_chars == 40_000
    assert result.lines[0].last == 802


def test_a_name_shows_its_definition_and_a_long_class_its_outline(agent: Agent) -> None:
    agent.put(
        "a.py",
        "class Long:\n    x = 1\n\n"
        "    @property\n    def size(self):\n        return 1\n\n"
        "    @size.setter\n    def size(self, value):\n        pass\n\n"
        + "".join(f"    def f{i}(self):\n        return {i}\n\n" for i in range(400)),
    )
    outline = agent.tools.read_file("a.py::Long")
    assert "\n1 | class Long:\n2 |     x = 1\n3 |\n[the rest by name, e.g. read_file('a.py::Long.size')" in outline.text
    assert "\n  4-6 size\n  8-10 size\n  12-13 f0\n" in outline.text
    assert outline.value == agent.text("a.py").rstrip("\n") + "\n"
    assert "\n1210 |" in agent.tools.read_file("a.py::Long", max_chars=60_000).text
    size = agent.tools.read_file("a.py::Long.size")
    assert [(part.first, part.last) for part in size.lines] == [(4, 6), (8, 10)]
    assert agent.tools.read_file("a.py::f7()").value == "    def f7(self):\n        return 7\n"
    with pytest.raises(ToolError, match=r"no definition 'Long.sise'.*it has Long\.size"):
        agent.tools.read_file("a.py::Long.sise")


def test_a_function_that_a_module_exports_has_the_name_of_its_file(agent: Agent) -> None:
    agent.put("parse-url.js", "module.exports = function () {\n  return 1;\n};\n")
    assert agent.tools.read_file("parse-url.js::parse-url").lines[0].last == 3


def test_several_names_are_read_in_one_call(agent: Agent) -> None:
    agent.put("a.py", "def f():\n    pass\n\n\nclass C:\n    def f(self):\n        return 2\n")
    agent.put("b.txt", "one\n")
    result = agent.tools.read_file(["a.py::C.f", "b.txt", "a.py::f"])
    assert result.value == "    def f(self):\n        return 2\none\ndef f():\n    pass\n"
    assert [(part.path, part.first, part.last) for part in result.lines] == [
        ("a.py", 6, 7),
        ("b.txt", 1, 1),
        ("a.py", 1, 2),
    ]
    assert result.text == "\n\n".join(part.text for part in result.lines)
    with pytest.raises(ToolError, match=r"'c\.txt' does not exist") as caught:
        agent.tools.read_file(["c.txt", "b.txt"])
    assert caught.value.kind == "FileNotFoundError"
    for names, arguments in (([], {}), (["b.txt"] * 21, {}), (["a.py", "b.txt"], {"end_line": 1})):
        with pytest.raises(ToolError, match="name one file for a range of lines, else 1 to 20"):
            agent.tools.read_file(names, **arguments)


def test_rules_see_each_file_of_a_list(agent: Agent) -> None:
    agent.put("a.py", "def f(): pass\n")
    planned = agent.tools.planned("read_file", {"path": ["a.py::f", "./b/../secret.txt"]})
    assert planned.facts.paths == ("a.py", "secret.txt")
    assert agent.tools.planned("read_file", {"path": ["a.py", 1]}).refusal


def test_a_stated_range_is_not_cut(agent: Agent) -> None:
    agent.put("a.txt", "".join(f"{i}\n" for i in range(1000)))
    result = agent.tools.read_file("a.txt", 1, 1000)
    assert result.text.count("\n") == 1000
    assert "more lines" not in result.text


def test_a_long_text_without_definitions_is_shown_from_its_beginning(agent: Agent) -> None:
    agent.put("a.txt", "x\n" * 1_000)
    assert "more lines" not in agent.tools.read_file("a.txt").text
    agent.put("a.txt", "xxxxxxxxx\n" * 900)
    result = agent.tools.read_file("a.txt")
    last = result.lines[0].last
    assert result.text.endswith(f"[{900 - last} more lines: read_file('a.txt', {last + 1}, 900) goes on]")
    assert 5_000 < len(result.text) < 7_000
    assert result.value == "xxxxxxxxx\n" * 900


def test_the_limit_of_characters_is_mentioned(agent: Agent) -> None:
    agent.put("a.txt", ("x" * 999 + "\n") * 100)
    result = agent.tools.read_file("a.txt", 1, 100)
    assert len(result.text) < 61_000
    assert "[41 more lines: read_file('a.txt', 60, 100) goes on]" in result.text
    # Where the step's bound cuts it again, all that was asked for is named.
    shown = StepOutput(5_000)
    shown.add_lines(result.lines)
    assert shown.text().endswith("read_file('a.txt', 5, 100)]")
    assert "lines 1\u201359 of 100" in result.text


def test_a_very_long_line_is_cut_in_the_view_only(agent: Agent) -> None:
    agent.put("a.txt", "y" * 5000 + "\n")
    result = agent.tools.read_file("a.txt")
    assert result.text.endswith("yy… [+3000 characters]")
    assert result.value == "y" * 5000 + "\n"


@pytest.mark.parametrize(
    ("data", "value", "named"),
    [
        (b"a\r\nb\r\n", "a\nb\n", "CRLF line endings"),
        ("a\nž\n".encode("utf-16"), "a\nž\n", "utf-16-le"),
        (b"caf\xe9 au lait\n", "café au lait\n", "latin-1"),
        (b"a\nb", "a\nb", "no newline at the end"),
    ],
)
def test_peculiarities_of_a_file_are_mentioned(agent: Agent, data: bytes, value: str, named: str) -> None:
    agent.put("a.txt", data)
    result = agent.tools.read_file("a.txt")
    assert result.value == value
    assert named in result.text.split("\n")[0]


def test_an_empty_file_is_marked_as_empty(agent: Agent) -> None:
    agent.put("a.txt", "")
    result = agent.tools.read_file("a.txt")
    assert (result.value, result.text) == ("", "[read_file] 'a.txt' (empty, version e3b0c442)")


def test_a_binary_file_is_named_with_its_size(agent: Agent) -> None:
    agent.put("a.png", b"\x89PNG\0\0" * 500)
    with pytest.raises(ToolError, match=r"'a.png' .*\(3,000 bytes\)"):
        agent.tools.read_file("a.png")


def test_a_missing_file_is_answered_with_the_names_like_it(agent: Agent) -> None:
    (agent.root / "src").mkdir()
    agent.put("src/parser.py", "")
    with pytest.raises(ToolError, match=r"'src/parser\.py'") as told:
        agent.tools.read_file("src/parse.py")
    assert told.value.kind == "FileNotFoundError"
    with pytest.raises(ToolError, match="directory") as told:
        agent.tools.read_file("gone/parse.py")
    assert told.value.kind == "FileNotFoundError"


def test_the_error_for_a_directory_lists_its_files(agent: Agent) -> None:
    (agent.root / "src").mkdir()
    agent.put("src/b.py", "")
    agent.put("src/a.py", "")
    with pytest.raises(ToolError, match=r"a\.py, b\.py") as told:
        agent.tools.read_file("src")
    assert told.value.kind == "IsADirectoryError"


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (0, None, "start_line=0: must be 1 to 10"),
        (-1, None, "start_line=-1: must be 1 to 10"),
        (11, None, "start_line=11: must be 1 to 10"),
        (5, 4, "end_line=4: must be at least start_line=5"),
        ("1", None, "whole numbers"),
        (1, 2.5, "whole numbers"),
        (True, None, "whole numbers"),
    ],
)
def test_a_wrong_range_is_answered_with_the_valid_one(
    agent: Agent,
    start: Any,  # noqa: ANN401 - wrong types, too
    end: Any,  # noqa: ANN401 - the same
    words: str,
) -> None:
    agent.put("a.txt", NUMBERS)
    with pytest.raises(ToolError, match=words):
        agent.tools.read_file("a.txt", start, end)


# Writing.


def test_a_whole_write_puts_the_payload_to_the_byte(agent: Agent) -> None:
    agent.put("old.txt", b"\xef\xbb\xbfa\r\nb\r\n")
    tools = agent.step("tab\t \r\nž\n\n", "new")
    result = tools.write("src/new.txt")
    assert agent.text("src/new.txt") == "tab\t \r\nž\n\n"
    assert result.text == f"[write_file] 'src/new.txt' written (11 bytes, 3 lines). Version {result.value}."
    tools.write("old.txt")
    assert agent.text("old.txt") == "new"


def test_an_edit_by_line_returns_its_context_and_the_new_version(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    result = agent.step("five\n").write("a.txt", 5, 5, mode="edit")
    version = version_of(agent.text("a.txt").encode())
    assert result.value == version
    assert result.text.split("\n") == [
        f"[write_file] 'a.txt' written (24 bytes, 10 lines). Version {version}.",
        "2   2",
        "3   3",
        "4   4",
        "5 - 5",
        "5 + … 1 line as sent, to 5",
        "6   6",
        "7   7",
        "8   8",
    ]


def test_sent_lines_are_not_repeated_in_the_result(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    content = "".join(f"a rather long new line {number}\n" for number in range(100))
    sent = agent.step(content).write("a.txt", 1, 9, mode="edit").text
    assert "a rather long new line" not in sent
    assert sent.split("\n")[1:] == [
        "1 - 1",
        "2 - 2",
        "- … 5 more lines",
        "8 - 8",
        "9 - 9",
        "1 + … 100 lines as sent, to 100",
        "101   10",
    ]
    whole = agent.step("new\n").write("a.txt")
    assert whole.text.split("\n")[1:] == ["Changed lines: 1 (+1 -101)."]


def test_an_insertion_joins_no_lines(agent: Agent) -> None:
    agent.put("a.txt", "a\nb")
    agent.step("top\n").write("a.txt", after_line=0, mode="insert")
    agent.step("end\n").write("a.txt", after_line=3, mode="insert")
    assert agent.text("a.txt") == "top\na\nb\nend"


def test_several_ranges_are_in_the_numbers_of_the_file_as_it_was(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.step("nine\nand a half\n", "", "one\n").write("a.txt", mode="multi_edit", edits=[(9, 9), (4, 6), (1, 1)])
    assert agent.text("a.txt") == "one\n2\n3\n7\n8\nnine\nand a half\n10\n"


def test_an_append_says_which_lines_it_added(agent: Agent) -> None:
    agent.put("a.txt", "a")
    assert agent.step("b\nc\n").write("a.txt", mode="a").text.endswith("\nChanged lines: 2-3 (+2 -0).")
    assert agent.text("a.txt") == "a\nb\nc\n"
    agent.step("x\n").write("new.txt", mode="a")
    assert agent.text("new.txt") == "x\n"


def test_replace_takes_the_old_text_and_the_new(agent: Agent) -> None:
    agent.put("a.py", "def f():\n    return 1\n")
    result = agent.step("return 1\n", "return 2\n").write("a.py", mode="replace")
    assert agent.text("a.py") == "def f():\n    return 2\n"
    assert "Not an exact match: indentation" in result.text
    assert "Not an exact" not in agent.step("    return 2\n", "    return 3\n").write("a.py", mode="replace").text


def test_replace_can_be_used_often_in_a_step(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    tools = agent.step("1\n", "one\n", "2\n", "two\n", "3\n", "")
    for _ in range(3):
        tools.write("a.txt", mode="replace")
    assert agent.text("a.txt").startswith("one\ntwo\n4\n")


def test_line_endings_encoding_mark_and_end_survive_an_edit(agent: Agent) -> None:
    agent.put("a.txt", "\ufeffa\r\nb\r\nc".encode("utf-16-le"))
    agent.step("B\nBB\n").write("a.txt", 2, 2, mode="edit")
    agent.step("C\n").write("a.txt", 4, 4, mode="edit")
    assert (agent.root / "a.txt").read_bytes() == "\ufeffa\r\nB\r\nBB\r\nC".encode("utf-16-le")


def test_a_character_that_the_file_cannot_hold_is_refused(agent: Agent) -> None:
    agent.put("a.txt", b"caf\xe9\n")
    refused(agent, "a.txt", "latin-1 and cannot hold '€'", "5 €\n", start_line=1, end_line=1, mode="edit")


def test_a_write_that_changes_nothing_says_so(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    assert "Nothing changed" in agent.step("5\n").write("a.txt", 5, 5, mode="edit").text


def test_a_binary_file_can_be_overwritten_but_not_edited(agent: Agent) -> None:
    agent.put("a.bin", b"\0\1\2")
    refused(agent, "a.bin", "binary file", "x\n", start_line=1, end_line=1, mode="edit")
    agent.step("text\n").write("a.bin")
    assert agent.text("a.bin") == "text\n"


@pytest.mark.parametrize("mode", ["edit", "insert", "multi_edit", "replace"])
def test_a_file_that_is_not_there_cannot_be_edited(agent: Agent, mode: str) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "edit": {"start_line": 1, "end_line": 1},
        "insert": {"after_line": 0},
        "multi_edit": {"edits": [(1, 1)]},
        "replace": {},
    }
    error = refused(
        agent, "gone.txt", "does not exist; make it with mode='w'", "x\n", "y\n", mode=mode, **arguments[mode]
    )
    assert error.kind == "FileNotFoundError"


# Wrong arguments.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "x"}, "mode='x': must be one of 'w', 'a', 'edit', 'insert', 'multi_edit', 'replace'"),
        ({"mode": "edit"}, "mode='edit' needs start_line and end_line"),
        ({"mode": "edit", "start_line": 1}, "mode='edit' needs end_line"),
        ({"mode": "insert"}, "mode='insert' needs after_line"),
        ({"mode": "multi_edit"}, "edits must be a list"),
        ({"mode": "multi_edit", "edits": []}, "edits must be a list"),
        ({"mode": "multi_edit", "edits": [3]}, r"edits\[0\]=3: must be a pair"),
        ({"mode": "multi_edit", "edits": [(1, 2, 3)]}, r"edits\[0\]=\(1, 2, 3\): must be a pair"),
        ({"mode": "multi_edit", "edits": [(1, 2), (9, 11)]}, r"edits\[1\]=\(9, 11\): out of range; the file has 10"),
        ({"mode": "multi_edit", "edits": [(1, 2), (2, 3)]}, "edits overlap: lines 1-2 and 2-3"),
        ({"start_line": 1, "end_line": 2}, "mode='w' takes no end_line; for that use mode='edit'"),
        ({"after_line": 2}, "mode='w' takes no after_line; for that use mode='insert'"),
        ({"mode": "replace", "edits": [(1, 1)]}, "takes no edits; for that use mode='multi_edit'"),
        ({"mode": "edit", "start_line": 0, "end_line": 1}, "start_line=0, end_line=1: out of range; the file has 10"),
        ({"mode": "edit", "start_line": 3, "end_line": 2}, "must hold 1 <= start <= end <= 10"),
        ({"mode": "edit", "start_line": "1", "end_line": 2}, "whole numbers"),
        ({"mode": "insert", "after_line": 11}, r"after_line=11: must be 0 \(the top\) to 10"),
        ({"mode": "insert", "after_line": -1}, "after_line=-1"),
        ({"mode": "edit", "start_line": 1, "end_line": 1, "version": "12345678"}, "has not shown this version"),
        ({"mode": "w", "version": "12345678"}, "version='12345678', but it is at version"),
    ],
)
def test_errors_of_arguments_list_the_valid_values(agent: Agent, arguments: dict[str, Any], words: str) -> None:
    agent.put("a.txt", NUMBERS)
    refused(agent, "a.txt", words, "x\n", "y\n", **arguments)


def test_a_refused_write_still_takes_its_payload_so_that_the_next_gets_its_own(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    tools = agent.step("first\n", "second\n")
    with pytest.raises(ToolError, match="out of range"):
        tools.write("a.txt", 99, 99, mode="edit")
    tools.write("b.txt")
    assert agent.text("b.txt") == "second\n"
    assert agent.tools.payloads._payloads.unused() == 0


# Limits of a step.


def test_whole_writes_of_a_step_are_bounded_by_their_size_and_not_by_their_number(agent: Agent) -> None:
    tools = agent.step(*["x" * 30_000] * 33, "y" * 20_000, "z")
    for i in range(33):
        tools.write(f"{i}.txt", mode="a" if i % 2 else "w")
    with pytest.raises(ToolError, match="1,010,000 characters, and 1,000,000 may be written"):
        tools.write("33.txt")
    agent.step("6").write("33.txt")
    assert agent.text("33.txt") == "6"


@pytest.mark.parametrize("names", [("a.txt", "./a.txt"), ("a.txt", "link.txt"), ("link.txt", "a.txt")])
def test_one_edit_by_line_numbers_for_each_file_and_step_under_any_name(agent: Agent, names: tuple[str, str]) -> None:
    agent.put("a.txt", NUMBERS)
    agent.put("b.txt", NUMBERS)
    (agent.root / "link.txt").symlink_to("a.txt")
    tools = agent.step("x\n", "y\n", "z\n")
    tools.write(names[0], 1, 1, mode="edit")
    tools.write("b.txt", after_line=0, mode="insert")
    with pytest.raises(ToolError, match="mode='multi_edit'"):
        tools.write(names[1], after_line=1, mode="insert")
    agent.step("again\n").write(names[1], 2, 2, mode="edit")
    assert agent.text("a.txt").startswith("x\nagain\n3\n")


def test_a_refused_edit_does_not_use_up_the_step_s_edit(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    tools = agent.step("x\n", "y\n")
    with pytest.raises(ToolError):
        tools.write("a.txt", 11, 11, mode="edit")
    tools.write("a.txt", 10, 10, mode="edit")
    assert agent.text("a.txt").endswith("9\ny\n")


# Versions.


def test_an_edit_follows_lines_that_moved(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    agent.put("a.txt", "new\n" + NUMBERS)
    result = agent.step("five\n").write("a.txt", 5, 5, mode="edit")
    assert agent.text("a.txt") == "new\n1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n"
    assert re.search(r"line 5 .* line 6\.", result.text)


def test_an_edit_of_lines_that_changed_is_refused_with_the_lines_as_they_are(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    agent.put("a.txt", NUMBERS.replace("5\n", "fünf\n"))
    error = refused(agent, "a.txt", "changed since you read it", "x\n", start_line=5, end_line=5, mode="edit")
    assert "5 | fünf" in str(error)
    agent.step("x\n").write("a.txt", 5, 5, mode="edit")
    assert "4\nx\n6\n" in agent.text("a.txt")


def test_an_explicit_version_says_which_line_numbers_are_meant(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    first = version_of(NUMBERS.encode())
    agent.step("0\n").write("a.txt", after_line=0, mode="insert")
    agent.step("three\n").write("a.txt", 3, 3, mode="edit", version=first)
    assert agent.text("a.txt").startswith("0\n1\n2\nthree\n4\n")


def test_line_numbers_of_a_reply_refer_to_the_file_before_that_reply(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    tools = agent.step("1\n", "one\nand a half\n", "five\n")
    tools.write("a.txt", mode="replace")
    tools.write("a.txt", 5, 5, mode="edit")
    assert agent.text("a.txt") == "one\nand a half\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n"
    agent.step("FIVE\n").write("a.txt", 6, 6, mode="edit")
    assert "4\nFIVE\n6\n" in agent.text("a.txt")


def test_line_numbers_computed_from_a_read_in_the_same_step_refer_to_that_read(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    tools = agent.step("1\n", "one\nand a half\n", "five\n")
    tools.write("a.txt", mode="replace")
    value = tools.read_file("a.txt").value
    assert isinstance(value, str)
    line = value.split("\n").index("5") + 1
    tools.write("a.txt", line, line, mode="edit")
    assert "4\nfive\n6\n" in agent.text("a.txt")


def test_a_file_never_read_may_be_edited_by_number(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.step("x\n").write("a.txt", 10, 10, mode="edit")
    assert agent.text("a.txt").endswith("9\nx\n")


def test_the_version_that_numbers_refer_to_is_kept_however_many_come_after(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    payloads = [text for i in range(12) for text in (f"{i}{'!' * i}\n", f"{i}{'!' * (i + 1)}\n")]
    agent.put("a.txt", "".join(f"{i}{'!' * i}\n" for i in range(12)) + NUMBERS.replace("5\n", "five\n"))
    tools = agent.step(*payloads, "x\n")
    for _ in range(12):
        tools.write("a.txt", mode="replace")
    with pytest.raises(ToolError, match="changed since"):
        tools.write("a.txt", 5, 5, mode="edit")


# Refusals that `force` overrides.


def test_an_edit_that_breaks_a_python_file_is_refused_until_it_is_meant(agent: Agent) -> None:
    agent.put("a.py", "x = 1\ny = 2\n")
    edit = {"start_line": 2, "end_line": 2, "mode": "edit"}
    refused(agent, "a.py", r"parses now and would not after this: '\(' was never closed \(line 2", "y = (\n", **edit)
    refused(agent, "a.py", "parses now", "y = (\n", mode="a")
    refused(agent, "a.py", "parses now", "y = 2\n", "y = (\n", mode="replace")
    result = agent.step("y = (\n").write("a.py", 2, 2, mode="edit", force=True)
    assert agent.text("a.py") == "x = 1\ny = (\n"
    assert "Syntax error: '('" in result.text


def test_a_file_that_was_broken_before_may_be_edited_without_ado(agent: Agent) -> None:
    agent.put("a.py", "x = (\ny = 2\n")
    assert "Syntax error" not in agent.step("y = 3\n").write("a.py", 2, 2, mode="edit").text


def test_a_new_file_with_a_syntax_error_is_written_and_the_error_reported(agent: Agent) -> None:
    assert "Syntax error: '('" in agent.step("x = (\n").write("a.py").text
    assert agent.text("a.py") == "x = (\n"


def test_a_placeholder_is_refused_until_it_is_meant(agent: Agent) -> None:
    agent.put("a.py", NUMBERS)
    refused(agent, "a.py", "line 2 of the content, '# ... existing code ...'", "x = 1\n# ... existing code ...\n")
    refused(agent, "a.py", "stands for code that was left out", "1\n", "# rest of code unchanged\n", mode="replace")
    agent.step("# ... existing code ...\n").write("a.py", force=True)
    agent.step("# ... existing code ...\n", "x = 1\n").write("a.py", mode="replace")
    assert agent.text("a.py") == "x = 1\n"


def test_the_mode_bits_of_a_script_survive(agent: Agent) -> None:
    agent.put("run.sh", NUMBERS)
    (agent.root / "run.sh").chmod(0o755)
    agent.step("x\n").write("run.sh", 1, 1, mode="edit")
    agent.step("x\n").write("run.sh")
    assert (agent.root / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_control_code_calls_the_tools_through_the_registry(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    registry = agent.step("one\n", "nine\n").registry
    write = registry.get("write_file")
    await call(write, write.bind(("a.txt",), {"mode": "multi_edit", "edits": [[1, 1], (9, 9)]}))
    assert agent.text("a.txt") == NUMBERS.replace("1\n", "one\n", 1).replace("9\n", "nine\n")
    with pytest.raises(ToolError, match="argument mode"):
        await call(write, write.bind(("a.txt",), {"mode": "append"}))
    assert len(registry.listing) < 600


# Contents that were not written.


def test_a_refused_write_is_repeated_by_number(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    error = refused(agent, "a.txt", "payload=1 stands for it", "x\n", start_line=11, end_line=11, mode="edit")
    assert error.kind == "ValueError"
    agent.step().write("a.txt", 10, 10, mode="edit", payload=1)
    assert agent.text("a.txt").endswith("9\nx\n")


def test_a_repeated_write_that_is_refused_again_keeps_its_number(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    refused(agent, "a.txt", "payload=1 stands", "11\n", "x\n", mode="replace")
    refused(agent, "a.txt", "payload=1 stands", mode="replace", payload=1)
    refused(agent, "a.txt", "payload=2 stands", "12\n", "x\n", mode="replace")
    agent.put("b.txt", "11\n")
    agent.step().write("b.txt", mode="replace", payload=1)
    assert agent.text("b.txt") == "x\n"


def test_a_kept_payload_takes_none_from_the_reply(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    refused(agent, "a.txt", "payload=1", "kept\n", start_line=11, end_line=11, mode="edit")
    tools = agent.step("fresh\n")
    tools.write("b.txt", payload=1)
    tools.write("c.txt")
    assert (agent.text("b.txt"), agent.text("c.txt")) == ("kept\n", "fresh\n")


@pytest.mark.parametrize(
    ("number", "arguments", "words"),
    [
        (7, {}, "payload=7: must be the number of a write that was refused; kept are 1"),
        (0, {}, "payload=0: must be the number"),
        (1, {"mode": "replace"}, "payload=1: holds 1 content, but this write takes 2"),
        (1, {"mode": "multi_edit", "edits": [(1, 1), (2, 2)]}, "takes 2"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(
    agent: Agent, number: int, arguments: dict[str, Any], words: str
) -> None:
    agent.put("a.txt", NUMBERS)
    refused(agent, "a.txt", "payload=1", "x\n", start_line=11, end_line=11, mode="edit")
    refused(agent, "a.txt", words, payload=number, **arguments)


def test_without_a_refusal_there_is_nothing_to_repeat(agent: Agent) -> None:
    refused(agent, "a.txt", "nothing is kept", payload=1)


def test_single_hunks_of_a_refused_patch_are_corrected(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.put("b.txt", NUMBERS)
    hunks = ["@@\n-2\n+two\n", "@@\n-twelve\n+12\n", "@@\n-5\n+five\n", "@@\n-nine\n+neun\n"]
    sent = f"*** Begin Patch\n*** Update File: a.txt\n{''.join(hunks[:2])}*** Update File: b.txt\n{''.join(hunks[2:])}"
    error = refused(agent, "", "payload=1 stands for it.*add hunks=", f"{sent}*** End Patch\n", mode="patch")
    assert "'a.txt', hunk 2: " in str(error)
    assert "'b.txt', hunk 4: " in str(error)
    assert agent.text("a.txt") == NUMBERS
    # One correction is right and one is not: what is right stays, under the same number.
    refused(
        agent, "", "(?s)hunk 4.*payload=1 stands", "-3\n+three\n", "-no\n+yes\n", mode="patch", payload=1, hunks=[2, 4]
    )
    tools = agent.step("*** Begin Patch\n*** Update File: b.txt\n@@\n-9\n+neun\n*** End Patch\n", "new\n")
    tools.write(mode="patch", payload=1, hunks=[4])
    tools.write("c.txt")
    assert agent.text("a.txt") == NUMBERS.replace("2\n3\n", "two\nthree\n")
    assert agent.text("b.txt") == NUMBERS.replace("5\n", "five\n").replace("9\n", "neun\n")
    assert agent.text("c.txt") == "new\n"


def test_a_hunk_that_does_not_follow_the_format_is_corrected_like_any_other(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-2\n+two\n@@\n5\n+five\n@@\n 8\n*** End Patch\n"
    error = refused(agent, "", "payload=1 stands for it.*add hunks=", patch, mode="patch")
    assert "hunk 2, line 7 of the patch '5': " in str(error)
    assert "hunk 3, line 10 of the patch begins a hunk that changes nothing" in str(error)
    # Neither is right yet: the first not at all, the second would end the patch.
    refused(agent, "", "(?s)hunk 2, .*payload=1 stands", "six\n", mode="patch", payload=1, hunks=[2])
    refused(agent, "", "stays as it was", "*** Add File\n", mode="patch", payload=1, hunks=[3])
    tools = agent.step("-5\n+five\n", "-8\n+eight\n")
    tools.write(mode="patch", payload=1, hunks=[2, 3])
    assert agent.text("a.txt") == NUMBERS.replace("2\n", "two\n").replace("5\n", "five\n").replace("8\n", "eight\n")


@pytest.mark.parametrize(
    "patch", ["@@\n-x\n+X\n@@\n-y\n+Y\n", "*** Begin Patch\n*** Update File: a.txt\n-x\n+X\n*** End Patch"]
)
def test_no_hunks_are_asked_for_where_none_can_be_corrected(agent: Agent, patch: str) -> None:
    agent.put("a.txt", NUMBERS)
    assert "hunks=" not in str(refused(agent, "", "payload=1 stands", patch, mode="patch"))


def test_the_only_hunk_of_a_file_is_not_dropped(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.put("b.txt", NUMBERS)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-2\n+two\n*** Update File: b.txt\n@@\n-x\n+y\n*** End Patch\n"
    refused(agent, "", "payload=1 stands", patch, mode="patch")
    refused(agent, "", "stays as it was.*updates 'b.txt' but no hunk", "", mode="patch", payload=1, hunks=[2])
    agent.step("-3\n+three\n").write(mode="patch", payload=1, hunks=[2])
    assert agent.text("b.txt") == NUMBERS.replace("3\n", "three\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "patch", "payload": 1, "hunks": [3]}, "there is no hunk 3; the patch has 1 to 2"),
        ({"mode": "patch", "payload": 1, "hunks": [1, 1]}, "each once"),
        ({"mode": "patch", "payload": 1, "hunks": [True]}, "numbers of hunks"),
        ({"mode": "patch", "hunks": [1]}, "of a patch that was refused"),
        ({"path": "a.txt", "mode": "w", "payload": 1, "hunks": [1]}, "of a patch that was refused"),
        ({"mode": "patch", "payload": 2, "hunks": [1]}, "kept are 1"),
    ],
)
def test_corrections_of_unknown_hunks_are_refused(agent: Agent, arguments: dict[str, Any], words: str) -> None:
    agent.put("a.txt", NUMBERS)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-x\n+X\n@@\n-y\n+Y\n*** End Patch\n"
    refused(agent, "", "payload=1 stands", patch, mode="patch")
    with pytest.raises(ToolError, match=words):
        agent.step("-2\n+two\n", "-3\n+three\n").write(**arguments)
    assert agent.text("a.txt") == NUMBERS


def test_kept_contents_are_bounded(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    for _ in range(60):
        refused(agent, "a.txt", "payload=", "x\n", start_line=11, end_line=11, mode="edit")
    refused(agent, "a.txt", "kept are 11, 12", payload=10)
    refused(agent, "a.txt", "payload=61", "x" * 4_000_001, start_line=11, end_line=11, mode="edit")
    refused(agent, "a.txt", "kept are 61$", payload=60)


def test_contents_that_are_refused_again_are_not_the_oldest(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    for _ in range(50):
        refused(agent, "a.txt", "payload=", "x\n", start_line=11, end_line=11, mode="edit")
    refused(agent, "a.txt", "payload=1 stands", start_line=11, end_line=11, mode="edit", payload=1)
    refused(agent, "a.txt", "payload=51", "x\n", start_line=11, end_line=11, mode="edit")
    refused(agent, "a.txt", "kept are 3, .*, 50, 1, 51$", payload=2)


def test_contents_of_unreached_writes_are_stored(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    control = "write_file('a.txt', 1, 1, mode='edit')\nexecute('main', 'false', check=True)\n"
    control += "write_file('b.txt')\nwrite_file('a.txt', mode='replace')"
    tools = agent.step("one\n", "b\n", "2\n", "two\n", control=control)
    tools.write("a.txt", 1, 1, mode="edit")
    told = tools.end(ok=False)
    for kept in ("payload=1 for write_file('b.txt')", "payload=2 for write_file('a.txt', mode='replace')"):
        assert kept in told
    tools = agent.step()
    tools.write("b.txt", payload=1)
    tools.write("a.txt", mode="replace", payload=2)
    assert agent.text("b.txt") == "b\n"
    assert agent.text("a.txt").startswith("one\ntwo\n3\n")


def test_corrections_that_a_block_did_not_come_to_are_not_taken_for_a_file(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-x\n+X\n@@\n-y\n+Y\n*** End Patch\n"
    refused(agent, "", "payload=1 stands", patch, mode="patch")
    control = (
        "execute('main', 'false', check=True)\nwrite_file(mode='patch', payload=1, hunks=[2])\nwrite_file('c.txt')"
    )
    told = agent.step("-3\n+three\n", "c\n", control=control).end(ok=False)
    assert told == "[not reached; the contents are kept: payload=2 for write_file('c.txt')]"
    agent.step().write("c.txt", payload=2)
    assert agent.text("c.txt") == "c\n"


def test_a_block_that_ends_well_keeps_nothing(agent: Agent) -> None:
    tools = agent.step("a\n", control="write_file('a.txt')")
    tools.write("a.txt")
    assert tools.end(ok=True) == ""


# Changes by others.


def test_external_changes_are_reported_before_the_next_step(agent: Agent) -> None:
    agent.put("main.py", NUMBERS)
    agent.tools.read_file("main.py")
    with pytest.raises(ToolError):
        agent.tools.read_file(".env")
    agent.step("x\n").write("old.py")
    assert agent.tools.end(ok=True) == ""
    assert agent.tools.report_external_changes() == ""
    agent.put("main.py", NUMBERS.replace("2\n", "two\n"))
    agent.put(".env", "A=1\n")
    (agent.root / "old.py").unlink()
    agent.put("unread.txt", "")
    told = agent.tools.report_external_changes().split("\n")
    assert told[0].startswith("[ENVIRONMENT CHANGE] 2")
    assert told[1:-1] == [
        "", "Modified: main.py", "Changed lines: 2", "Created: .env (1 lines)", "Deleted: old.py",
    ]  # fmt: skip
    assert told[-1]
    assert agent.tools.report_external_changes() == ""


def test_changes_by_commands_are_reported_as_such(agent: Agent) -> None:
    agent.put("main.py", NUMBERS)
    agent.tools.read_file("main.py")
    agent.step()
    agent.put("main.py", NUMBERS.replace("2\n", "two\n"))
    assert agent.tools.end(ok=True).split("\n")[1:] == ["Modified: main.py", "Changed lines: 2"]
    assert agent.tools.report_external_changes() == ""


def test_the_agent_s_own_writes_are_no_news(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.put("b.txt", NUMBERS)
    patch = "*** Begin Patch\n*** Update File: b.txt\n*** Move to: c.txt\n@@\n-5\n+five\n*** End Patch\n"
    tools = agent.step("five\n", patch)
    tools.write("a.txt", 5, 5, mode="edit")
    tools.write(mode="patch")
    assert tools.end(ok=True) == ""
    assert tools.report_external_changes() == ""


# Patches, and lists.


def test_a_patch_reports_the_result_for_each_file(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.put("b.txt", "b\n")
    agent.put("c.sh", "c\n")
    (agent.root / "c.sh").chmod(0o755)
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-5\n+five\n*** Delete File: b.txt\n"
        "*** Update File: c.sh\n*** Move to: d/e.sh\n@@\n-c\n+C\n*** Add File: n.txt\n+new\n*** End Patch\n"
    )
    result = agent.step(patch).write(mode="patch")
    lines = result.text.split("\n")
    heads = [line.partition(" (")[0] for line in lines if line.startswith("[write_file]")]
    assert heads == [
        "[write_file] 'a.txt' updated",
        "[write_file] 'b.txt' deleted.",
        "[write_file] 'c.sh' moved to 'd/e.sh'",
        "[write_file] 'n.txt' added",
    ]
    assert result.value == "\n".join(
        version_of((agent.root / name).read_bytes()) for name in ("a.txt", "d/e.sh", "n.txt")
    )
    assert (agent.root / "d" / "e.sh").stat().st_mode & 0o777 == 0o755


def test_a_patched_file_can_be_edited_by_line_in_the_next_step(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.step("*** Begin Patch\n*** Update File: a.txt\n@@\n-5\n+five\n+5b\n*** End Patch\n").write(mode="patch")
    agent.step("x\n").write("a.txt", 6, 6, mode="edit")
    assert "five\nx\n6\n" in agent.text("a.txt")


async def test_a_list_of_files_is_bounded_and_counted(agent: Agent) -> None:
    for i in range(203):
        agent.put(f"{i}.txt", "")
    result = await agent.tools.list_files("*.txt")
    assert isinstance(result.value, list)
    assert len(result.value) == 200
    assert result.text.startswith("[list_files] 203 file(s), newest first (showing 200; narrow the pattern):\n")
    assert (await agent.tools.list_files("*.md")).text == "[list_files] 0 file(s), newest first:"


def test_a_stale_edit_found_ahead_lets_the_repeated_one_refer_to_the_lines_shown(agent: Agent) -> None:
    agent.put("a.txt", NUMBERS)
    agent.tools.read_file("a.txt")
    agent.put("a.txt", NUMBERS.replace("5\n", "V\n"))
    control = "write_file('b.txt')\nwrite_file('a.txt', 5, 5, mode='edit')"
    tools = agent.step("b\n", "five\n", control=control)
    with pytest.raises(ToolError, match=r"(?s)line 2.*5 \| V"):
        tools.write("b.txt")
    assert "payload=2 for write_file('a.txt', 5, 5, mode='edit')" in tools.end(ok=False)
    tools = agent.step(control=control)
    tools.write("b.txt", payload=1)
    tools.write("a.txt", 5, 5, mode="edit", payload=2)
    assert (agent.text("b.txt"), agent.text("a.txt")) == ("b\n", NUMBERS.replace("5\n", "five\n"))


async def test_names_that_no_answer_can_hold_are_escaped(agent: Agent) -> None:
    for name in ("caf\udce9.txt", "two\nlines.txt"):
        agent.put(name, "")
    result = await agent.tools.list_files("*.txt")
    assert isinstance(result.value, list)
    assert sorted(map(str, result.value)) == ["'caf\\udce9.txt'", "'two\\nlines.txt'"]
    assert len(result.text.split("\n")) == 3
    with pytest.raises(ToolError, match=r"in it: 'caf\\udce9\.txt', 'two\\nlines\.txt'"):
        agent.tools.read_file(".")
