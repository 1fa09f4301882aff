"""The workspaces in memory behave as those of git: the same edits give the same change on both."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.git.change import Change
from bot.git.errors import (
    BranchGoneError,
    ChangeError,
    CommitGoneError,
    ConflictError,
    LinkError,
    PushRejectedError,
    RepositoryEmptyError,
    WorkspaceError,
    WorkspaceGoneError,
)
from bot.git.mirror import Blob, Source
from bot.git.tree import Tree
from bot.git.workspace import WorkspaceRef, Workspaces
from tests.differences import show_difference
from tests.fakes.site import FakeFile, FakeSite, object_id, tree_id
from tests.fakes.workspaces import FakeWorkspaces
from tests.origin import Origin

REPO = 4711
URL = "https://github.com/octo/calc.git"
TEXT = "".join(f"line {number}\n" for number in range(1, 41))
FILES: dict[str, FakeFile] = {
    "calc.py": FakeFile("100644", b"def add(a, b):\n    return a + b + 1\n"),
    "long.txt": FakeFile("100644", TEXT.encode()),
    "tail.txt": FakeFile("100644", b"no newline at the end"),
    "run.sh": FakeFile("100755", b"#!/bin/sh\n"),
    "link": FakeFile("120000", b"run.sh"),
    "data.bin": FakeFile("100644", bytes(range(256))),
    "src/a.py": FakeFile("100644", b"x = 1\r\n"),
    "src/empty.py": FakeFile("100644", b""),
    ".gitignore": FakeFile("100644", b"*.pyc\nbuild/\n"),
}
MORE = {**FILES, "long.txt": FakeFile("100644", TEXT.replace("line 3\n", "line three\n").encode())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Workspaces with a repository of two commits: `main` has the first, `ahead` the second."""

    workspaces: Workspaces
    url: str
    first: str
    second: str

    def source(self, sha: str = "", ref: str = "refs/heads/main") -> Source:
        return Source(url=self.url, token="t" * 20, ref=ref, sha=sha or self.first)

    @asynccontextmanager
    async def tree(self) -> AsyncIterator[Tree]:
        async with self.workspaces.open("job", REPO, self.source()) as tree:
            yield tree


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Origin, list[str]]:
    """The repository for git, and its two commits."""
    origin, shas = Origin(tmp_path_factory.mktemp("git") / "origin"), list[str]()
    for message, files in (("First\n\nBody.", FILES), ("Second", MORE)):
        for path, entry in files.items():
            target = origin.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if entry.mode == "120000":
                target.symlink_to(os.fsdecode(entry.content))
            else:
                target.write_bytes(entry.content)
                target.chmod(0o755 if entry.mode == "100755" else 0o644)
        shas.append(origin.commit(message=message))
    origin.git("branch", "ahead", shas[1])
    origin.git("update-ref", "refs/heads/main", shas[0])
    return origin, shas


@pytest.fixture(scope="module")
def real(origin: tuple[Origin, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Side:
    """Workspaces of git; they keep nothing of a test but the fetched commits and the branch `fix`."""
    repository, (first, second) = origin
    workspaces = Workspaces(tmp_path_factory.mktemp("state"), pauses=())
    return Side(workspaces=workspaces, url=repository.url, first=first, second=second)


def fake_side(folder: Path) -> Side:
    site, shas = FakeSite(), list[str]()
    repo, mona = site.add_repo("octo/calc"), site.add_user("mona")
    for message, files in (("First\n\nBody.", FILES), ("Second", MORE)):
        commit = site.write_commit(repo, repo.head("ahead"), files, message=message, author=mona)
        site.move_branch(repo, "ahead", commit.sha)
        shas.append(commit.sha)
    site.move_branch(repo, "main", shas[0])
    return Side(workspaces=FakeWorkspaces(folder / "fake", site), url=URL, first=shas[0], second=shas[1])


@pytest.fixture
def fake(tmp_path: Path) -> Side:
    return fake_side(tmp_path)


@pytest.fixture(params=["real", "fake"])
def side(request: pytest.FixtureRequest) -> Side:
    side: Side = request.getfixturevalue(request.param)
    return side


def edit_texts(files: Path) -> None:
    (files / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (files / "long.txt").write_text(TEXT.replace("line 1\n", "").replace("line 20\n", "line twenty\nmore\n"))
    (files / "tail.txt").write_text("another end")
    (files / "new name.txt").write_text("new\n")
    (files / 'odd "\u00fc".txt').write_text("odd")
    (files / "src" / "empty.py").write_text("y = 2\n")


def edit_kinds(files: Path) -> None:
    (files / "calc.py").chmod(0o755)
    (files / "run.sh").unlink()
    (files / "link").unlink()
    (files / "link").write_text("now a file\n")
    (files / "src" / "a.py").unlink()
    (files / "src" / "empty.py").unlink()
    (files / "src").rmdir()
    (files / "src").symlink_to("calc.py")


def edit_bytes(files: Path) -> None:
    (files / "data.bin").write_bytes(bytes(range(255, -1, -1)) * 3)
    (files / "more.bin").write_bytes(b"\0" * 300)
    (files / "latin.txt").write_bytes(b"caf\xe9\n")


def edit_ignored(files: Path) -> None:
    (files / "build").mkdir()
    (files / "build" / "out").write_text("x")
    (files / "a.pyc").write_text("x")
    (files / "kept").mkdir()
    (files / "kept" / "b.txt").write_text("x")


def edit_nothing(files: Path) -> None:
    (files / "calc.py").touch()


EDITS = [edit_texts, edit_kinds, edit_bytes, edit_ignored, edit_nothing]


async def changed(side: Side, edit: Callable[[Path], None]) -> Change:
    async with side.tree() as tree:
        edit(tree.path)
        return await tree.change()


@pytest.mark.parametrize("edit", EDITS)
async def test_the_same_edits_are_the_same_change(real: Side, fake: Side, edit: Callable[[Path], None]) -> None:
    expected, change = await changed(real, edit), await changed(fake, edit)
    assert change.files == expected.files
    assert change.tree_sha == expected.tree_sha
    assert change.links == expected.links
    assert (change.touched is None) == (expected.touched is None)
    assert _without_contexts(change.patch) == _without_contexts(expected.patch) or edit is edit_bytes


def _without_contexts(patch: str) -> list[str]:
    """Leave out the functions that git names behind the hunks' lines."""
    return ["@@".join(line.split("@@")[:2]) if line.startswith("@@") else line for line in patch.split("\n")]


@pytest.mark.parametrize("edit", EDITS)
async def test_git_applies_the_patch_in_memory(
    real: Side, fake: Side, edit: Callable[[Path], None], tmp_path: Path
) -> None:
    change = await changed(fake, edit)
    patch = tmp_path / "a.patch"
    patch.write_bytes(change.patch.encode("utf-8", "surrogateescape"))
    async with real.tree() as tree:
        assert (await tree.restore(patch, expect=change.tree_sha)).files == change.files


async def test_a_patch_restores_the_change_and_a_damaged_one_does_not(side: Side, tmp_path: Path) -> None:
    change, patch = await changed(side, edit_texts), tmp_path / "a.patch"
    patch.write_bytes(change.patch.encode("utf-8", "surrogateescape"))
    async with side.tree() as tree:
        assert (await tree.restore(patch, expect=change.tree_sha)).files == change.files
        with pytest.raises(ChangeError, match="damaged"):
            await tree.restore(patch, expect="0" * 40)


async def test_a_change_without_some_files(side: Side) -> None:
    async with side.tree() as tree:
        edit_texts(tree.path)
        change = await tree.change()
        rest = await tree.exclude(change, ["calc.py"])
        assert {file.path for file in rest.files} == {file.path for file in change.files} - {"calc.py"}
        assert "calc.py" not in rest.patch


async def test_a_file_that_replaces_a_folder_cannot_stay_alone(side: Side) -> None:
    async with side.tree() as tree:
        edit_kinds(tree.path)
        change = await tree.change()
        with pytest.raises(ChangeError):
            await tree.exclude(change, ["src/a.py", "src/empty.py"])


async def test_a_change_is_replayed_onto_another_commit(side: Side) -> None:
    async with side.tree() as tree:
        text = TEXT.replace("line 20\n", "line twenty\n")
        (tree.path / "long.txt").write_text(text)
        onto = side.source(side.second, "refs/heads/ahead")
        replayed = await tree.replay(await tree.change(), onto)
        assert replayed.base_sha == side.second
        [file] = replayed.files
        assert file.content == text.replace("line 3\n", "line three\n").encode()
        assert (file.added, file.removed) == (1, 1)


@pytest.mark.parametrize("line", ["line 3\n", "line 4\n"])
async def test_a_change_of_the_same_lines_conflicts(side: Side, line: str) -> None:
    async with side.tree() as tree:
        (tree.path / "long.txt").write_text(TEXT.replace(line, "mine\n"))
        onto = side.source(side.second, "refs/heads/ahead")
        with pytest.raises(ConflictError) as caught:
            await tree.replay(await tree.change(), onto)
        assert caught.value.paths == ("long.txt",)


async def test_titles_are_those_of_the_latest_commits(side: Side) -> None:
    source = side.source(side.second, "refs/heads/ahead")
    titles = await side.workspaces.read_titles(REPO, source, most=50)
    assert titles[-1] == "First"
    assert await side.workspaces.read_titles(REPO, source, most=1) == titles[:1]


async def test_two_sides_of_a_file_are_merged_into_a_commit_of_both(side: Side) -> None:
    async with side.tree() as tree:
        (tree.path / "long.txt").write_text(TEXT.replace("line 3\n", "LINE 3\n"))
        (tree.path / "calc.py").write_text("changed\n")
        base = await tree.commit(await tree.change(), message="Base")
        await tree.push(base, branch="base", expected="", url=side.url, token="t" * 20)
    head = side.source(side.second, "refs/heads/ahead")
    merge = await side.workspaces.merge(REPO, head, side.source(base, "refs/heads/base"))
    assert merge is not None
    assert (merge.head, merge.base, merge.label) == (side.second, base, "origin/base")
    assert [(conflict.kind, conflict.paths) for conflict in merge.conflicts] == [("content", ("long.txt",))]
    assert sorted(merge.stages["long.txt"]) == [1, 2, 3]
    assert not merge.writes_workflows
    async with side.workspaces.open("merge", REPO, replace(head, sha=merge.commit)) as tree:
        assert (tree.path / "calc.py").read_text() == "changed\n"
        assert merge.find_markers(await tree.change()) == ("long.txt",)
        (tree.path / "long.txt").write_text(TEXT)
        change = await tree.change()
        assert merge.find_problems(change, "") == ()
        sha = await tree.commit(change, message="Merge", parents=(side.second, base))
        await tree.push(sha, branch="merged", expected="", url=side.url, token="t" * 20)
    merged = side.source(sha, "refs/heads/merged")
    assert await side.workspaces.merge(REPO, merged, side.source(base, "refs/heads/base")) is None


async def test_the_last_commit_is_reverted(side: Side) -> None:
    source = side.source(side.second, "refs/heads/ahead")
    async with side.workspaces.open("job", REPO, source) as tree:
        change = await tree.revert(side.second)
        assert change.tree_sha == tree_id(FILES)
        assert await tree.commit_title(side.first) == "First"
        with pytest.raises(ChangeError, match="parents"):
            await tree.revert(side.first)
    async with side.tree() as tree:
        with pytest.raises(ChangeError, match="history"):
            await tree.revert(side.second)


async def test_a_commit_is_pushed_once_and_overwrites_nothing(side: Side) -> None:
    async with side.tree() as tree:
        edit_kinds(tree.path)
        change = await tree.change()
        sha = await tree.commit(change, message="Fix it\n\nBody.")
        assert sha == await tree.commit(change, message="Fix it\n\nBody.")
        for _ in range(2):
            await tree.push(sha, branch="fix", expected="", url=side.url, token="t" * 20)
        with pytest.raises(PushRejectedError):
            await tree.push(sha, branch="ahead", expected=side.first, url=side.url, token="t" * 20)
    async with side.workspaces.open("next", REPO, side.source(sha, "refs/heads/fix")) as tree:
        assert (tree.path / "link").read_text() == "now a file\n"


@pytest.mark.parametrize(
    ("ref", "sha", "error"),
    [("refs/heads/gone", "1" * 40, BranchGoneError), ("refs/heads/main", "1" * 40, CommitGoneError)],
)
async def test_a_commit_that_is_gone(side: Side, ref: str, sha: str, error: type[WorkspaceError]) -> None:
    with pytest.raises(error) as caught:
        async with side.workspaces.open("job", REPO, side.source(sha, ref)):
            pass
    assert ref.removeprefix("refs/heads/") in str(caught.value)


async def test_an_empty_repository(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "empty")
    site = FakeSite()
    site.add_repo("octo/calc")
    sides = (
        (Workspaces(tmp_path / "state", pauses=()), origin.url),
        (FakeWorkspaces(tmp_path / "fake", site), URL),
    )
    for workspaces, url in sides:
        with pytest.raises(RepositoryEmptyError):
            async with workspaces.open("job", REPO, Source(url=url, token="", ref="refs/heads/main", sha="1" * 40)):
                pass


async def test_kept_files_are_reopened_once_and_lost_ones_are_told(side: Side) -> None:
    workspaces = side.workspaces
    async with workspaces.open("job", REPO, side.source(), keep=lambda: True) as tree:
        (tree.path / "calc.py").write_text("kept\n")
        first = tree.generation
    ref = WorkspaceRef(generation=first, repo_id=REPO, source=side.source())
    async with workspaces.reopen("job", ref, keep=lambda: True) as tree:
        assert (tree.path / "calc.py").read_text() == "kept\n"
        assert [file.path for file in (await tree.change()).files] == ["calc.py"]
        second = tree.generation
    assert second != first
    # The worker may have died before it recorded the new generation.
    for generation in (first, ""):
        async with workspaces.reopen("job", replace(ref, generation=generation), keep=lambda: True):
            pass
    with pytest.raises(WorkspaceGoneError, match="no longer exist"):
        async with workspaces.reopen("job", replace(ref, generation="other")):
            pass
    with pytest.raises(WorkspaceGoneError):
        async with workspaces.reopen("job", ref):
            pass


async def test_files_that_are_not_kept_are_removed(side: Side) -> None:
    async with side.tree() as tree:
        folder = tree.path.parent
    assert not folder.exists()
    async with side.workspaces.open("other", REPO, side.source(), keep=lambda: True):
        pass
    assert await side.workspaces.sweep({"other"}) == ()
    assert await side.workspaces.sweep(()) == ("other",)


async def test_files_are_read_without_a_checkout(side: Side) -> None:
    source, paths = side.source(), ("calc.py", "missing", "link", "src", "long.txt")
    files = await side.workspaces.read_each(REPO, source, paths, limit=100)
    shown = {path: file.content if isinstance(file, Blob) else str(file) for path, file in files.items()}
    short = side.first[:10]
    remedy = "Commit a regular file there, or nothing."
    assert shown == {
        "calc.py": FILES["calc.py"].content,
        "missing": "None",
        "link": f"`link` of commit {short} is a symbolic link. {remedy}",
        "src": f"`src` of commit {short} is no file. {remedy}",
        "long.txt": f"`long.txt` of commit {short} has {len(TEXT)} bytes; the limit is 100. Make it shorter.",
    }
    link = files["link"]
    assert isinstance(link, LinkError)
    assert link.target == "run.sh"
    assert await side.workspaces.list_blobs(REPO, source) == {path: file.sha for path, file in FILES.items()}
    found = await side.workspaces.read_many(REPO, source, ["src/*.py"], most=1, limit=300)
    assert found == {"src/a.py": Blob(id=object_id("blob", b"x = 1\r\n"), content=b"x = 1\r\n")}


async def test_commits_are_compared(side: Side) -> None:
    head = side.source(side.second, "refs/heads/ahead")
    comparison = await side.workspaces.compare(REPO, side.source(), head)
    assert comparison.fork == side.first
    shown = await show_difference(side.workspaces, side.source(), head, repo_id=REPO)
    assert "-line 3\n+line three\n" in shown


async def test_changed_files_are_carried_to_another_workspace(side: Side) -> None:
    async with side.tree() as tree:
        edit_kinds(tree.path)
        carried, expected = await tree.read_carried(), await tree.change()
    async with side.tree() as tree:
        await tree.restore_carried(carried)
        assert (await tree.change()).files == expected.files


async def test_setup_results_are_no_change(side: Side) -> None:
    async with side.tree() as tree:
        (tree.path / "installed").write_text("x")
        await tree.reset_baseline(())
        (tree.path / "calc.py").write_text("x\n")
        (tree.path / "build").mkdir()
        (tree.path / "build" / "out").write_text("x")
        change = await tree.change()
        assert [file.path for file in change.files] == ["calc.py"]
        assert await tree.list_unpublished(change) == ("build/",)
