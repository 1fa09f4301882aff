"""Replaying a change on another commit, and reverting a commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.git.change import Change
from bot.git.errors import BranchGoneError, ChangeError, ConflictError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from tests.origin import Origin, git

_LINES = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": _LINES, "b.txt": "b\n", "gone.txt": "bye\n", "dir/x": "x\n", "data.bin": b"\0\1\2" * 50})
    return origin


def at(origin: Origin, sha: str, branch: str = "main") -> Source:
    return Source(url=origin.url, token="", ref=f"refs/heads/{branch}", sha=sha)


@pytest.fixture
async def tree(origin: Origin, tmp_path: Path) -> AsyncIterator[Tree]:
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, origin.head())) as tree:
        yield tree


def statuses(change: Change) -> dict[str, str]:
    return {file.path: file.status for file in change.files}


async def test_a_change_is_replayed_onto_concurrent_changes(tree: Tree, origin: Origin) -> None:
    (tree.path / "a.txt").write_text(_LINES.replace("line 2\n", "line two\n"))
    (tree.path / "new.txt").write_text("new\n")
    (tree.path / "gone.txt").unlink()
    (tree.path / "b.txt").chmod(0o755)
    (tree.path / "data.bin").write_bytes(b"\0\3" * 50)
    change = await tree.change()
    sha = origin.commit({"a.txt": _LINES.replace("line 18\n", "line eighteen\n"), "theirs.txt": "t\n"})
    again = await tree.replay(change, at(origin, sha))
    assert again.base_sha == sha
    assert statuses(again) == statuses(change)
    contents = {file.path: file.content for file in again.files}
    both = _LINES.replace("line 2\n", "line two\n").replace("line 18\n", "line eighteen\n")
    assert contents["a.txt"] == both.encode()
    assert contents["data.bin"] == b"\0\3" * 50
    assert {file.new_mode for file in again.files if file.path == "b.txt"} == {"100755"}


async def test_the_replayed_change_can_be_committed_and_pushed_on_the_moved_branch(tree: Tree, origin: Origin) -> None:
    (tree.path / "b.txt").write_text("ours\n")
    change = await tree.change()
    sha = origin.commit({"theirs.txt": "t\n"})
    again = await tree.replay(change, at(origin, sha))
    commit = await tree.commit(again, message="Fix it")
    await tree.push(commit, branch="topic", expected="", url=origin.url, token="")
    assert origin.git("rev-parse", "topic^") == sha
    assert origin.git("diff", "--name-only", sha, "topic") == "b.txt"


async def test_it_can_be_replayed_again_when_the_head_moves_again(tree: Tree, origin: Origin) -> None:
    (tree.path / "b.txt").write_text("ours\n")
    change = await tree.change()
    for number in range(2):
        sha = origin.commit({f"theirs-{number}": "t\n"})
        change = await tree.replay(change, at(origin, sha))
        assert (change.base_sha, statuses(change)) == (sha, {"b.txt": "modified"})


async def test_a_force_pushed_head_brings_none_of_the_old_heads_commits_back(origin: Origin, tmp_path: Path) -> None:
    kept = origin.head()
    dropped = origin.commit({"secret.txt": "taken back\n", "a.txt": _LINES + "dropped\n"})
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, dropped)) as tree:
        (tree.path / "b.txt").write_text("ours\n")
        change = await tree.change()
        origin.git("reset", "--quiet", "--hard", kept)
        sha = origin.commit({"theirs.txt": "t\n"})
        again = await tree.replay(change, at(origin, sha))
    assert statuses(again) == {"b.txt": "modified"}


async def test_replaying_an_identical_change_is_empty(tree: Tree, origin: Origin) -> None:
    (tree.path / "b.txt").write_text("ours\n")
    change = await tree.change()
    assert not await tree.replay(change, at(origin, origin.commit({"b.txt": "ours\n"})))


@pytest.mark.parametrize("case", ["lines", "deleted", "added", "binary", "folder"])
async def test_a_change_that_does_not_fit_is_refused_by_path(case: str, tree: Tree, origin: Origin) -> None:
    match case:
        case "lines":
            (tree.path / "b.txt").write_text("ours\n")
            path, sha = "b.txt", origin.commit({"b.txt": "theirs\n"})
        case "deleted":
            (tree.path / "gone.txt").unlink()
            path, sha = "gone.txt", origin.commit({"gone.txt": "still of use\n"})
        case "added":
            (tree.path / "new.txt").write_text("ours\n")
            path, sha = "new.txt", origin.commit({"new.txt": "theirs\n"})
        case "binary":
            (tree.path / "data.bin").write_bytes(b"\0\3" * 50)
            path, sha = "data.bin", origin.commit({"data.bin": b"\0\4" * 50})
        case _:
            (tree.path / "new").mkdir()
            (tree.path / "new/file").write_text("ours\n")
            path, sha = "new", origin.commit({"new": "theirs\n"})
    change = await tree.change()
    with pytest.raises(ConflictError, match=path) as caught:
        await tree.replay(change, at(origin, sha))
    assert caught.value.paths
    assert caught.value.paths[0].startswith(path)


async def test_a_change_never_moves_to_a_file_that_only_looks_alike(tree: Tree, origin: Origin) -> None:
    (tree.path / "a.txt").write_text(_LINES.replace("line 2\n", "line two\n"))
    change = await tree.change()
    origin.git("mv", "a.txt", "renamed.txt")
    with pytest.raises(ConflictError, match=r"`renamed\.txt`"):
        await tree.replay(change, at(origin, origin.commit({})))


async def test_a_replay_touches_neither_files_nor_the_change(tree: Tree, origin: Origin) -> None:
    (tree.path / "b.txt").write_text("ours\n")
    change = await tree.change()
    await tree.replay(change, at(origin, origin.commit({"theirs.txt": "t\n"})))
    assert not (tree.path / "theirs.txt").exists()
    assert await tree.change() == change


async def test_the_new_head_stays_in_the_mirror_as_long_as_the_workspace(origin: Origin, tmp_path: Path) -> None:
    mirror = tmp_path / "state/mirrors/1.git"
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, origin.head())) as tree:
        (tree.path / "b.txt").write_text("ours\n")
        change, base = await tree.change(), origin.head()
        sha = origin.commit({"theirs.txt": "t\n"})
        again = await tree.replay(change, at(origin, sha))
        origin.git("reset", "--quiet", "--hard", base)
        git(mirror, "update-ref", "-d", git(mirror, "for-each-ref", "--format=%(refname)", "refs/mirror"))
        git(mirror, "gc", "--quiet", "--prune=now")
        commit = await tree.commit(again, message="Fix it")
        assert git(tree.git_dir, "rev-parse", f"{commit}^") == sha
    assert git(mirror, "for-each-ref", "refs/keep") == ""


async def test_a_missing_head_is_reported(tree: Tree, origin: Origin) -> None:
    (tree.path / "b.txt").write_text("ours\n")
    with pytest.raises(BranchGoneError, match="topic"):
        await tree.replay(await tree.change(), at(origin, "1" * 40, "topic"))


async def test_a_commit_is_reverted_completely(origin: Origin, tmp_path: Path) -> None:
    before = origin.git("rev-parse", "HEAD^{tree}")
    origin.git("rm", "--quiet", "gone.txt")
    sha = origin.commit({"a.txt": "rewritten\n", "new.txt": "new\n"})
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, sha)) as tree:
        change = await tree.revert(sha)
    assert (change.base_sha, change.tree_sha) == (sha, before)
    assert statuses(change) == {"a.txt": "modified", "gone.txt": "added", "new.txt": "deleted"}


async def test_an_earlier_commit_is_reverted_below_later_ones(origin: Origin, tmp_path: Path) -> None:
    ours = origin.commit({"a.txt": _LINES.replace("line 2\n", "line two\n"), "new.txt": "new\n"})
    head = origin.commit({"a.txt": _LINES.replace("line 2\n", "line two\n") + "line 20\n", "theirs.txt": "t\n"})
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, head)) as tree:
        change = await tree.replay(await tree.revert(ours), at(origin, head))
    assert statuses(change) == {"a.txt": "modified", "new.txt": "deleted"}
    assert {file.content for file in change.files if file.path == "a.txt"} == {(_LINES + "line 20\n").encode()}


async def test_an_impossible_revert_is_reported(origin: Origin, tmp_path: Path) -> None:
    first = origin.git("rev-list", "--max-parents=0", "HEAD")
    head = origin.head()
    origin.git("checkout", "--quiet", "-b", "other")
    elsewhere = origin.commit({"b.txt": "other\n"})
    origin.git("checkout", "--quiet", "main")
    origin.git("merge", "--quiet", "--no-ff", "-m", "Merge", "other")
    merge = origin.head()
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, merge)) as tree:
        with pytest.raises(ChangeError, match="has 2 parents"):
            await tree.revert(merge)
        with pytest.raises(ChangeError, match="has 0 parents"):
            await tree.revert(first)
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, head)) as tree:
        for sha in (elsewhere, "1" * 40):
            with pytest.raises(ChangeError, match=f"{sha[:10]}.*{head[:10]}"):
                await tree.revert(sha)


async def test_the_title_of_a_commit_is_read(origin: Origin, tmp_path: Path) -> None:
    sha = origin.commit({"a.txt": "1"}, message="Fix it\n\nBecause.")
    async with Workspaces(tmp_path / "state").open("job", 1, at(origin, sha)) as tree:
        assert await tree.commit_title(sha) == "Fix it"
