"""Mirror maintenance: fetch limits, pruning of fork commits, eviction."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.git.agent_repository import Refs
from bot.git.errors import FetchTooLargeError
from bot.git.mirror import HISTORY_DEPTH, MirrorLimits, Source
from bot.git.workspace import Workspaces
from tests.origin import Origin, git

REPO, MIB = 4711, 1024**2
LIMITS = MirrorLimits(fetch_bytes=4 * MIB, pull_bytes=MIB, total_bytes=64 * MIB)
_HOUR, _DAY = 3600, 24 * 3600


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "mona" / "paint")
    made.commit({"a.txt": "a\n"})
    return made


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state", limits=LIMITS, pauses=(0.0,))


def branch(origin: Origin) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head("main"))


def pull(origin: Origin, size: int, files: Mapping[str, bytes] | None = None) -> Source:
    """A pull request's head on the main branch, with incompressible content."""
    origin.git("checkout", "--quiet", "--detach", "main")
    sha = origin.commit(files or {"large.bin": os.urandom(size)})
    origin.git("update-ref", "refs/pull/7/head", sha)
    origin.git("checkout", "--quiet", "main")
    return Source(url=origin.url, token="", ref="refs/pull/7/head", sha=sha)


def mirror_of(tmp_path: Path, repo_id: int = REPO) -> Path:
    return tmp_path / "state" / "mirrors" / f"{repo_id}.git"


def objects(mirror: Path) -> int:
    """Size of all packs and leftovers."""
    return sum(path.stat().st_size for path in (mirror / "objects").rglob("*") if path.is_file())


def made_older(mirror: Path, seconds: float) -> None:
    """Backdate a mirror's content and last use."""
    then = time.time() - seconds
    for ref in git(mirror, "for-each-ref", "--format=%(refname)", "refs/recent").split():
        sha = ref.rpartition("/")[2]
        git(mirror, "update-ref", f"refs/recent/{int(then) // _HOUR}/{sha}", sha)
        git(mirror, "update-ref", "-d", ref)
    for path in (mirror.with_suffix(".lock"), *mirror.rglob("*")):
        if path.is_file():
            os.utime(path, (then, then))


async def test_a_pull_request_brings_no_more_than_it_may_and_nothing_of_it_stays(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    source = pull(origin, 3 * MIB)
    with pytest.raises(FetchTooLargeError) as caught:
        async with workspaces.open("job", REPO, source):
            pass
    for named in ("`pull/7/head`", "`mona/paint`", " 1 MiB"):
        assert named in caught.value.reason
    assert "`CODEPILOT_PULL_FETCH_MB`" in caught.value.remedy
    assert objects(mirror_of(tmp_path)) < MIB // 4


async def test_of_a_long_history_the_last_commits_are_fetched(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "state", limits=LIMITS, pauses=(0.0,), shows_objects=False)
    for _ in range(3):
        origin.commit({"large.bin": os.urandom(2 * MIB)})
    origin.commit({"large.bin": None, "a.txt": "1\n"})
    for number in range(HISTORY_DEPTH):
        origin.commit({"a.txt": f"{number}\n"}, f"Count to {number}")
    origin.git("tag", "v1")
    source, refs = branch(origin), Refs(branch="main")
    async with workspaces.open("job", REPO, source, refs=refs) as tree:
        assert tree.repository is not None
        assert tree.repository.summary == f"its last commits ({HISTORY_DEPTH} or more)"
        assert len(git(tree.path, "log", "--format=%s").splitlines()) == HISTORY_DEPTH
        assert git(tree.path, "fsck") == ""
        (tree.path / "a.txt").write_text("mine\n")
        sha = await tree.commit(await tree.change(), message="Fix it")
        await tree.push(sha, branch="main", expected=source.sha, url=origin.url, token="")
    assert origin.git("show", f"{sha}:a.txt") == "mine"
    # A later commit arrives alone.
    origin.git("reset", "--quiet", "--hard", sha)
    origin.commit({"a.txt": "next\n"})
    async with workspaces.open("job-2", REPO, branch(origin), refs=refs) as tree:
        assert len(git(tree.path, "log", "--format=%s").splitlines()) == HISTORY_DEPTH + 2
        assert (await tree.revert(branch(origin).sha)).files
    assert objects(mirror_of(tmp_path)) < MIB // 2


async def test_loose_objects_count_as_well(origin: Origin, workspaces: Workspaces, tmp_path: Path) -> None:
    source = pull(origin, 0, {f"{number}.bin": os.urandom(MIB // 2) for number in range(6)})
    with pytest.raises(FetchTooLargeError, match=" 1 MiB"):
        await workspaces.read(REPO, source, "a.txt", limit=100)
    assert objects(mirror_of(tmp_path)) < MIB // 4


async def test_a_branch_may_bring_more_and_names_its_own_setting(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    origin.commit({"large.bin": os.urandom(2 * MIB)})
    async with workspaces.open("job-1", REPO, branch(origin)) as tree:
        assert (tree.path / "large.bin").stat().st_size == 2 * MIB
    origin.commit({"large.bin": os.urandom(5 * MIB)})
    with pytest.raises(FetchTooLargeError, match=r" 4 MiB.*`CODEPILOT_FETCH_MB`"):
        async with workspaces.open("job-2", REPO, branch(origin)):
            pass
    assert objects(mirror_of(tmp_path)) < 3 * MIB


async def test_objects_of_the_repository_do_not_count_for_a_pull_request(
    origin: Origin, workspaces: Workspaces
) -> None:
    origin.commit({"large.bin": os.urandom(2 * MIB)})
    async with workspaces.open("job", REPO, pull(origin, MIB // 2)) as tree:
        assert (tree.path / "large.bin").stat().st_size


async def test_commits_of_a_fork_are_pruned_once_no_job_needs_them(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    source, mirror = pull(origin, MIB // 2), mirror_of(tmp_path)
    async with workspaces.open("job", REPO, source) as tree:
        made_older(mirror, 2 * _DAY)
        await workspaces.tidy()
        assert objects(mirror) > MIB // 2
        (tree.path / "large.bin").write_bytes(b"shorter\n")
        assert [each.path for each in (await tree.change()).files] == ["large.bin"]
    await workspaces.tidy()
    assert objects(mirror) > MIB // 2  # the last use was just now
    made_older(mirror, 2 * _DAY)
    await workspaces.tidy()
    assert objects(mirror) < MIB // 4
    assert git(mirror, "for-each-ref", "--format=%(refname)", "refs/keep", "refs/recent") == ""
    assert await workspaces.read(REPO, branch(origin), "a.txt", limit=100)
    assert await workspaces.read(REPO, source, "a.txt", limit=100)


async def test_a_checkout_of_a_commit_that_was_pruned_can_be_taken(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    source, mirror = pull(origin, 0, {"fork/b.txt": b"b\n", "a.txt": b"other\n"}), mirror_of(tmp_path)
    async with workspaces.open("job", REPO, source):
        await workspaces.prepare_checkout()
    made_older(mirror, 2 * _DAY)
    await workspaces.tidy()
    async with workspaces.open("next", REPO, branch(origin)) as tree:
        assert [path.name for path in tree.path.iterdir()] == ["a.txt"]
        assert (tree.path / "a.txt").read_text() == "a\n"
    with pytest.raises(subprocess.CalledProcessError):
        git(mirror, "cat-file", "-e", source.sha)


async def test_an_incomplete_commit_is_fetched_again(origin: Origin, workspaces: Workspaces, tmp_path: Path) -> None:
    source, mirror = pull(origin, 0, {"b.txt": b"b\n"}), mirror_of(tmp_path)
    await workspaces.read(REPO, branch(origin), "a.txt", limit=100)
    # As a removal of several packs leaves it that was cut short.
    (mirror / "objects" / source.sha[:2]).mkdir()
    place = f"objects/{source.sha[:2]}/{source.sha[2:]}"
    (mirror / place).write_bytes((origin.path / ".git" / place).read_bytes())
    assert await workspaces.read(REPO, source, "b.txt", limit=100)


async def test_the_mirrors_used_longest_ago_make_room_and_are_fetched_again(origin: Origin, tmp_path: Path) -> None:
    origin.commit({"large.bin": os.urandom(MIB)})
    # Each has the file in its pack and in its prepared checkout, so that three mirrors are two too many.
    limits = MirrorLimits(fetch_bytes=4 * MIB, pull_bytes=MIB, total_bytes=5 * MIB)
    workspaces = Workspaces(tmp_path / "state", limits=limits)
    source = branch(origin)
    for repo_id in (1, 2, 3):
        async with workspaces.open("job", repo_id, source) as tree:
            assert tree.code_index is not None
            tree.code_index.parent.mkdir()
            tree.code_index.write_bytes(b"an index")
        await workspaces.prepare_checkout()
        made_older(mirror_of(tmp_path, repo_id), _DAY / 2 - repo_id * _HOUR)
    async with workspaces.open("holder", 1, source) as tree:
        made_older(mirror_of(tmp_path, 1), _DAY)
        await workspaces.tidy()
        assert [mirror_of(tmp_path, repo_id).exists() for repo_id in (1, 2, 3)] == [True, False, True]
        assert not await tree.change()
    assert not list((tmp_path / "state/mirrors").glob(".*"))
    assert not mirror_of(tmp_path, 2).with_suffix(".files").exists()
    assert not mirror_of(tmp_path, 2).with_suffix(".index").exists()
    async with workspaces.open("job", 2, source) as tree:
        assert (tree.path / "large.bin").stat().st_size == MIB


async def test_an_unused_mirror_is_evicted_despite_free_space(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "state", limits=MirrorLimits(unused_seconds=3 * _DAY))
    for repo_id, days in ((1, 2), (2, 4)):
        await workspaces.read(repo_id, branch(origin), "a.txt", limit=100)
        made_older(mirror_of(tmp_path, repo_id), days * _DAY)
    await workspaces.tidy()
    assert [mirror_of(tmp_path, repo_id).exists() for repo_id in (1, 2)] == [True, False]


async def test_a_recently_used_mirror_is_not_evicted(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "state", limits=MirrorLimits(total_bytes=0))
    await workspaces.read(REPO, branch(origin), "a.txt", limit=100)
    await workspaces.tidy()
    assert mirror_of(tmp_path).exists()


async def test_a_mirror_is_packed_again_after_a_git_was_killed_while_it_packed_it(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    await workspaces.read(REPO, branch(origin), "a.txt", limit=100)
    mirror = mirror_of(tmp_path)
    made_older(mirror, 2 * _DAY)
    (mirror / "objects/info/commit-graph.lock").touch()
    await workspaces.tidy()
    assert (mirror / "packed").exists()


async def test_a_damaged_mirror_does_not_stop_the_maintenance_of_the_rest(
    origin: Origin, workspaces: Workspaces, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for repo_id in (1, REPO):
        await workspaces.read(repo_id, pull(origin, MIB // 2), "a.txt", limit=100)
        made_older(mirror_of(tmp_path, repo_id), 2 * _DAY)
    (mirror_of(tmp_path, 1) / "HEAD").write_text("nonsense\n")
    await workspaces.tidy()
    assert objects(mirror_of(tmp_path)) < MIB // 4
    assert f"mirror {mirror_of(tmp_path, 1)} was not packed; if it is damaged, delete it" in caplog.text
