"""The agent's work as a change, a commit and a push."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest
from aiohttp import web

from bot.git import baseline
from bot.git.errors import ChangeError, PushFailedError, PushRejectedError
from bot.git.filesystem import Folder
from bot.git.mirror import Source
from bot.git.tree import INSEPARABLE, Tree
from bot.git.workspace import Workspaces
from tests.origin import Origin
from tests.tls_hosts import authority, serving
from tests.waiting import eventually


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.path.joinpath("tool.sh").write_text("#!/bin/sh\n")
    origin.path.joinpath("tool.sh").chmod(0o755)
    origin.commit(
        {
            "keep.txt": "same\n",
            "edit.txt": "one\ntwo\n",
            "drop.txt": "bye\n",
            "dir/file": "x\n",
            ".gitignore": "build/\n*.pyc\n",
        }
    )
    return origin


@pytest.fixture
async def tree(origin: Origin, tmp_path: Path) -> AsyncIterator[Tree]:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        yield tree


async def test_each_kind_of_change_is_detected(tree: Tree) -> None:
    (tree.path / "edit.txt").write_text("one\n2\nthree\n")
    (tree.path / "drop.txt").unlink()
    (tree.path / "new.bin").write_bytes(b"\0\1\2")
    (tree.path / "keep.txt").chmod(0o755)
    (tree.path / "link").symlink_to("edit.txt")
    change = await tree.change()
    seen = {f.path: (f.status, f.old_mode, f.new_mode, f.added, f.removed, f.binary) for f in change.files}
    assert seen == {
        "drop.txt": ("deleted", "100644", "", 0, 1, False),
        "edit.txt": ("modified", "100644", "100644", 2, 1, False),
        "keep.txt": ("modified", "100644", "100755", 0, 0, False),
        "link": ("added", "", "120000", 1, 0, False),
        "new.bin": ("added", "", "100644", 0, 0, True),
    }
    contents = {f.path: f.content for f in change.files}
    assert contents["edit.txt"] == b"one\n2\nthree\n"
    assert contents["link"] == b"edit.txt"
    assert contents["drop.txt"] is None


async def test_a_changed_link_includes_all_links_of_the_tree(origin: Origin, tmp_path: Path) -> None:
    (origin.path / "old").symlink_to("dir/../edit.txt")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"more.txt": "x\n"}))
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "edit.txt").write_text("2\n")
        assert not (await tree.change()).links
        (tree.path / "dir/odd\n\udcff").symlink_to("no\udcfe")
        assert (await tree.change()).links == {"dir/odd\n\udcff": "no\udcfe", "old": "dir/../edit.txt"}


async def test_the_patch_gives_the_same_tree_when_applied(tree: Tree, origin: Origin) -> None:
    (tree.path / "edit.txt").write_bytes(b"one\r\n\xff\n")
    (tree.path / "new.bin").write_bytes(bytes(range(256)) * 4)
    (tree.path / "dir/file").unlink()
    change = await tree.change()
    origin.git("apply", "--index", str(change.patch_file))
    assert origin.git("write-tree") == change.tree_sha


async def test_ignored_files_are_excluded_unless_tracked(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"build/tracked.txt": "1\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "build/tracked.txt").write_text("2\n")
        (tree.path / "build/out.o").write_text("junk")
        (tree.path / "src/__pycache__").mkdir(parents=True)
        (tree.path / "src/__pycache__/a.pyc").write_text("junk")
        (tree.path / "src/.gitignore").write_text("secret\n")
        (tree.path / "src/secret").write_text("s")
        (tree.path / "sub/build").mkdir(parents=True)
        (tree.path / "sub/build/x").write_text("junk")
        change = await tree.change()
    assert [f.path for f in change.files] == ["build/tracked.txt", "src/.gitignore"]


async def test_a_directory_and_a_file_may_change_places(tree: Tree) -> None:
    (tree.path / "dir/file").unlink()
    (tree.path / "dir").rmdir()
    (tree.path / "dir").write_text("now a file\n")
    (tree.path / "edit.txt").unlink()
    (tree.path / "edit.txt").mkdir()
    (tree.path / "edit.txt/inner").write_text("now a directory\n")
    change = await tree.change()
    assert {f.path: f.status for f in change.files} == {
        "dir": "added",
        "dir/file": "deleted",
        "edit.txt": "deleted",
        "edit.txt/inner": "added",
    }


async def test_files_rewritten_with_the_same_bytes_are_no_change(tree: Tree) -> None:
    content = (tree.path / "edit.txt").read_bytes()
    (tree.path / "edit.txt").unlink()
    (tree.path / "edit.txt").write_bytes(content)
    assert not await tree.change()


async def test_strange_names_survive(tree: Tree) -> None:
    names = ["with space", "quote\"'", "new\nline", "back\\slash", "é", ":(exclude)x", "-n"]
    for name in names:
        (tree.path / name).write_text("x")
    (tree.path / os.fsdecode(b"latin-\xe9")).write_text("x")
    change = await tree.change()
    assert {f.path for f in change.files} == {*names, os.fsdecode(b"latin-\xe9")}


async def test_a_change_can_be_read_again_after_more_edits(tree: Tree) -> None:
    (tree.path / "edit.txt").write_text("1\n")
    assert [f.path for f in (await tree.change()).files] == ["edit.txt"]
    (tree.path / "edit.txt").write_text("one\ntwo\n")
    (tree.path / "other").write_text("1\n")
    assert [f.path for f in (await tree.change()).files] == ["other"]


async def test_a_missing_workspace_is_reported(tree: Tree) -> None:
    tree.path.rename(tree.path.with_name("elsewhere"))
    with pytest.raises(ChangeError, match="cannot be read"):
        await tree.change()


async def test_the_directory_stays_open_for_the_thread_that_reads_it_when_the_job_is_cancelled(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, cancelled, was_open = Event(), Event(), list[bool]()

    def read_folder(root: int, path: bytes) -> Folder | None:
        begun.set()
        cancelled.wait(20)
        was_open.append(Path(f"/proc/self/fd/{root}").resolve() == tree.path.resolve())
        return None

    monkeypatch.setattr(baseline, "read_folder", read_folder)
    changing = asyncio.create_task(tree.change())
    await eventually(begun.is_set)
    changing.cancel()
    await asyncio.wait([changing])
    cancelled.set()
    assert await eventually(lambda: was_open) == [True]


async def test_submodules_stay_as_they_are(origin: Origin, tmp_path: Path) -> None:
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{origin.head()},vendor/lib")
    origin.git("commit", "--quiet", "--message", "Add a submodule")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        assert list((tree.path / "vendor/lib").iterdir()) == []
        (tree.path / "vendor/lib/planted").write_text("x")
        (tree.path / "edit.txt").write_text("x\n")
        change = await tree.change()
    assert [f.path for f in change.files] == ["edit.txt"]


async def test_the_same_change_is_the_same_commit_every_time(tree: Tree, origin: Origin) -> None:
    (tree.path / "edit.txt").write_text("x\n")
    change = await tree.change()
    first = await tree.commit(change, message="Fix it\n\nBecause.")
    assert await tree.commit(change, message="Fix it\n\nBecause.") == first
    await tree.push(first, branch="codepilot/issue-1-x", expected="", url=origin.url, token="")
    await tree.push(first, branch="codepilot/issue-1-x", expected="", url=origin.url, token="")
    assert origin.head("codepilot/issue-1-x") == first
    assert origin.head(f"{first}^") == tree.base_sha
    assert origin.git("log", "-1", "--format=%an <%ae>|%s|%b|%ct", first) == (
        "codepilot[bot] <codepilot[bot]@users.noreply.github.com>|Fix it|Because.|1700000001"
    )


async def test_a_branch_that_moved_is_never_overwritten(tree: Tree, origin: Origin) -> None:
    (tree.path / "edit.txt").write_text("x\n")
    sha = await tree.commit(await tree.change(), message="Fix it")
    theirs = origin.commit({"edit.txt": "a person was faster\n"})
    with pytest.raises(PushRejectedError, match="`main`"):
        await tree.push(sha, branch="main", expected=tree.base_sha, url=origin.url, token="")
    assert origin.head("main") == theirs


async def test_a_push_to_a_server_that_is_not_trusted_names_the_setting(tree: Tree, tmp_path: Path) -> None:
    (tree.path / "edit.txt").write_text("x\n")
    sha = await tree.commit(await tree.change(), message="Fix it")
    tree._pauses = ()
    async with serving(web.Application(), authority(tmp_path, "localhost").server) as port:
        url = f"https://localhost:{port}/octo/calc.git"
        with pytest.raises(PushFailedError, match="CODEPILOT_CA_FILE"):
            await tree.push(sha, branch="codepilot/issue-1-x", expected="", url=url, token="")


async def test_excluded_files_are_unchanged_in_the_rest_of_a_change(tree: Tree) -> None:
    (tree.path / "edit.txt").write_text("one\nthree\n")
    (tree.path / "drop.txt").unlink()
    (tree.path / "tool.sh").chmod(0o644)
    (tree.path / "new\tname ü.txt").write_text("new\n")
    (tree.path / "keep.txt").write_text("other\n")
    change = await tree.change()
    rest = await tree.exclude(change, {"edit.txt", "drop.txt", "tool.sh", "new\tname ü.txt"})
    assert [(f.path, f.content) for f in rest.files] == [("keep.txt", b"other\n")]
    assert "edit.txt" not in rest.patch
    assert rest.base_sha == change.base_sha
    assert not await tree.exclude(change, {f.path for f in change.files})
    assert await tree.exclude(change, ()) == change


@pytest.mark.parametrize("taken", ["dir", "dir/file"])
async def test_a_change_that_depends_on_an_excluded_file_is_reported(tree: Tree, taken: str) -> None:
    (tree.path / "dir/file").unlink()
    (tree.path / "dir").rmdir()
    (tree.path / "dir").write_text("now a file\n")
    change = await tree.change()
    if taken == "dir":
        assert [f.path for f in (await tree.exclude(change, {taken})).files] == ["dir/file"]
        return
    with pytest.raises(ChangeError, match=INSEPARABLE):
        await tree.exclude(change, {taken})


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("path", ["edit.txt", "tool.sh", "new/AGENTS.md"])
async def test_one_file_is_edited_without_a_checkout(
    origin: Origin, tmp_path: Path, path: str, *, has_files: bool
) -> None:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source, has_files=has_files) as tree:
        assert (tree.path / "edit.txt").exists() is has_files
        change = await tree.edit(path, b"one\r\nnew\n")
        assert not (tree.path / "new").exists()
        [file] = change.files
        mode = "100755" if path == "tool.sh" else "100644"
        assert (file.path, file.new_mode, file.content) == (path, mode, b"one\r\nnew\n")
        assert "+new" in change.patch
        sha = await tree.commit(change, message="Edit\n")
        await tree.push(sha, branch="topic", expected="", url=origin.url, token="")
    assert origin.git("diff", "--name-only", "main", "topic").split() == [path]
    assert origin.git("show", f"topic:{path}").split() == ["one", "new"]
