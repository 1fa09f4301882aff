"""Walking and removing directories of hostile programs."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.git.filesystem import discard, is_git_name, read_file, read_folder, remove_tree, walk_files
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.hostile_trees import freeze, nest
from tests.origin import Origin


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/secret").write_text("TOP SECRET")
    (outside / "secret").write_text("TOP SECRET")
    inside = tmp_path / "inside"
    (inside / "real").mkdir(parents=True)
    (inside / "real/file").write_text("ours")
    (inside / "folder").symlink_to(outside)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "real/up").symlink_to("../..")
    os.mkfifo(inside / "pipe")
    descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_files_and_links_are_listed_and_nothing_else(root: int) -> None:
    assert {path: entry.mode for path, entry in walk_files(root)} == {
        b"folder": "120000",
        b"link": "120000",
        b"real/file": "100644",
        b"real/up": "120000",
    }


@pytest.mark.parametrize("path", [b"folder", b"folder/deep", b"real/up/outside", b"real/file", b"missing"])
def test_a_directory_that_became_a_link_is_not_entered(path: bytes, root: int) -> None:
    assert read_folder(root, path) is None


@pytest.mark.parametrize("path", [b"link", b"folder/secret", b"real/up/outside/secret", b"pipe", b"real", b"missing"])
def test_a_file_that_became_something_else_is_not_read(path: bytes, root: int) -> None:
    assert read_file(root, path, "100644", limit=100) is None


def test_a_link_that_became_a_file_is_not_read_as_a_link(root: int) -> None:
    assert read_file(root, b"real/file", "120000", limit=100) is None
    assert read_file(root, b"link", "120000", limit=100) is not None


def test_no_more_is_read_than_the_limit_and_one(root: int) -> None:
    assert read_file(root, b"real/file", "100644", limit=2) == b"our"


@pytest.mark.parametrize("name", [".git", ".GIT", ".git.", ".git ", "git~1", "GIT~1", ".g\u200cit", "\ufeff.git"])
def test_each_spelling_of_git_is_recognized(name: str) -> None:
    assert is_git_name(name.encode())


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "a.git", ".gitmodules"])
def test_names_that_only_begin_like_it_are_names(name: str) -> None:
    assert not is_git_name(name.encode())


REPO = 4711


def test_a_missing_directory_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")
    remove_tree(tmp_path / "gone" / "too")


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A directory nested deeper than any path or stack."""
    folder = tmp_path / "job"
    folder.mkdir()
    nest(folder, 3_000)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)  # pytest's own cleaning up cannot


def test_directories_beyond_any_path_and_any_stack_are_removed(deep: Path) -> None:
    remove_tree(deep)
    assert not deep.exists()


def test_few_directories_are_open_at_a_time(deep: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from bot.git.filesystem import remove_tree\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)); remove_tree(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(deep)], check=True)
    assert not deep.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("ours")
    folder = tmp_path / "job"
    (folder / "below").mkdir(parents=True)
    (folder / "below/link").symlink_to(outside)
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "below/pipe")
    remove_tree(folder)
    (tmp_path / "job").symlink_to(outside)
    remove_tree(tmp_path / "job")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").read_text() == "ours"


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A directory writable by any user."""
    folder = Path(tempfile.mkdtemp(prefix="codepilot-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def _make_and_remove_as(user: int, folder: Path) -> None:
    os.setuid(user)
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/b/file").write_text("x")
    for path in ("a/b/c", "a/b", "a", "."):
        (folder / path).chmod(0)
    remove_tree(folder)


def test_directories_without_permissions_are_removed(anybodys: Path) -> None:
    folder = anybodys / "job"
    folder.mkdir()
    folder.chmod(0o777)
    other = 65534 if os.geteuid() == 0 else os.geteuid()  # root needs no rights
    os.chown(folder, other, -1)
    child = multiprocessing.get_context("fork").Process(target=_make_and_remove_as, args=(other, folder))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert not folder.exists()


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """An immutable file in a job's directory."""
    folder = tmp_path / "state" / "jobs" / "evil"
    file = folder / "files" / "deep" / "frozen"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    (folder / "files" / "deep" / "other").write_text("x")
    if not freeze(file):
        pytest.skip("files cannot be made immutable here")
    yield folder
    for left in (tmp_path / "state" / "jobs").glob("**/frozen"):
        freeze(left, frozen=False)


def test_an_entry_that_cannot_be_removed_is_reported_and_the_rest_removed(frozen: Path) -> None:
    with pytest.raises(OSError, match=str(frozen)):
        remove_tree(frozen)
    assert [path.name for path in frozen.rglob("*") if path.is_file()] == ["frozen"]


async def test_a_sweep_renames_undeletable_directories_and_continues(
    frozen: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = frozen.parent / "killed"
    other.mkdir()
    workspaces = Workspaces(tmp_path / "state")
    with caplog.at_level(logging.WARNING):
        assert await workspaces.sweep(keep=()) == ("evil", "killed")
        assert await workspaces.sweep(keep=()) == ()
    left = [path.name for path in frozen.parent.iterdir()]
    [said] = caplog.messages
    assert len(left) == 1
    assert left[0].startswith(".set-aside-evil-")
    assert left[0] in said


async def test_a_job_that_nested_directories_ends_well_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a": "1"}))
    workspaces = Workspaces(tmp_path / "state")
    async with workspaces.open("job-1", REPO, source) as tree:
        nest(tree.path, 200)
        jobs = tree.path.parent.parent
    async with workspaces.open("job-1", REPO, source):
        pass
    assert list(jobs.iterdir()) == []


def test_an_undeletable_and_unmovable_directory_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "file").write_text("x")
    if not freeze(folder):
        pytest.skip("directories cannot be made immutable here")
    try:
        discard(folder)
    finally:
        freeze(folder, frozen=False)
    assert f"left as {folder}" in caplog.text
