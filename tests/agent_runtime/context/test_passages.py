"""What a task is about is found and ordered, with an index and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from agent_runtime.context.relevant_code import clues, named_files, passages
from agent_runtime.index.index import CodeIndex, WorkspaceIndex
from agent_runtime.workspace.files import Workspace

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
    assert await index.ready(INDEXED)
    yield index
    await index.close()


async def nowhere(_texts: Sequence[str]) -> list[tuple[str, int]]:
    return []


async def found(workspace: Workspace, index: CodeIndex, text: str) -> list[str]:
    told = await passages(workspace, index, clues(text), nowhere)
    return [each.definition.qualified if each.definition else f"{each.path}:{each.first}-{each.last}" for each in told]


async def test_an_index_finds_what_a_task_is_about(workspace: Workspace, index: WorkspaceIndex) -> None:
    assert (await found(workspace, index, "footnotes with links that share a label get the same key"))[0] == "unikey"
    assert await found(workspace, index, "CI failed on `main`") == []
    assert await found(workspace, index, "--ignore=tests/test_keys.py") == []

    lines_first = await found(workspace, index, "`neighbour` and `unused` and 'links' and src/pkg/keys.py:18")
    assert lines_first[0] == "Label.draw"

    caller_first = await found(workspace, index, "`unikey()`")
    assert caller_first[:2] == ["unikey", "Label.draw"]
    assert "neighbour" not in caller_first

    tested = await found(workspace, index, "FAILED tests/test_keys.py::test_case")
    assert set(tested[:2]) == {"unikey", "test_case"}

    loose = await found(workspace, index, "src/pkg/a.py:7")
    assert loose[0] == "src/pkg/a.py:3-10"


async def test_a_package_that_is_installed_elsewhere_is_this_one(workspace: Workspace, index: WorkspaceIndex) -> None:
    path = "/home/mona/.venv/lib/python3.11/site-packages"
    assert (await found(workspace, index, f'File "{path}/pkg/keys.py", line 7, in f'))[0] == "unikey"
    assert "unikey" not in await found(workspace, index, f'File "{path}/other/keys.py", line 7, in f')


async def test_hits_of_a_message_are_definitions(workspace: Workspace, index: WorkspaceIndex) -> None:
    async def grep(texts: Sequence[str]) -> list[tuple[str, int]]:
        assert list(texts) == ["nothing is left of it"]
        return [("src/pkg/keys.py", 11)]

    told = await passages(workspace, index, clues("ValueError: nothing is left of it"), grep)
    assert told[0].definition is not None
    assert told[0].definition.qualified == "neighbour"


async def test_without_an_index_lines_and_names_are_found(workspace: Workspace) -> None:
    text = "src/pkg/a.py:1 and `unikey` and links"
    assert await found(workspace, await named_files(workspace, clues(text), seconds=INDEXED), text) == [
        "main",
        "unikey",
    ]
