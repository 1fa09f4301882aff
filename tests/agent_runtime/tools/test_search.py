from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import SandboxError, ToolError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.search import find_ripgrep
from tests.containers import StandIn


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "a.py": "import os\nx = needle\n",
        "src/b.py": "needle\nother\nneedle needle\n",
        "src/deep/c.ts": "// needle\n",
        "tests/test_b.py": "needle\n",
        ".github/ci.yml": "needle: 1\n",
        ".gitignore": "*.log\nnode_modules/\n",
        "out.log": "needle\n",
        "src/node_modules/x/d.py": "needle\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def search(root: Path) -> Iterator[SearchTools]:
    with Workspace(root) as workspace:
        yield SearchTools(workspace)


async def matches(
    search: SearchTools,
    pattern: str = "needle",
    **arguments: Any,  # noqa: ANN401 - wrong types, too
) -> list[str]:
    value = (await search.find(pattern, **arguments)).value
    assert isinstance(value, list)
    return [f"{hit['file']}:{hit['line']}" for hit in value if isinstance(hit, dict)]


async def test_a_file_as_the_target_is_searched_even_if_it_is_ignored(search: SearchTools) -> None:
    assert await matches(search, target="out.log") == ["out.log:1"]
    planned = search.plan("find", {"pattern": "needle", "target": "out.log"}, lambda: None)
    assert planned.facts.paths == ("out.log",)


async def test_the_codebase_is_searched_without_ignored_files(search: SearchTools) -> None:
    result = await search.find("needle")
    assert result.text.split("\n") == [
        "[find] 6 match(es) (showing 6 of 6):",
        ".github/ci.yml:1:needle: 1",
        "a.py:2:x = needle",
        "src/b.py:1:needle",
        "src/b.py:3:needle needle",
        "src/deep/c.ts:1:// needle",
        "tests/test_b.py:1:needle",
    ]
    assert isinstance(result.value, list)
    assert result.value[1] == {"file": "a.py", "line": 2, "text": "x = needle"}


async def test_a_search_without_matches_says_so(search: SearchTools) -> None:
    result = await search.find("nowhere at all")
    assert result.value == []
    assert result.text.startswith("[find] No match")


async def test_more_matches_than_wanted_are_counted(search: SearchTools) -> None:
    result = await search.find("needle", max_results=2)
    assert result.text.startswith("[find] 6 match(es) (showing 2 of 6):\n.github/ci.yml")
    assert isinstance(result.value, list)
    assert len(result.value) == 2


async def test_more_context_than_there_may_be_is_the_most(search: SearchTools) -> None:
    assert (await search.find("other", context=500)).text == (await search.find("other", context=20)).text


async def test_context_is_shown_but_not_returned(search: SearchTools) -> None:
    result = await search.find("other", context=1)
    assert result.text.split("\n")[1:] == ["src/b.py", "1-needle", "2:other", "3-needle needle"]
    assert result.value == [{"file": "src/b.py", "line": 2, "text": "other"}]


async def test_lines_have_the_numbers_that_read_file_gives_them(root: Path, search: SearchTools) -> None:
    (root / "odd.txt").write_bytes("a\x0cpin\u2028pin\r\n\x85pin\rpin\n\npin".encode())
    with Workspace(root) as workspace:
        files = FileTools(workspace)
        assert await matches(search, "pin", scope="file", target="odd.txt") == [f"odd.txt:{line}" for line in (1, 2, 4)]
        shown = files.read_file("odd.txt", 1, 4).text
        assert "(lines 1\u20134 of 4, " in shown
        for line in (1, 2, 4):
            assert f"\n{line} | " in shown
            assert "pin" in str(files.read_file("odd.txt", line, line).value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"scope": "file", "target": "a.py"}, ["a.py:2"]),
        ({"scope": "file", "target": "./src/../a.py"}, ["a.py:2"]),
        ({"scope": "file", "target": "out.log"}, ["out.log:1"]),
        ({"scope": "files", "target": ["tests/test_b.py", "a.py", "a.py"]}, ["a.py:2", "tests/test_b.py:1"]),
        ({"target": "src"}, ["src/b.py:1", "src/b.py:3", "src/deep/c.ts:1"]),
        (
            {"target": "."},
            [".github/ci.yml:1", "a.py:2", "src/b.py:1", "src/b.py:3", "src/deep/c.ts:1", "tests/test_b.py:1"],
        ),
        ({"include": "*.ts"}, ["src/deep/c.ts:1"]),
        ({"include": "*.{ts,yml}"}, [".github/ci.yml:1", "src/deep/c.ts:1"]),
        ({"include": "src/**"}, ["src/b.py:1", "src/b.py:3", "src/deep/c.ts:1"]),
        ({"include": "**/*.py"}, ["a.py:2", "src/b.py:1", "src/b.py:3", "tests/test_b.py:1"]),
        ({"include": "*.log"}, []),
        ({"include": "gone/**"}, []),
        ({"target": "src", "include": "*.py"}, ["src/b.py:1", "src/b.py:3"]),
    ],
)
async def test_the_search_goes_where_it_is_sent(
    search: SearchTools, arguments: dict[str, Any], expected: list[str]
) -> None:
    assert await matches(search, **arguments) == expected


async def test_patterns_are_regular_expressions(search: SearchTools) -> None:
    assert await matches(search, r"^import\s+\w+$") == ["a.py:1"]
    assert await matches(search, "(?i)NEEDLE$", include="a.py") == ["a.py:2"]


@pytest.mark.parametrize(
    ("pattern", "words"), [("a(", "unclosed group"), ("a(?=b)", "look-around"), ("a\nb", "not allowed in a regex")]
)
async def test_an_invalid_pattern_is_answered_with_ripgrep_s_words(
    search: SearchTools, pattern: str, words: str
) -> None:
    with pytest.raises(ToolError, match=words) as told:
        await search.find(pattern)
    assert told.value.kind == "ValueError"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": ""}, "pattern must be"),
        ({"pattern": "a\0b"}, "pattern must be"),
        ({"max_results": 0}, "max_results=0: must be 1 to 1000"),
        ({"max_results": 1001}, "max_results=1001"),
        ({"context": -1}, "context=-1: must not be negative"),
        ({"scope": "all"}, "scope='all': must be"),
        ({"scope": "file"}, "must be the path of one file"),
        ({"scope": "files", "target": []}, "must be a list of paths"),
        ({"scope": "files", "target": "a.py"}, "must be a list of paths"),
        ({"scope": "file", "target": "gone.py"}, "'gone.py' does not exist"),
        ({"scope": "file", "target": "src"}, "not a regular file"),
        ({"target": "nowhere"}, "neither a directory nor a file"),
        ({"target": ["src"]}, "must be one directory"),
        ({"scope": "file", "target": "a.py", "include": "*.py"}, "include is for scope='codebase'"),
    ],
)
async def test_errors_of_arguments_list_the_valid_values(
    search: SearchTools, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        await search.find(**{"pattern": "needle", **arguments})


async def test_a_search_that_takes_too_long_is_stopped(root: Path) -> None:
    with Workspace(root) as workspace, pytest.raises(ToolError, match="after 0 s") as told:
        await SearchTools(workspace, seconds=0).find("needle")
    assert told.value.kind == "TimeoutError"


async def test_a_line_of_a_million_characters_is_cut_around_its_match(root: Path, search: SearchTools) -> None:
    (root / "long.js").write_text("x" * 1_000_000 + "pin" + "y" * 1_000_000)
    result = await search.find("pin")
    assert "pin" in result.text
    assert len(result.text) < 400


async def test_a_name_with_a_newline_is_not_searched_as_no_other_tool_opens_it(root: Path, search: SearchTools) -> None:
    (root / "z\nsrc").mkdir()
    for name in ("z\na.py:9:forged", "z\nsrc/b.py"):
        (root / name).write_text("pin\n")
    (root / "a.py").write_text("pin\n")
    assert await matches(search, "pin") == ["a.py:1"]


async def test_matches_in_a_binary_file_that_is_named_are_shown(root: Path, search: SearchTools) -> None:
    (root / "a.bin").write_bytes(b"pin 1\nx\npin\0 2\n\n./a.py\0001:pin\n")
    assert await matches(search, "pin", scope="file", target="a.bin") == ["a.bin:1", "a.bin:3", "a.bin:5"]
    assert await matches(search, "pin") == []


async def test_the_search_runs_in_a_sandbox_where_there_is_one(root: Path) -> None:
    sandbox = Bubblewrap(SandboxSettings())
    try:
        sandbox.probe()
    except SandboxError as error:
        pytest.skip(str(error))
    with Workspace(root) as workspace:
        search = SearchTools(workspace, sandbox)
        assert await matches(search, include="*.ts") == ["src/deep/c.ts:1"]
        assert await matches(search, scope="file", target="a.py") == ["a.py:2"]
        (root / "long.js").write_text("x" * 1000 + "pin" + "y" * 1000)
        assert "pin" in (await search.find("pin", context=2)).text
        with pytest.raises(ToolError, match="unclosed group"):
            await search.find("a(")
        search.close()


async def test_the_search_runs_in_the_container_where_there_is_one(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    containers = StandIn.at(tmp_path_factory.mktemp("engine"))
    with Workspace(root) as workspace:
        search = SearchTools(workspace, containers.sandbox())
        assert await matches(search, include="*.ts") == ["src/deep/c.ts:1"]
        assert await matches(search, "(?i)NEEDLE$", include="a.py") == ["a.py:2"]
        search.close()
    assert [call[0] for call in containers.calls].count("run") == 2
    assert containers.containers == []


def test_the_locked_ripgrep_comes_before_one_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ripgrep() == Path(sys.prefix, "bin", "rg")
    monkeypatch.setattr("sys.prefix", "/nonexistent")
    assert find_ripgrep() == tmp_path / "rg"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_ripgrep() is None


@pytest.mark.parametrize(
    ("pattern", "arguments"),
    [
        ("needle", {}),
        ("needle", {"max_results": 2}),
        (r"^n.*e$", {}),
        ("--force", {}),
        ("ü.r", {}),
        ("needle", {"include": "*.py"}),
        ("needle", {"scope": "files", "target": ["a.py", "out.log", "blob.bin"]}),
        ("needle", {"target": "src", "context": 1}),
        ("nowhere", {}),
    ],
)
async def test_without_ripgrep_the_same_is_found(
    root: Path, search: SearchTools, monkeypatch: pytest.MonkeyPatch, pattern: str, arguments: dict[str, Any]
) -> None:
    (root / "options.txt").write_text("git push --force\nüber\n" + "x" * 500 + " needle " + "y" * 500 + "\n")
    (root / "blob.bin").write_bytes(b"\0needle\n")
    expected = await search.find(pattern, **arguments)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("sys.prefix", "/nonexistent")
    result = await search.find(pattern, **arguments)
    assert (result.value, result.text) == (expected.value, expected.text)
    with pytest.raises(ToolError, match=r"find: .*missing"):
        await search.find("(", **arguments)


async def test_a_search_that_finds_far_too_much_is_counted_to_the_end(root: Path, search: SearchTools) -> None:
    for name in ("z.txt", "src/y.txt", "src/deep/x.txt", "tests/w.txt"):
        (root / name).write_text("pin\n" * 25_000)
    result = await search.find("pin", max_results=2)
    assert result.text.split("\n") == [
        "[find] 100000 match(es) (showing 2 of 100000):",
        "src/deep/x.txt:1:pin",
        "src/deep/x.txt:2:pin",
        "[more: src/ 50000, tests/ 25000, z.txt 25000. Narrow it with target or include, or a more exact pattern.]",
    ]
    assert (
        (await search.find("pin", max_results=2, include="*.txt", target="src"))
        .text.split("\n")[-1]
        .startswith("[more: src/deep/ 25000, src/y.txt 25000.")
    )


async def test_totals_stay_true_when_more_was_found_than_is_shown(search: SearchTools) -> None:
    assert (await search.find("needle", max_results=1)).text.endswith(
        "[more: src/ 3, .github/ 1, a.py 1, tests/ 1. Narrow it with target or include, or a more exact pattern.]"
    )


async def test_searches_at_the_same_time_do_not_mix(root: Path) -> None:
    with Workspace(root) as workspace:
        search = SearchTools(workspace, Bubblewrap(SandboxSettings()))
        answers = await asyncio.gather(*(matches(search, include=glob) for glob in ("*.ts", "*.yml") * 4))
        assert answers == [["src/deep/c.ts:1"], [".github/ci.yml:1"]] * 4
        search.close()


async def test_a_searcher_that_was_stopped_starts_again(root: Path) -> None:
    with Workspace(root) as workspace:
        search = SearchTools(workspace, Bubblewrap(SandboxSettings()), seconds=0)
        with pytest.raises(ToolError, match="stopped after"):
            await search.find("needle")
        search._seconds = 20
        assert await matches(search, include="*.ts") == ["src/deep/c.ts:1"]
        search.close()
        search.close()
        assert await matches(search, include="*.ts") == ["src/deep/c.ts:1"]
        search.close()
