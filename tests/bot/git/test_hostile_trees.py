"""What hostile code leaves in a workspace keeps no change from being read."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from bot.git.baseline import Baseline, Ignores, differences
from bot.git.errors import ChangeError, WorkspaceError
from bot.git.filesystem import DEEPEST
from bot.git.mirror import Source
from bot.git.process import Git
from bot.git.workspace import Workspaces
from tests.hostile_trees import nest
from tests.origin import Origin

REPO = 4711


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


def main_at(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_patterns_that_keep_git_busy_for_ever_are_given_up(origin: Origin, tmp_path: Path) -> None:
    files, shadow = tmp_path / "files", tmp_path / "shadow"
    (files / "below").mkdir(parents=True)
    shadow.mkdir()
    name = "a" * 200 + "c"
    for path in (".gitignore", "below/.gitignore"):
        (files / path).write_text("*a" * 13 + "*b\n")
    for path in (name, f"below/{name}"):
        (files / path).write_text("x")
    ignores = Ignores(Git(git_dir=origin.path / ".git"), shadow, cpu_seconds=1)
    found = await differences(files, Baseline(modes={}, entries={}), ignores)
    assert set(found.present) == {b".gitignore", name.encode(), b"below/.gitignore", f"below/{name}".encode()}
    [said] = found.notes
    assert "`.gitignore`" in said


async def test_directories_that_are_too_deep_are_left_out_and_said_to_be(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"a": "1", "deep/a": "1"})
    async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)) as tree:
        (tree.path / "deep" / "b").write_text("2")
        nest(tree.path / "deep", 1_500, name="d")
        await tree.take_as_given(())
        (tree.path / "deep" / "b").write_text("3")
        nest(tree.path, 200, name="n" * 200)
        change = await tree.change()
        assert [file.path for file in change.files] == ["deep/b"]
        [said] = change.notes
        assert f" {DEEPEST} deep" in said


async def test_little_of_a_large_change_is_held_in_memory(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"a": "1"})
    async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)) as tree:
        large = os.urandom(16 << 20)
        (tree.path / "large.bin").write_bytes(large)
        tracemalloc.start()
        change = await tree.change()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert change.files[0].content == large
        assert change.patch_file is not None
        assert change.patch_file.stat().st_size > len(large)
        assert peak < 4.5 * len(large)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({f"{n}.bin": 10 << 20 for n in range(4)}, "larger than 36 MiB together"),
        ({f"{n}.bin": 90 << 20 for n in range(6)}, "larger than 512 MiB together"),
    ],
)
async def test_a_change_that_is_too_large_is_refused_unread(
    files: dict[str, int], said: str, origin: Origin, tmp_path: Path
) -> None:
    sha = origin.commit({"a": "1"})
    async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)) as tree:
        for name, size in files.items():
            with (tree.path / name).open("wb") as file:
                file.truncate(size)
        tracemalloc.start()
        with pytest.raises(ChangeError, match=said):
            await tree.change()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 16 << 20


async def test_a_commit_that_is_too_deep_is_not_checked_out(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({f"{'d/' * 101}a": "1"})
    with pytest.raises(WorkspaceError, match=f" {DEEPEST} directories"):
        async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)):
            pass
