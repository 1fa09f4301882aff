"""What a task is about is found and ordered, with an index and without one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from agent_runtime.context.relevant_code import (
    Mention,
    Passage,
    rank_files,
    rank_passages,
    read_clues,
    render_excerpts,
)
from agent_runtime.context.unindexed import parse_sources
from agent_runtime.index.index import CodeIndex, Definition, WorkspaceIndex
from agent_runtime.tools.reading import read_lines
from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.overlay import TextFile

INDEXED = 60.0
KEYS = '''def unused():
    return 0


def unikey(text):
    """Generate a unique key for links and footnotes."""
    return " ".join(text.split()).lower()


def neighbour():
    return 1


class Label:
    size = 3

    def draw(self):
        return unikey("x")


class BlankException(Exception):
    pass


class Sheet:
    def __init__(self):
        self.labels = {}

    def __setitem__(self, place, label):
        self.labels[place] = label

    def check(self):
        raise BlankException()
'''
MAIN = "def main():\n    return 1\n\n\nlimit = 1\nSIZES = {\n    1: 2,\n}\n\n\ndef last():\n    pass\n"
TESTS = "from pkg.keys import unikey\n\n\ndef test_case():\n    assert unikey('A') == 'a'\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = tmp_path_factory.mktemp("work")
    for name, text in {
        "src/pkg/__init__.py": "",
        "src/pkg/keys.py": KEYS,
        "src/pkg/a.py": MAIN,
        "tests/test_keys.py": TESTS,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with Workspace(root) as workspace:
        yield workspace


@pytest.fixture
async def index(workspace: Workspace) -> AsyncIterator[WorkspaceIndex]:
    index = WorkspaceIndex(workspace)
    assert await index.wait_ready(INDEXED)
    yield index
    await index.close()


async def nowhere(_texts: Sequence[str]) -> list[tuple[str, int]]:
    return []


async def passage_names(workspace: Workspace, index: CodeIndex, text: str) -> list[str]:
    passages = await rank_passages(workspace, index, read_clues(text), nowhere)
    return [
        each.definition.qualified if each.definition else f"{each.path}:{each.first}-{each.last}" for each in passages
    ]


async def test_an_index_finds_what_a_task_is_about(workspace: Workspace, index: WorkspaceIndex) -> None:
    assert (await passage_names(workspace, index, "footnotes with links that share a label get the same key"))[
        0
    ] == "unikey"
    assert await passage_names(workspace, index, "CI failed on `main`") == []
    assert await passage_names(workspace, index, "--ignore=tests/test_keys.py") == []

    lines_first = await passage_names(workspace, index, "`neighbour` and `unused` and 'links' and src/pkg/keys.py:18")
    assert lines_first[0] == "Label.draw"

    caller_first = await passage_names(workspace, index, "`unikey()`")
    assert caller_first[:2] == ["unikey", "Label.draw"]
    assert "neighbour" not in caller_first

    tested = await passage_names(workspace, index, "FAILED tests/test_keys.py::test_case")
    assert set(tested[:2]) == {"unikey", "test_case"}

    loose = await passage_names(workspace, index, "src/pkg/a.py:7")
    assert loose[0] == "src/pkg/a.py:3-10"


async def test_code_in_a_text_leads_to_methods(workspace: Workspace, index: WorkspaceIndex) -> None:
    text = "A sheet forgets\n\n    sheet = Sheet()\n    sheet[1] = 2\n\nand no BlankException is raised"
    passages = await rank_passages(workspace, index, read_clues(text), nowhere)
    names = [each.definition.qualified for each in passages if each.definition]
    assert names.index("Sheet.__setitem__") < names.index("Sheet.__init__")
    assert names.index("Sheet.check") < names.index("BlankException")
    named = {each.definition.qualified for each in passages if each.definition and each.is_named}
    assert named == {"Sheet", "Sheet.__setitem__", "Sheet.check", "BlankException"}
    assert rank_files(passages)[0] == "src/pkg/keys.py"


@pytest.mark.parametrize(
    ("text", "snippets"),
    [
        ("So:\n\n    x[1] = 2\n\n    y\n\nor\n\tz\n", ["x[1] = 2\ny", "z"]),
        ("```python\nx = 1\n\nx[1]\n```\n~~~\ny\n~~~\n", ["x = 1\n\nx[1]", "y"]),
        (">>> x = 1\n>>> for y in x:\n...     y\n3\n>>> x[1]\n", ["x = 1\nfor y in x:\n    y", "x[1]"]),
        ("```\n>>> x\n3\n>>> y\nTraceback (most\n  self.z[1]\n```", ["x\ny"]),
        ("`x[1] = 2` and `|=`", ["x[1] = 2", "_ |= _"]),
        ("```\nx", ["x"]),
    ],
)
def test_code_of_a_text_is_found(text: str, snippets: list[str]) -> None:
    assert list(read_clues(text).snippets) == snippets


async def test_a_package_that_is_installed_elsewhere_is_this_one(workspace: Workspace, index: WorkspaceIndex) -> None:
    path = "/home/mona/.venv/lib/python3.11/site-packages"
    assert (await passage_names(workspace, index, f'File "{path}/pkg/keys.py", line 7, in f'))[0] == "unikey"
    assert "unikey" not in await passage_names(workspace, index, f'File "{path}/other/keys.py", line 7, in f')


async def test_hits_of_a_message_are_definitions(workspace: Workspace, index: WorkspaceIndex) -> None:
    async def grep(texts: Sequence[str]) -> list[tuple[str, int]]:
        assert list(texts) == ["nothing is left of it"]
        return [("src/pkg/keys.py", 11)]

    told = await rank_passages(workspace, index, read_clues("ValueError: nothing is left of it"), grep)
    assert told[0].definition is not None
    assert told[0].definition.qualified == "neighbour"


async def test_without_an_index_lines_and_names_are_found(workspace: Workspace) -> None:
    text = "src/pkg/a.py:1 and `unikey` and links"
    sources = await parse_sources(workspace, read_clues(text), lambda path: path.endswith("hidden.py"))
    assert (await passage_names(workspace, sources, text))[:2] == ["main", "unikey"]


GENEROUS = 20.0
"""Seconds; what is bounded takes one, what is not takes minutes."""


def test_lines_of_a_traceback_are_innermost_first_and_bounded() -> None:
    text = 'File "a.py", line 1, in f\nFile "b.py", line 2, in g\n' + " ".join(f"f{n}.py:7" for n in range(100))
    places = read_clues(text).places
    assert places[:3] == (Mention("b.py", 2), Mention("a.py", 1), Mention("f0.py", 7))
    assert len(places) == 24


@pytest.mark.parametrize(
    "text",
    [
        "see /app/lib/server.js:246:29 for it",
        "    at Server.upgrade (/app/lib/server.js:246:29)",
        "    at async file:///app/lib/server.js:246:29",
        "/app/lib/server.js:246: error",
    ],
)
def test_places_of_other_languages_are_read(text: str) -> None:
    (place,) = read_clues(text).places
    assert place.path.endswith("/app/lib/server.js")
    assert place.line == 246


def test_files_and_tests_are_told_from_attributes() -> None:
    found = read_clues(
        "`fields.DateTime` in docs/x.md; tests/test_a.py::TestB::test_c[1] fails, and setup.cfg says it.get"
    )
    assert found.files == ("docs/x.md", "setup.cfg")
    assert found.tests == ("tests/test_a.py::TestB::test_c",)


@pytest.mark.parametrize(
    "text",
    [
        "CI failed on `main`",
        "the branch `fix/parse_date.py:3` is red",
        "on branch feature/parse_date",
        "refs/heads/parse_date",
        "pytest --ignore=tests/test_slow.py --deselect tests/test_a.py::test_b --cov=pkg/mod.py",
    ],
)
def test_branches_and_options_name_nothing(text: str) -> None:
    found = read_clues(text)
    assert (found.places, found.files, found.tests, found.names) == ((), (), (), ())


def test_names_are_identifiers_in_code_first_those_in_backticks() -> None:
    found = read_clues("Call parse_date(x) or Client.get_all, not `run it`; `key` and `a.b.run_it()` matter.")
    assert found.names == ("key", "a.b.run_it", "parse_date", "Client.get_all")
    assert found.plain == {"key"}


def test_a_message_is_read_without_what_was_filled_in() -> None:
    found = read_clues("ValueError: cannot parse 12 of 'x.toml' as a table header\nand \"Invalid Upgrade header\"")
    assert found.messages == ("as a table header", "Invalid Upgrade header")


def test_searches_are_for_everything_for_prose_and_for_the_title() -> None:
    text = "Dates are wrong\n\nThey shift.\n\n    parse(1)\n\n```\nformat(2)\n```\n    at f (a.js:1:2)\n"
    (_, whole), (_, prose), (_, title), (_, goal) = read_clues("Fix it", [text]).questions
    assert "format" in whole
    assert "a.js" not in whole
    assert prose.split() == ["Dates", "are", "wrong", "They", "shift."]
    assert (title, goal) == ("Dates are wrong", "Fix it")


@pytest.mark.parametrize(
    "piece", ["a/", "a.", "`", "--a", "'", "Error: ", "a_", "branch ", "origin/", "a.b(", "$.", " "]
)
def test_hostile_texts_are_read_in_bounded_time(piece: str) -> None:
    begun = time.monotonic()
    read_clues(piece * (200_000 // len(piece)))
    assert time.monotonic() - begun < GENEROUS


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
    (excerpt,) = render_excerpts([G], read, PLENTY)
    assert excerpt.path == "a.py (lines 1, 5–6 of 9)"  # noqa: RUF001 - the dash of a range
    assert excerpt.text == "1 | class A:\n5 |     def g(self):\n6 |         return 2"


def test_the_count_of_lines_is_that_of_read_file() -> None:
    (excerpt,) = render_excerpts([F], read, PLENTY)
    file = TextFile(data=SOURCE.raw.encode(), text=SOURCE, version="v")
    read_file = read_lines("a.py", file, 1, None, None).text
    assert excerpt.path.rpartition(" of ")[2].rstrip(")") == "9"
    assert " of 9, " in read_file


def test_no_line_of_a_file_is_shown_twice() -> None:
    around = Passage(path="a.py", line=3, first=2, last=6)
    (excerpt,) = render_excerpts([G, around, F, G], read, PLENTY)
    numbers = [line.split(" ")[0] for line in excerpt.text.split("\n")]
    assert numbers == ["1", "2", "3", "4", "5", "6"]


def test_what_does_not_fit_is_named_and_not_cut() -> None:
    text = Text(SOURCE.raw + "# more\n" * 100)
    long = Passage(path="a.py", definition=method("long", 8, 109))
    shown, left_out = render_excerpts([F, long], lambda _path: text, 500)
    assert shown.text.count("\n") == 2
    assert left_out.text == "a.py:8-109 A.long"


def test_of_a_definition_that_is_too_long_its_head_and_the_lines_that_are_named_are_shown() -> None:
    text = Text("def f():\n" + "    x = 1\n" * 400 + "def g():\n    pass\n")
    definition = Passage(path="a.py", line=400, definition=method("f", 1, 401))
    (excerpt,) = render_excerpts([definition], lambda _path: text, 1_000)
    assert excerpt.path == "a.py (lines 1, 388–401 of 403)"  # noqa: RUF001 - as above


def test_a_file_that_changed_or_went_is_left_out() -> None:
    stale = Passage(path="a.py", definition=method("f", 8, 20))
    assert render_excerpts([stale, Passage(path="a.py", line=99, first=90, last=99)], read, PLENTY) == ()
    assert render_excerpts([F], lambda _path: None, PLENTY) == ()


DOCUMENTED = Text('''class A:
    """
    A thing.

    Long.
    """

    def f(
        self,
    ):  # noqa
        r"""Do it.

        In a way.
        """
        return """
        x
        """

    def g(self):
        """One line."""
        return 1
''')


def test_of_a_docstring_the_first_line_is_shown() -> None:
    whole = method("A", 1, 21)
    (excerpt,) = render_excerpts([Passage(path="a.py", definition=whole)], lambda _path: DOCUMENTED, PLENTY)
    assert excerpt.path == "a.py (whole)"
    lines = [line.lstrip() for line in excerpt.text.splitlines()]
    assert lines[:4] == ["1 | class A:", '2 |     """', "3 |     A thing.", "4-6 | ..."]
    assert "12-14 | ..." in lines
    assert [int(line.split()[0]) for line in lines if not line.endswith("...")] == [
        1,
        2,
        3,
        *range(7, 12),
        *range(15, 22),
    ]

    named = Passage(path="a.py", line=13, first=12, last=14)
    (excerpt,) = render_excerpts([Passage(path="a.py", definition=whole), named], lambda _path: DOCUMENTED, PLENTY)
    assert "12-14" not in excerpt.text
    assert "13 |         In a way." in excerpt.text
