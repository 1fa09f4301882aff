from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.edits import find_placeholder
from agent_runtime.workspace.syntax import SyntaxChecker, is_python, parse_python


def test_a_syntax_error_is_reported_with_its_line() -> None:
    assert parse_python("x = 1\ny = (\n") == "'(' was never closed (line 2: 'y = (')"


def test_only_python_files_are_parsed() -> None:
    assert [is_python(name) for name in ("a.py", "a.pyi", "a.txt")] == [True, True, False]


@pytest.mark.parametrize(
    "source", ["x = 1\0", "(" * 5000, "-" * 200_000 + "1", "a." * 100_000 + "a", "[" * 150 + "]" * 150]
)
def test_hostile_sources_are_answered_not_crashed_on(source: str) -> None:
    assert parse_python(source)


def test_an_odd_escape_is_no_error_and_no_warning() -> None:
    assert not isinstance(parse_python("x = '\\d'\n"), str)


@pytest.mark.parametrize(
    "line",
    [
        "# rest of code unchanged",
        "# ... rest of the code ...",
        "    # ... existing code ...",
        "// ... existing code ...",
        "// rest of the file remains the same",
        "/* ... rest of the implementation ... */",
        "<!-- rest of the content unchanged -->",
        "# ... (rest of the file unchanged)",
        "-- remaining lines omitted",
        "# … existing imports …",
        "# ... unchanged ...",
        "# other methods stay the same",
        "{/* ... existing code ... */}",
        "# The rest of the file stays as is.",
    ],
)
def test_placeholder_comments_are_found(line: str) -> None:
    assert find_placeholder(["x = 1", line], ()) == (2, line.strip())


@pytest.mark.parametrize(
    "line",
    [
        "# keep the rest of the arguments for later",
        "# existing users keep their settings",
        "# Rest of the World",
        "# the remaining code path is slow",
        "rest of code unchanged",
        "# ...",
        "x = '# rest of code unchanged'",
        "# other",
        "# previous versions were wrong",
    ],
)
def test_ordinary_comments_are_no_placeholders(line: str) -> None:
    assert find_placeholder([line], ()) is None


def test_an_existing_placeholder_comment_is_accepted() -> None:
    assert find_placeholder(["# rest of code unchanged"], ["    # rest of code unchanged"]) is None


PIECES = [
    *(
        "x = 1\n",
        "def f():\n    return 1\n",
        "@decorated\nclass C:\n    y = 2\n",
        "if x:\n    pass\n",
        "else:\n    pass\n",
    ),
    *("    z = 3\n", "# comment\n", "\n", "'''text\n", "'''\n", "(\n", ")\n", "x = \\\n", "a; b\n", "elif y: pass\n"),
    *("\x0c\n", "\r", "x = '''a\nb'''\n", "@d\n", "try:\n    pass\n", "finally:\n    pass\n", "return = 1\n", "\\\n"),
]
SOURCES = st.lists(st.sampled_from(PIECES), max_size=7).map("".join)


def python_fault(source: str) -> str | None:
    checked = parse_python(source)
    return checked if isinstance(checked, str) else None


@given(st.lists(SOURCES, min_size=1, max_size=5))
def test_a_file_edited_again_and_again_is_judged_as_if_it_were_parsed_whole(versions: list[str]) -> None:
    memory = SyntaxChecker()
    old: Text | None = None
    for source in versions:
        fault = python_fault(source)
        broken_before = old is not None and python_fault(old.raw) is not None
        assert memory.find_new_error("a.py", old, Text(source)) == (None if broken_before else fault)
        old = Text(source)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8), st.data())
def test_one_piece_changed_at_a_time(pieces: list[str], data: st.DataObject) -> None:
    memory = SyntaxChecker()
    old = Text("".join(pieces))
    memory.find_new_error("a.py", None, old)
    for _ in range(4):
        at = data.draw(st.integers(0, len(pieces) - 1))
        pieces = [*pieces[:at], data.draw(st.sampled_from(["", *PIECES])), *pieces[at + 1 :]]
        new = Text("".join(pieces))
        expected = None if python_fault(old.raw) is not None else python_fault(new.raw)
        assert memory.find_new_error("a.py", old, new) == expected
        old = new


def test_unknown_languages_are_not_checked() -> None:
    assert SyntaxChecker().find_new_error("a.txt", None, Text("x = (\n")) is None


def test_a_change_that_was_refused_does_not_confuse() -> None:
    memory = SyntaxChecker()
    good = Text("x = 1\ny = 2\n")
    assert memory.find_new_error("a.py", None, good) is None
    assert memory.find_new_error("a.py", good, Text("x = 1\ny = (\n")) is not None
    assert memory.find_new_error("a.py", good, Text("x = 1\ny = 3\n")) is None
    assert memory.find_new_error("a.py", good, Text("x = (\ny = 2\n")) is not None


def test_a_statement_removed_behind_a_continued_line_is_noticed() -> None:
    memory = SyntaxChecker()
    old, new = Text("\\\nx = 1\n"), Text("\\\n")
    assert memory.find_new_error("a.py", None, old) is None
    fault = python_fault(new.raw)
    assert fault is not None
    assert memory.find_new_error("a.py", old, new) == fault
