from __future__ import annotations

from agent_runtime.context.relevant_code import Passage, excerpts
from agent_runtime.index.index import Definition
from agent_runtime.tools.files import shown
from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.overlay import TextFile

SOURCE = Text("class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n\n\nx = 1\n")
PLENTY = 10_000


def method(name: str, first: int, last: int, *parents: int) -> Definition:
    return Definition(
        path="a.py",
        name=name,
        qualified=f"A.{name}",
        kind="method",
        first=first,
        last=last,
        header=first,
        parents=parents,
        is_test=False,
    )


F, G = Passage(path="a.py", definition=method("f", 2, 3, 1)), Passage(path="a.py", definition=method("g", 5, 6, 1))


def read(_path: str) -> Text:
    return SOURCE


def test_a_method_is_whole_beneath_the_line_of_its_class() -> None:
    (excerpt,) = excerpts([G], read, PLENTY)
    assert excerpt.path == "a.py (lines 1, 5–6 of 9)"  # noqa: RUF001 - the dash of a range
    assert excerpt.text == "1 | class A:\n5 |     def g(self):\n6 |         return 2"


def test_the_count_of_lines_is_that_of_read_file() -> None:
    (excerpt,) = excerpts([F], read, PLENTY)
    read_file = shown("a.py", TextFile(data=SOURCE.raw.encode(), text=SOURCE, version="v"), 1, None).text
    assert excerpt.path.rpartition(" of ")[2].rstrip(")") == "9"
    assert " of 9, " in read_file


def test_no_line_of_a_file_is_shown_twice() -> None:
    around = Passage(path="a.py", line=3, first=2, last=6)
    (excerpt,) = excerpts([G, around, F, G], read, PLENTY)
    numbers = [line.split(" ")[0] for line in excerpt.text.split("\n")]
    assert numbers == ["1", "2", "3", "4", "5", "6"]


def test_what_does_not_fit_is_named_and_not_cut() -> None:
    text = Text(SOURCE.raw + "# more\n" * 100)
    long = Passage(path="a.py", definition=method("long", 8, 109))
    shown, left_out = excerpts([F, long], lambda _path: text, 500)
    assert shown.text.count("\n") == 2
    assert left_out.text == "a.py:8-109 A.long"


def test_of_a_definition_that_is_too_long_its_head_and_the_lines_that_are_named_are_shown() -> None:
    text = Text("def f():\n" + "    x = 1\n" * 400 + "def g():\n    pass\n")
    definition = Passage(path="a.py", line=400, definition=method("f", 1, 401))
    (excerpt,) = excerpts([definition], lambda _path: text, 1_000)
    assert excerpt.path == "a.py (lines 1, 388–401 of 403)"  # noqa: RUF001 - as above


def test_a_file_that_changed_or_went_is_left_out() -> None:
    stale = Passage(path="a.py", definition=method("f", 8, 20))
    assert excerpts([stale, Passage(path="a.py", line=99, first=90, last=99)], read, PLENTY) == ()
    assert excerpts([F], lambda _path: None, PLENTY) == ()
