from __future__ import annotations

import pytest

from agent_runtime.workspace.edits import placeholder_in
from agent_runtime.workspace.syntax import check, is_python, outline


def test_a_syntax_error_is_named_with_its_line() -> None:
    assert check("x = 1\ny = (\n") == "'(' was never closed (line 2: 'y = (')"


def test_only_python_files_are_parsed() -> None:
    assert [is_python(name) for name in ("a.py", "a.pyi", "a.txt")] == [True, True, False]


@pytest.mark.parametrize(
    "source", ["x = 1\0", "(" * 5000, "-" * 200_000 + "1", "a." * 100_000 + "a", "[" * 150 + "]" * 150]
)
def test_hostile_sources_are_answered_not_crashed_on(source: str) -> None:
    assert check(source)


def test_an_odd_escape_is_no_error_and_no_warning() -> None:
    assert not isinstance(check("x = '\\d'\n"), str)


def test_an_outline_names_what_begins_behind_a_line() -> None:
    source = (
        "import os\nif os:\n    def early(): ...\nclass A:\n    def m(self):\n        def inner(): ...\n"
        "    async def n(self): ...\ndef last(): ...\n"
    )
    assert outline("a.py", source, 0) == ["3 def early", "4 class A", "5   def m", "7   def n", "8 def last"]
    assert outline("a.py", source, 4) == ["5   def m", "7   def n", "8 def last"]
    assert outline("a.md", source, 0) == []


def test_a_file_that_does_not_parse_still_has_an_outline() -> None:
    assert outline("a.py", "def f(:\n    pass\nclass B(A):\n", 0) == ["1 def f(:", "3 class B(A):"]


def test_a_long_outline_is_cut_with_the_number_left_out() -> None:
    entries = outline("a.py", "".join(f"def f{i}(): ...\n" for i in range(100)), 0)
    assert len(entries) == 61
    assert entries[-1] == "… 40 more"


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
def test_comments_that_stand_for_left_out_code_are_found(line: str) -> None:
    assert placeholder_in(["x = 1", line], ()) == (2, line.strip())


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
def test_ordinary_comments_are_not_taken_for_placeholders(line: str) -> None:
    assert placeholder_in([line], ()) is None


def test_a_comment_that_stood_there_before_is_kept() -> None:
    assert placeholder_in(["# rest of code unchanged"], ["    # rest of code unchanged"]) is None
