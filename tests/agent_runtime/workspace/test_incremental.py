from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.syntax import SyntaxMemory, check

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


def fault_in(source: str) -> str | None:
    checked = check(source)
    return checked if isinstance(checked, str) else None


@given(st.lists(SOURCES, min_size=1, max_size=5))
def test_a_file_edited_again_and_again_is_judged_as_if_it_were_parsed_whole(versions: list[str]) -> None:
    memory = SyntaxMemory()
    old: Text | None = None
    for source in versions:
        fault = fault_in(source)
        broken_before = old is not None and fault_in(old.raw) is not None
        assert memory.introduced("a.py", old, Text(source)) == (None if broken_before else fault)
        old = Text(source)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8), st.data())
def test_one_piece_changed_at_a_time(pieces: list[str], data: st.DataObject) -> None:
    memory = SyntaxMemory()
    old = Text("".join(pieces))
    memory.introduced("a.py", None, old)
    for _ in range(4):
        at = data.draw(st.integers(0, len(pieces) - 1))
        pieces = [*pieces[:at], data.draw(st.sampled_from(["", *PIECES])), *pieces[at + 1 :]]
        new = Text("".join(pieces))
        expected = None if fault_in(old.raw) is not None else fault_in(new.raw)
        assert memory.introduced("a.py", old, new) == expected
        old = new


def test_other_languages_are_left_alone() -> None:
    assert SyntaxMemory().introduced("a.txt", None, Text("x = (\n")) is None


def test_a_change_that_was_refused_does_not_confuse() -> None:
    memory = SyntaxMemory()
    good = Text("x = 1\ny = 2\n")
    assert memory.introduced("a.py", None, good) is None
    assert memory.introduced("a.py", good, Text("x = 1\ny = (\n")) is not None
    assert memory.introduced("a.py", good, Text("x = 1\ny = 3\n")) is None
    assert memory.introduced("a.py", good, Text("x = (\ny = 2\n")) is not None


def test_a_statement_removed_behind_a_continued_line_is_noticed() -> None:
    memory = SyntaxMemory()
    old, new = Text("\\\nx = 1\n"), Text("\\\n")
    assert memory.introduced("a.py", None, old) is None
    fault = fault_in(new.raw)
    assert fault is not None
    assert memory.introduced("a.py", old, new) == fault
