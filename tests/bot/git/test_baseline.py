"""Baselines and differences from them."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from bot.git.baseline import Baseline, IgnoreRules, find_differences, find_repositories, outermost_folder
from bot.git.errors import WorkspaceError
from bot.git.filesystem import MAX_DEPTH
from bot.git.mirror import Source
from bot.git.process import Git
from bot.git.workspace import Workspaces
from tests.hostile_trees import nest
from tests.origin import Origin

REPO = 4711
FILES = {"a.py": "x = 1\n", "lock": "1\n", "old.txt": "old\n", "src/b.py": "y = 1\n"}


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state")


def source(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_files_of_the_baseline_are_no_change_until_edited(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / "lock").write_text("2\n")
        (tree.path / "old.txt").unlink()
        (tree.path / "made.txt").write_text("made\n")
        (tree.path / "src/gen").mkdir()
        (tree.path / "src/gen/c.py").write_text("z = 1\n")
        await tree.reset_baseline([])
        assert not await tree.change()
        (tree.path / "a.py").write_text("x = 2\n")
        (tree.path / "src/gen/c.py").write_text("z = 2\n")
        (tree.path / "old.txt").write_text("new\n")
        change = await tree.change()
    assert [(file.path, file.status) for file in change.files] == [
        ("a.py", "modified"),
        ("old.txt", "modified"),
        ("src/gen/c.py", "added"),
    ]


async def test_a_file_that_the_agent_deletes_after_setup_is_a_deletion(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / "lock").write_text("2\n")
        await tree.reset_baseline([])
        (tree.path / "lock").unlink()
        (tree.path / "src/b.py").unlink()
        change = await tree.change()
    assert [(file.path, file.status) for file in change.files] == [("lock", "deleted"), ("src/b.py", "deleted")]


async def test_excluded_paths_are_never_part_of_a_change(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job-1", REPO, source(origin, origin.commit(FILES))) as tree:
        (tree.path / ".venv/bin").mkdir(parents=True)
        await tree.reset_baseline([".venv", "src/kept", "one.txt"])
        (tree.path / ".venv/bin/evil").write_text("evil\n")
        (tree.path / "src/kept").mkdir()
        (tree.path / "src/kept/x").write_text("x\n")
        (tree.path / "one.txt").write_text("1\n")
        (tree.path / ".venvs").mkdir()
        (tree.path / ".venvs/y").write_text("y\n")
        change = await tree.change()
    assert [file.path for file in change.files] == [".venvs/y"]


async def test_a_file_is_read_as_the_commit_has_it_without_a_checkout(origin: Origin, workspaces: Workspaces) -> None:
    before = origin.commit({".github/codepilot.yml": "setup: [make]\n"})
    after = origin.commit({".github/codepilot.yml": "setup: [evil]\n"})
    for sha, text in ((before, b"setup: [make]\n"), (after, b"setup: [evil]\n")):
        file = await workspaces.read(REPO, source(origin, sha), ".github/codepilot.yml", limit=100)
        assert file is not None
        assert file.content == text
    assert await workspaces.read(REPO, source(origin, after), ".github/other.yml", limit=100) is None


async def test_attributes_and_filters_do_not_affect_reading(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({".gitattributes": "* text eol=lf ident\n", "f.yml": "a: $Id$\r\n"})
    file = await workspaces.read(REPO, source(origin, sha), "f.yml", limit=100)
    assert file is not None
    assert file.content.startswith(b"a: $Id$")


async def test_a_special_or_oversized_file_is_rejected_by_name(origin: Origin, workspaces: Workspaces) -> None:
    (origin.path / "link.yml").symlink_to("/etc/passwd")
    sha = origin.commit({"folder/x": "1\n", "long.yml": "x" * 101})
    for path, told in (("link.yml", "a symbolic link"), ("folder", "no file"), ("long.yml", "the limit is 100")):
        with pytest.raises(WorkspaceError, match=told) as caught:
            await workspaces.read(REPO, source(origin, sha), path, limit=100)
        assert f"`{path}`" in caught.value.reason


async def test_a_path_is_no_pattern(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a.yml": "1\n"})
    for path in ("*.yml", ":(glob)**", "."):
        assert await workspaces.read(REPO, source(origin, sha), path, limit=100) is None


@pytest.mark.parametrize("path", ["a\0b", "\ud83d", "\U0001f600" * 60_000, "x/" * 5_000])
async def test_an_unencodable_path_names_no_file(origin: Origin, workspaces: Workspaces, path: str) -> None:
    sha = origin.commit({"a.yml": "1\n"})
    assert await workspaces.read(REPO, source(origin, sha), path, limit=100) is None


async def test_a_name_that_is_no_unicode_is_read(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"caf\udce9.yml": "1\n"})
    file = await workspaces.read(REPO, source(origin, sha), "caf\udce9.yml", limit=100)
    assert file is not None
    assert file.content == b"1\n"


def test_many_repositories_are_found_in_linear_time() -> None:
    """A quadratic search would take an hour."""
    folders = {b"r%d" % number for number in range(20_000)}
    paths = [b"/".join((folder, part)) for folder in folders for part in (b"HEAD", b"objects/a", b"refs/a", b"config")]
    found = find_repositories(paths)
    assert found == folders
    assert {outermost_folder(path, found) for path in paths} == folders


def test_a_name_counts_as_the_least_careful_file_system_reads_it() -> None:
    assert find_repositories(["a/he\u200cad".encode(), b"a/Objects./x", b"a/REFS/x"]) == {b"a"}
    assert find_repositories([b"a/b/HEAD", b"a/objects/x", b"a/refs/x"]) == set()
    assert find_repositories([b"HEAD", b"objects/x", b"refs/x"]) == set()


def test_the_outermost_folder_is_returned() -> None:
    assert outermost_folder(b"a/b/c/HEAD", {b"a/b", b"a/b/c"}) == b"a/b"
    assert outermost_folder(b"ab/HEAD", {b"a"}) is None


def main_at(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_endless_ignore_patterns_time_out(origin: Origin, tmp_path: Path) -> None:
    files, shadow = tmp_path / "files", tmp_path / "shadow"
    (files / "below").mkdir(parents=True)
    shadow.mkdir()
    name = "a" * 200 + "c"
    for path in (".gitignore", "below/.gitignore"):
        (files / path).write_text("*a" * 13 + "*b\n")
    for path in (name, f"below/{name}"):
        (files / path).write_text("x")
    ignores = IgnoreRules(Git(git_dir=origin.path / ".git"), shadow, cpu_seconds=1)
    found = await find_differences(files, Baseline(modes={}, entries={}), ignores)
    assert set(found.present) == {b".gitignore", name.encode(), b"below/.gitignore", f"below/{name}".encode()}
    [said] = found.notes
    assert "`.gitignore`" in said


async def test_too_deep_directories_are_excluded_with_a_note(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"a": "1", "deep/a": "1"})
    async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)) as tree:
        (tree.path / "deep" / "b").write_text("2")
        nest(tree.path / "deep", 1_500, name="d")
        await tree.reset_baseline(())
        (tree.path / "deep" / "b").write_text("3")
        nest(tree.path, 200, name="n" * 200)
        change = await tree.change()
        assert [file.path for file in change.files] == ["deep/b"]
        [said] = change.notes
        assert f" {MAX_DEPTH} deep" in said


async def test_a_large_change_takes_little_memory(origin: Origin, tmp_path: Path) -> None:
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


async def test_a_commit_that_is_too_deep_is_not_checked_out(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({f"{'d/' * 101}a": "1"})
    with pytest.raises(WorkspaceError, match=f" {MAX_DEPTH} directories"):
        async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, sha)):
            pass
