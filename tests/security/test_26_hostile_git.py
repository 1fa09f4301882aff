"""Threat 26: the bot's own git reads no config, attribute or hook that the workspace can write."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bot.git.errors import ConflictError
from bot.git.lfs import format_pointer
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from tests.differences import show_difference
from tests.origin import Origin, git
from tests.security.git_traps import PLANTS, Trap, attributes, bare_repository, git_folder, hostile_config


@pytest.fixture
async def tree(origin: Origin, tmp_path: Path) -> AsyncIterator[Tree]:
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        yield tree


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_nothing_planted_in_the_workspace_runs(
    plant: Callable[[Path, Trap], None], tree: Tree, trap: Trap, origin: Origin
) -> None:
    plant(tree.path, trap)
    (tree.path / "a.txt").write_text("2\n")
    change = await tree.change()
    sha = await tree.commit(change, message="Fix it")
    await tree.push(sha, branch="fix", expected="", url=origin.url, token="")
    assert not trap.sprung
    assert {f.path: f.content for f in change.files}["a.txt"] == b"2\n"
    parts = {part.casefold() for f in change.files for part in f.path.split("/")}
    assert not parts & {".git", "git~1"}


async def test_ordinary_git_does_fall_for_it(tree: Tree, trap: Trap) -> None:
    """Control: the traps work."""
    git_folder(tree.path, trap)
    attributes(tree.path, trap)
    command = ["git", "-C", str(tree.path), "-c", "safe.directory=*", "add", "--all"]
    await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, env={"PATH": os.defpath})
    assert trap.sprung


async def test_nothing_in_the_operators_home_or_environment_runs(
    origin: Origin, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text(hostile_config(trap))
    for name in ("GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_EDITOR"):
        monkeypatch.setenv(name, str(trap.program))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={trap.program}'")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "a.txt").write_text("2\n")
        await tree.commit(await tree.change(), message="Fix it")
    assert not trap.sprung


async def test_attributes_in_the_repository_neither_run_nor_rewrite_anything(
    origin: Origin, trap: Trap, tmp_path: Path
) -> None:
    attributes(origin.path, trap)
    (origin.path / "crlf.txt").write_bytes(b"a\r\nb\n$Id$\n")
    for name in ("crlf.txt", ".gitattributes"):
        blob = git(origin.path, "hash-object", "-w", "--no-filters", name)
        git(origin.path, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    sha = git(origin.path, "commit-tree", git(origin.path, "write-tree"), "-p", "HEAD", "-m", "Plain bytes")
    git(origin.path, "update-ref", "refs/heads/main", sha)
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        assert (tree.path / "crlf.txt").read_bytes() == b"a\r\nb\n$Id$\n"
        attributes(tree.path, trap)
        (tree.path / "crlf.txt").write_bytes(b"a\r\nc\n$Id: x$\n")
        contents = {f.path: f.content for f in (await tree.change()).files}
    # `filter=lfs` is done by the bot itself, and no other attribute.
    assert contents["crlf.txt"] == format_pointer(hashlib.sha256(b"a\r\nc\n$Id: x$\n").hexdigest(), 13)
    assert not trap.sprung


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_planted_files_do_not_run_during_replay_or_revert(
    plant: Callable[[Path, Trap], None], origin: Origin, trap: Trap, tmp_path: Path
) -> None:
    ours = origin.commit({".gitattributes": "* filter=evil diff=evil merge=evil\n", "a.txt": "1\n2\n3\n4\n5\n"})
    workspaces = Workspaces(tmp_path / "state")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=ours)
    async with workspaces.open("job", 1, source, keep=lambda: True) as tree:
        plant(tree.path, trap)
        (tree.path / "a.txt").write_text("1\n2\n3\n4\nfive\n")
    async with workspaces.reopen("job") as tree:
        change = await tree.change()
        theirs = origin.commit({"a.txt": "one\n2\n3\n4\n5\n"})
        moved = Source(url=origin.url, token="", ref="refs/heads/main", sha=theirs)
        again = await tree.replay(change, moved)
        back = await tree.revert(ours)
        shown = await show_difference(workspaces, source, moved)
    assert not trap.sprung
    assert {f.path: f.content for f in again.files}["a.txt"] == b"one\n2\n3\n4\nfive\n"
    assert {f.path: f.content for f in back.files}["a.txt"] == b"1\n"
    assert "-1\n+one\n" in shown


@pytest.mark.parametrize("driver", ["union", "binary", "evil", "ours"])
async def test_attributes_in_the_repository_choose_no_way_to_merge(
    driver: str, origin: Origin, trap: Trap, tmp_path: Path
) -> None:
    sha = origin.commit({".gitattributes": f"* merge={driver} -diff\n", "a.txt": "1\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / "a.txt").write_text("ours\n")
        change = await tree.change()
        moved = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a.txt": "theirs\n"}))
        with pytest.raises(ConflictError, match=r"a\.txt"):
            await tree.replay(change, moved)
        shown = await show_difference(Workspaces(tmp_path / "state"), source, moved)
    assert "-1\n+theirs" in shown
    assert not trap.sprung


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_ignore_rules_that_are_no_file_are_no_rules(kind: str, tree: Tree, tmp_path: Path) -> None:
    rules = tree.path / "src/.gitignore"
    if kind == "link":
        (tmp_path / "rules").write_text("*\n")
        rules.symlink_to(tmp_path / "rules")
    elif kind == "pipe":
        os.mkfifo(rules)
    else:
        rules.mkdir()
    (tree.path / "src/new.py").write_text("y = 2\n")
    assert "src/new.py" in {f.path for f in (await tree.change()).files}


async def test_a_directory_swapped_for_a_link_shows_nothing_from_outside(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("b.py", "secret.txt"):
        (outside / name).write_text("TOP SECRET")
    done = threading.Event()

    # Here by luck of timing; tests/bot/git/test_filesystem.py holds the same still.
    def swap() -> None:
        here, aside = tree.path / "src", tree.path / "aside"
        while not done.is_set():
            here.rename(aside)
            here.symlink_to(outside)
            here.unlink()
            aside.rename(here)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(25):
            change = await tree.change()
            assert "TOP SECRET" not in change.patch
    finally:
        done.set()
        swapper.join()


async def test_the_trusted_git_directory_is_not_in_what_the_agent_sees(tree: Tree) -> None:
    assert not tree.git_dir.is_relative_to(tree.path)
    assert tree.git_dir.parent.stat().st_mode & 0o077 == 0


async def test_a_repository_that_is_not_called_so_is_no_part_of_a_change(tree: Tree, trap: Trap) -> None:
    (tree.path / "deps").mkdir()
    for place in (tree.path, tree.path / "deps"):
        bare_repository(place, trap)
        (place / "bare/objects/keep").write_text("")
        (place / "bare/refs/keep").write_text("")
    (tree.path / "deps/bare/HEAD").rename(tree.path / "deps/bare/Head")
    (tree.path / "linked").mkdir()
    for name in ("HEAD", "commondir", "config"):
        (tree.path / "linked" / name).write_text("../bare")
    for harmless in ("HEAD", "docs/HEAD", "docs/refs/a", "objects/a", "refs/a"):
        (tree.path / harmless).parent.mkdir(exist_ok=True, parents=True)
        (tree.path / harmless).write_text("x")
    change = await tree.change()
    assert [file.path for file in change.files] == ["HEAD", "docs/HEAD", "docs/refs/a", "objects/a", "refs/a"]
    [said] = change.notes
    assert "`bare`, `deps/bare`, `linked`" in said


async def test_a_repository_is_not_completed_either(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"bare/HEAD": "ref: refs/heads/main\n", "bare/refs/keep": "", "bare/config": ""})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "elsewhere").open("j", 1, source) as tree:
        (tree.path / "bare/objects").mkdir()
        (tree.path / "bare/objects/keep").write_text("")
        assert not await tree.change()
