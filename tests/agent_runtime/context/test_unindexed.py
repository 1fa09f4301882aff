from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_runtime.context import unindexed
from agent_runtime.context.relevant_code import read_clues
from agent_runtime.context.unindexed import ParsedSources, parse_sources
from agent_runtime.core.errors import BoundExceededError
from agent_runtime.index.index import Outline
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace.files import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    for path, text in {
        "pkg/timers.py": "class Timer:\n    def restart(self):\n        def inner(): ...\n    LIMIT = 3\n",
        "pkg/deep/shapes.py": "def draw_circle():\n    return 1\n",
        "tests/test_timers.py": "def test_restart(): ...\n",
        "broken.py": "def (\n" * 10,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with Workspace(tmp_path) as workspace:
        yield workspace


async def parse(workspace: Workspace, text: str, hidden: str = "") -> ParsedSources:
    return await parse_sources(workspace, read_clues(text), lambda path: path == hidden)


async def test_names_and_lines_are_found_as_an_index_finds_them(workspace: Workspace) -> None:
    sources = await parse(workspace, "The timer does not restart")
    (restart,) = await sources.find_definitions("Timer.restart")
    assert (restart.path, restart.first, restart.last, restart.parents) == ("pkg/timers.py", 2, 3, (1,))
    assert await sources.find_definitions("pkg/deep/shapes.py::restart") == []
    assert await sources.definition_at("pkg/timers.py", 2) == restart
    assert next(each.qualified for each in await sources.search("restart the timer")) == "Timer.restart"


async def test_an_outline_leaves_out_constants_and_what_functions_hold(workspace: Workspace) -> None:
    outlines = await (await parse(workspace, "x", hidden="broken.py")).outline_files([])
    assert outlines == [
        Outline(path="pkg/deep/shapes.py", is_test=False, names=("draw_circle",)),
        Outline(path="pkg/timers.py", is_test=False, names=("Timer", "Timer.restart")),
        Outline(path="tests/test_timers.py", is_test=True, names=("test_restart",)),
    ]


async def test_after_the_processor_time_the_files_that_a_text_names_are_parsed_and_others_only_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / f"part_{number}.py").write_text(f"def function_{number}(): ...\n" * 4_000)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "last.py").write_text("def wanted_name(): ...\n")
    monkeypatch.setattr(unindexed, "run_bounded", _call)
    with Workspace(tmp_path) as workspace:
        outlines = await (await parse(workspace, "`wanted_name()` fails")).outline_files([])
    by_path = {outline.path: outline.names for outline in outlines}
    assert by_path["sub/last.py"] == ("wanted_name",)
    assert None in by_path.values()


async def test_names_of_a_file_that_is_not_read_are_not_known(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("def first(): ...\n" * 25_000)
    (tmp_path / "packed.js").write_text("function a() {}" * 1_000)
    outlines = await (await parse(workspace, "x")).outline_files([])
    names = {outline.path: outline.names for outline in outlines}
    assert names["long.py"] is None
    assert names["packed.js"] == ()


async def test_sources_that_were_not_all_listed_are_a_failure(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not (await parse(workspace, "x")).failure
    monkeypatch.setattr(unindexed, "_MAX_ENTRIES", 1)
    monkeypatch.setattr(unindexed, "run_bounded", _call)
    sources = await parse(workspace, "x")
    assert sources.failure == "only 2 files were listed"
    assert len(await sources.outline_files([])) == 2


async def test_a_large_file_that_ends_the_worker_leaves_the_small_ones(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crash.py").write_text("def crashes(): ...\n" * 2_000)

    async def end_at_large_files(function: Callable[..., str], *arguments: object, seconds: float, task: str) -> str:
        answer = await run_bounded(function, *arguments, seconds=seconds, task=task)
        if "crashes" in answer:
            raise BoundExceededError("it ended", bound="memory")
        return answer

    monkeypatch.setattr(unindexed, "run_bounded", end_at_large_files)
    outlines = await (await parse(workspace, "x")).outline_files([])
    names = {outline.path: outline.names for outline in outlines}
    assert names["crash.py"] is None
    assert names["pkg/timers.py"] == ("Timer", "Timer.restart")


async def test_sources_that_take_too_long_are_a_failure(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unindexed, "_SECONDS", 0.000_001)
    assert (await parse(workspace, "x")).failure.startswith("Looking for what the task names took more than")


async def _call(function: object, *arguments: object, **_limits: object) -> object:
    assert callable(function)
    return function(*arguments)
