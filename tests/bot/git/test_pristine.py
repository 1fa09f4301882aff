from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.workspace.files import Workspace
from bot.git.errors import WorkspaceError
from bot.git.filesystem import cp
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin


def snapshot(root: Path) -> dict[str, str]:
    """Every file below `root`: its kind and content."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(each for each in folders if (Path(folder) / each).is_symlink())]:
            path = Path(folder) / name
            if path.is_symlink():
                found[str(path.relative_to(root))] = f"-> {path.readlink()}"
            else:
                executable = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
                found[str(path.relative_to(root))] = f"{executable} {path.read_text()}"
    return found


async def files_of(workspaces: Workspaces, origin: Origin, job: str, sha: str) -> dict[str, str]:
    async with workspaces.open(job, 1, Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)) as tree:
        found = snapshot(tree.path)
        # What the agent does to its copy must not reach the next job.
        for name in found:
            (tree.path / name).unlink()
        (tree.path / "left behind").write_text("x")
        return found


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


async def test_each_job_gets_exactly_its_commit_whatever_came_before(tmp_path: Path, origin: Origin) -> None:
    first = origin.commit({"a.txt": "one", "d/b.txt": "two", "run.sh": "three", "x": "file"})
    (origin.path / "run.sh").chmod(0o755)
    (origin.path / "link").symlink_to("a.txt")
    second = origin.commit({"a.txt": "changed", "d/b.txt": None, "x": None, "x/y": "now a folder"})
    workspaces = Workspaces(tmp_path / "bot")
    expected = {
        first: {"a.txt": "- one", "d/b.txt": "- two", "run.sh": "- three", "x": "- file"},
        second: {"a.txt": "- changed", "link": "-> a.txt", "run.sh": "x three", "x/y": "- now a folder"},
    }
    for number, sha in enumerate([first, second, second, first, second, first, first]):
        assert await files_of(workspaces, origin, f"job{number}", sha) == expected[sha]


@pytest.mark.parametrize("damage", ["note", "index", "note, and half the files", "power cut, half the files"])
async def test_an_update_that_was_cut_short_is_begun_anew(tmp_path: Path, origin: Origin, damage: str) -> None:
    sha = origin.commit({"a.txt": "one", "b.txt": "two"})
    workspaces = Workspaces(tmp_path / "bot")
    whole = await files_of(workspaces, origin, "first", sha)
    folder = tmp_path / "bot" / "mirrors" / "1.files"
    if "power" in damage:
        (folder / "commit").write_text(f"{sha} another-start-of-the-machine")
    if "note" in damage:
        (folder / "commit").unlink()
    if damage == "index":
        (folder / "commit").unlink()
        (folder / "index").write_bytes(b"half written")
    if "files" in damage:
        (folder / "files" / "a.txt").unlink()
        (folder / "files" / "stray").write_text("x")
    assert await files_of(workspaces, origin, "second", sha) == whole


async def test_a_disk_that_refuses_is_said(tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = origin.commit({"a.txt": "one"})
    failing = tmp_path / "bin"
    failing.mkdir()
    (failing / "cp").write_text("#!/bin/sh\necho 'ENOSPC' >&2\nexit 1\n")
    (failing / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{failing}:{os.environ['PATH']}")
    workspaces = Workspaces(tmp_path / "bot")
    with pytest.raises(WorkspaceError, match="ENOSPC"):
        await files_of(workspaces, origin, "job", sha)
    assert list((tmp_path / "bot" / "jobs").iterdir()) == []


async def test_the_jobs_of_a_repository_share_a_code_index_that_lies_outside_of_their_files(
    tmp_path: Path, origin: Origin
) -> None:
    first = origin.commit({"a.py": "def first(): pass\n", "b.py": "def second(): pass\n"})
    second = origin.commit({"b.py": "def third(): pass\n"})
    workspaces = Workspaces(tmp_path / "bot")
    parsed = []
    for job, sha in (("one", first), ("two", first), ("three", second)):
        source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
        async with workspaces.open(job, 1, source) as tree:
            assert tree.kept_index is not None
            assert not tree.kept_index.is_relative_to(tree.path)
            with Workspace(tree.path) as files:
                index = WorkspaceIndex(files, tree.kept_index)
                assert await index.ready(60)
                parsed.append(index.state.parsed)
                assert len(await index.named("second")) == (sha == first)
                await index.close()
    assert parsed == [2, 0, 1]


async def test_a_cp_that_complains_on_and_on_is_ended_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complains = tmp_path / "cp"
    complains.write_text("#!/bin/sh\nexec cat /dev/zero >&2\n")
    complains.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(complains))
    for milliseconds in range(20, 30):
        copying = asyncio.create_task(cp(tmp_path, tmp_path, ["a"]))
        await asyncio.wait([copying], timeout=milliseconds / 1000)
        copying.cancel()
        _, left = await asyncio.wait([copying], timeout=20)
        assert not left
