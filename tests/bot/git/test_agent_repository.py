"""The agent's own repository in a workspace; the ordinary git is the judge."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from bot.git import agent_repository
from bot.git.agent_repository import OBJECTS, Refs
from bot.git.blobs import open_blobs
from bot.git.lfs import format_pointer
from bot.git.mirror import Source
from bot.git.snapshots import Snapshots
from bot.git.tree import Tree
from bot.git.workspace import WorkspaceRef, Workspaces
from tests.origin import Origin, git

REPO = 4711


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    """Without a sandbox, the objects are where the mirror has them."""
    return Workspaces(tmp_path / "state", shows_objects=False)


def source(origin: Origin, sha: str, ref: str = "refs/heads/main") -> Source:
    return Source(url=origin.url, token="", ref=ref, sha=sha)


def pull(origin: Origin) -> tuple[Source, Refs]:
    """Make a pull request of two commits into a base that went on; tag the commit before both."""
    origin.commit({"src/a.py": "x = 1\n", "b.txt": "1\n"}, "Begin")
    origin.git("tag", "--annotate", "--message", "First", "v1.0")
    origin.git("checkout", "--quiet", "-b", "topic")
    origin.commit({"src/a.py": "x = 2\n"}, "Count")
    head = origin.commit({"src/a.py": "x = 3\n"}, "Count on")
    origin.git("update-ref", "refs/pull/7/head", head)
    origin.git("checkout", "--quiet", "main")
    base = origin.commit({"b.txt": "2\n"}, "Go on")
    return source(origin, head, "refs/pull/7/head"), Refs(branch="topic", base=source(origin, base))


async def test_it_has_history_tags_the_base_branch_and_the_merge_base(origin: Origin, workspaces: Workspaces) -> None:
    head, refs = pull(origin)
    async with workspaces.open("job", REPO, head, refs=refs) as tree:
        assert git(tree.path, "rev-parse", "--abbrev-ref", "HEAD") == "topic"
        assert git(tree.path, "rev-parse", "HEAD", "origin/topic") == f"{head.sha}\n{head.sha}"
        assert git(tree.path, "status", "--porcelain") == ""
        assert git(tree.path, "log", "--format=%s") == "Count on\nCount\nBegin"
        assert git(tree.path, "describe") == f"v1.0-2-g{head.sha[:7]}"
        assert git(tree.path, "log", "--format=%s", "HEAD..origin/main") == "Go on"
        assert git(tree.path, "diff", "--name-only", "origin/main...HEAD") == "src/a.py"
        assert git(tree.path, "blame", "--porcelain", "src/a.py").split()[0] == head.sha
        assert tree.repository is not None
        fork = git(tree.path, "merge-base", "HEAD", "origin/main")
        assert tree.repository.summary == f"its history, 1 tag and origin/main (merge base {fork[:10]})"
        assert git(tree.path, "fsck", "--strict") == ""


async def test_what_the_agent_does_there_is_no_change_and_hides_none(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a": "1\n", "b": "1\n"})
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        git(tree.path, "checkout", "--quiet", "-b", "own")
        (tree.path / "a").write_text("2\n")
        git(tree.path, "commit", "--quiet", "--all", "--message", "Mine")
        git(tree.path, "update-index", "--assume-unchanged", "b")
        (tree.path / "b").write_text("2\n")
        assert git(tree.path, "status", "--porcelain") == ""
        change = await tree.change()
    assert {file.path: file.content for file in change.files} == {"a": b"2\n", "b": b"2\n"}
    assert change.base_sha == sha


async def test_git_finds_an_edit_of_the_same_size(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a": "1\n"})
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        (tree.path / "a").write_text("2\n")
        assert git(tree.path, "status", "--porcelain") == "M a"


async def test_a_file_in_git_lfs_stays_a_pointer(origin: Origin, workspaces: Workspaces) -> None:
    pointer = format_pointer("4d7a" * 16, 12_345)
    sha = origin.commit({".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "a.bin": pointer})
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        (tree.path / "a.bin").touch()  # git reads it again
        assert git(tree.path, "status", "--porcelain") == ""
        (tree.path / "a.bin").unlink()
        git(tree.path, "checkout", "--", "a.bin")
        assert (tree.path / "a.bin").read_bytes() == pointer


async def test_a_fork_has_no_branch_on_the_remote(origin: Origin, workspaces: Workspaces) -> None:
    head, refs = pull(origin)
    refs = Refs(branch="main", base=refs.base, is_of_fork=True)
    async with workspaces.open("job", REPO, head, refs=refs) as tree:
        lines = git(tree.path, "for-each-ref", "--format=%(refname)").splitlines()
    assert lines == ["refs/heads/main", "refs/remotes/origin/main", "refs/tags/v1.0"]


@pytest.mark.parametrize("name", ['quo"te', "a#b;c", "ünï/cödé", "-dash/-x", "HEAD", "x]"])
async def test_any_branch_that_git_accepts_can_be_checked_out(
    origin: Origin, workspaces: Workspaces, name: str
) -> None:
    sha = origin.commit({"a": "1\n"})
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch=name)) as tree:
        assert git(tree.path, "symbolic-ref", "HEAD") == f"refs/heads/{name}"
        assert git(tree.path, "config", f"branch.{name}.merge") == f"refs/heads/{name}"
        assert git(tree.path, "rev-parse", "HEAD", f"refs/remotes/origin/{name}") == f"{sha}\n{sha}"


async def test_a_branch_without_common_history_is_named_so(origin: Origin, workspaces: Workspaces) -> None:
    head, _ = pull(origin)
    origin.git("checkout", "--quiet", "--orphan", "other")
    base = source(origin, origin.commit(), "refs/heads/other")
    async with workspaces.open("job", REPO, head, refs=Refs(branch="topic", base=base)) as tree:
        assert tree.repository is not None
        assert tree.repository.summary.endswith("and origin/other (no common history)")


async def test_a_base_branch_that_is_gone_is_left_out(
    origin: Origin, workspaces: Workspaces, caplog: pytest.LogCaptureFixture
) -> None:
    head, _ = pull(origin)
    gone = source(origin, "0123456789" * 4, "refs/heads/gone")
    async with workspaces.open("job", REPO, head, refs=Refs(branch="topic", base=gone)) as tree:
        assert git(tree.path, "branch", "--remotes", "--format=%(refname:short)") == "origin/topic"
    assert "`gone` no longer exists" in caplog.text


async def test_many_tags_are_listed_up_to_a_limit(
    origin: Origin, workspaces: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = origin.commit({"a": "1\n"})
    origin.git("update-ref", "--stdin", stdin="".join(f"create refs/tags/v{n:04} {sha}\n" for n in range(300)))
    line = len(f"{sha} refs/tags/v0000\n")
    monkeypatch.setattr("bot.git.agent_repository.MAX_TAGS_BYTES", 250 * line + 20)
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        assert git(tree.path, "tag").split() == [f"v{n:04}" for n in range(250)]
        assert tree.repository is not None
        assert tree.repository.tags == 250
    mirror = tmp_path / "state/mirrors" / f"{REPO}.git"
    assert list((mirror / "refs/tags").iterdir()) == []
    assert len(git(mirror, "tag").split()) == 300


async def test_a_deleted_tag_does_not_block_one_below_its_name(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a.txt": "1"})
    origin.git("tag", "v1")
    origin.git("tag", "kept")
    async with workspaces.open("first", 1, Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)):
        pass
    origin.git("tag", "--delete", "v1")
    sha = origin.commit({"a.txt": "2"})
    origin.git("tag", "v1/a")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with workspaces.open("second", 1, source, refs=Refs(branch="main")) as tree:
        assert git(tree.path, "tag").split() == ["kept", "v1/a"]


async def test_a_malformed_tag_is_left_out(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a": "1\n"})
    bad = f"object {sha}\ntype commit\ntag v1\ntagger Mona <mona@example.com> 1 +0000"  # its header has no end
    tag = git(origin.path, "hash-object", "-t", "tag", "-w", "--literally", "--stdin", stdin=bad)
    origin.git("update-ref", "refs/tags/v1", tag)
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        assert git(tree.path, "log", "--format=%s") == "Change"
        assert tree.repository is not None
        assert tree.repository.tags == 0


async def test_the_base_commit_is_protected_until_the_job_ends(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    head, refs = pull(origin)
    mirror = tmp_path / "state/mirrors" / f"{REPO}.git"
    async with workspaces.open("job", REPO, head, refs=refs):
        kept = git(mirror, "for-each-ref", "--format=%(refname) %(objectname)", "refs/keep").splitlines()
        assert refs.base is not None
        assert kept == [f"refs/keep/job {head.sha}", f"refs/keep/job.base {refs.base.sha}"]
    assert git(mirror, "for-each-ref", "refs/keep") == ""


async def test_a_kept_repository_is_as_the_agent_left_it(origin: Origin, workspaces: Workspaces) -> None:
    head, refs = pull(origin)
    async with workspaces.open("job", REPO, head, refs=refs, keep=lambda: True) as tree:
        (tree.path / "b.txt").write_text("3\n")
        git(tree.path, "commit", "--quiet", "--all", "--message", "Mine")
        ref = WorkspaceRef(generation=tree.generation, repo_id=REPO, source=head)
    async with workspaces.reopen("job", ref, refs=refs) as tree:
        assert git(tree.path, "log", "--format=%s", "--max-count=1") == "Mine"
        assert tree.repository is not None


async def test_another_machine_has_the_commits_content_in_the_files(origin: Origin, tmp_path: Path) -> None:
    head, refs = pull(origin)
    snapshots = Snapshots(blobs=open_blobs((tmp_path / "store").as_uri()), key=bytes(32))
    first, second = (
        Workspaces(tmp_path / name, snapshots=snapshots, shows_objects=False) for name in ("first", "second")
    )
    async with first.open("job", REPO, head, refs=refs, keep=lambda: True) as tree:
        (tree.path / "b.txt").write_text("3\n")
        git(tree.path, "commit", "--quiet", "--all", "--message", "Mine")
        ref = WorkspaceRef(generation=tree.generation, repo_id=REPO, source=head)
    async with second.reopen("job", ref, refs=refs) as tree:
        assert git(tree.path, "log", "--format=%s", "--max-count=1") == "Count on"
        assert git(tree.path, "status", "--porcelain") == "M b.txt"


async def test_the_proof_sees_the_change_committed(origin: Origin, workspaces: Workspaces) -> None:
    head, refs = pull(origin)
    async with workspaces.open("job", REPO, head, refs=refs) as tree:
        (tree.path / "b.txt").unlink()
        (tree.path / "new").write_text("n\n")
        git(tree.path, "commit", "--quiet", "--allow-empty", "--message", "A commit of the agent's")
        (tree.path / ".git/info/exclude").write_text("new\n")
        await tree.commit_in_repository(await tree.change())
        assert git(tree.path, "status", "--porcelain") == ""
        assert git(tree.path, "rev-parse", "HEAD~1") == head.sha
        assert git(tree.path, "ls-files") == "new\nsrc/a.py"
        assert git(tree.path, "show", "HEAD:new") == "n"


def _bare_link(tree: Tree, outside: Path) -> None:
    (tree.path / ".git").rename(outside / "git")
    (tree.path / ".git").symlink_to(outside / "git")


def _file(tree: Tree, outside: Path) -> None:
    (tree.path / ".git").rename(outside / "git")
    (tree.path / ".git").write_text(f"gitdir: {outside}/git\n")


def _locked(tree: Tree, outside: Path) -> None:
    (outside / "git").mkdir()
    (outside / "git/HEAD").write_text("the outside's\n")
    (tree.path / ".git/objects/link").symlink_to(outside)
    (tree.path / ".git/refs").chmod(0)
    (tree.path / ".git").chmod(0)


def _gone(tree: Tree, outside: Path) -> None:
    (tree.path / ".git").rename(outside / "git")


@pytest.mark.parametrize("plant", [_bare_link, _file, _locked, _gone])
async def test_nothing_that_programs_left_in_its_place_is_followed(
    origin: Origin, workspaces: Workspaces, tmp_path: Path, plant: object
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sha = origin.commit({"a": "1\n"})
    async with workspaces.open("job", REPO, source(origin, sha), refs=Refs(branch="main")) as tree:
        assert callable(plant)
        plant(tree, outside)
        before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
        await tree.commit_in_repository(await tree.change())
        assert git(tree.path, "status", "--porcelain") == ""
        assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
        assert sorted(path.name for path in tree.path.parent.iterdir()) == ["files", "generation", "repo", "trusted"]


async def test_without_names_there_is_no_repository(origin: Origin, workspaces: Workspaces) -> None:
    async with workspaces.open("job", REPO, source(origin, origin.commit({"a": "1\n"}))) as tree:
        assert not (tree.path / ".git").exists()
        assert not tree.readable


async def test_a_sandbox_shows_the_objects_of_the_mirror(origin: Origin, tmp_path: Path) -> None:
    shown = Workspaces(tmp_path / "state")
    async with shown.open("job", REPO, source(origin, origin.commit({"a": "1\n"})), refs=Refs(branch="main")) as tree:
        assert tree.readable == {OBJECTS: tmp_path / "state/mirrors" / f"{REPO}.git/objects"}
        assert (tree.path / ".git/objects/info/alternates").read_text() == f"{OBJECTS}\n"
        assert not [
            path for path in (tree.path / ".git/objects").rglob("*") if path.is_file() and path.stem != "alternates"
        ]


@pytest.mark.parametrize("name", ["files", "files/.git", "files/.git/refs"])
def test_it_is_written_anew_whatever_modes_programs_left(name: str) -> None:
    user = 65534 if os.geteuid() == 0 else os.geteuid()  # root needs no rights
    with tempfile.TemporaryDirectory(prefix="codepilot-test-") as place:
        job = Path(place)
        (job / "files/.git/refs").mkdir(parents=True)
        (job / "fresh.git").mkdir()
        (job / "fresh.git/HEAD").touch()
        for path in (job, *job.rglob("*")):
            os.chown(path, user, -1)
        (job / name).chmod(0o500)
        os.seteuid(user)
        try:
            agent_repository._install(job / "fresh.git", job / "files/.git")
        finally:
            os.seteuid(os.getuid())
        assert [path.name for path in job.iterdir()] == ["files"]
        assert (job / "files/.git/HEAD").exists()
