"""Checkout of a job's workspace, and its cleanup."""

from __future__ import annotations

import asyncio
import fcntl
import re
from pathlib import Path

import pytest

from bot.git.errors import BranchGoneError, CloneError, CommitGoneError, RepositoryEmptyError, WorkspaceError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin, git

REPO = 4711


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state")


def source(origin: Origin, sha: str, ref: str = "refs/heads/main") -> Source:
    return Source(url=origin.url, token="", ref=ref, sha=sha)


def keeps(tmp_path: Path) -> str:
    return git(tmp_path / "state" / "mirrors" / f"{REPO}.git", "for-each-ref", "refs/keep")


async def test_the_checkout_holds_the_files_as_committed_and_no_git(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    origin.path.joinpath("run.sh").write_text("#!/bin/sh\n")
    origin.path.joinpath("run.sh").chmod(0o755)
    origin.path.joinpath("link").symlink_to("run.sh")
    sha = origin.commit({"src/a.py": "x = 1\r\n", "data.bin": bytes(range(256))})
    async with workspaces.open("job-1", REPO, source(origin, sha)) as tree:
        assert (tree.path / "src/a.py").read_bytes() == b"x = 1\r\n"
        assert (tree.path / "data.bin").read_bytes() == bytes(range(256))
        assert (tree.path / "run.sh").stat().st_mode & 0o100
        assert (tree.path / "link").readlink() == Path("run.sh")
        assert not (tree.path / ".git").exists()
        assert tree.path.stat().st_mode & 0o777 == 0o700
        assert not await tree.change()
        kept = tree.path.parent
    assert list(kept.parent.iterdir()) == []
    assert keeps(tmp_path) == ""


async def test_a_warm_mirror_needs_no_network(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a": "1"})
    async with workspaces.open("one", REPO, source(origin, sha)):
        pass
    gone = Source(url=str(origin.path / "nowhere"), token="", ref="refs/heads/main", sha=sha)
    async with workspaces.open("two", REPO, gone) as tree:
        assert (tree.path / "a").read_text() == "1"


async def test_later_commits_are_fetched_into_the_same_mirror(origin: Origin, workspaces: Workspaces) -> None:
    first = origin.commit({"a": "1"})
    async with workspaces.open("one", REPO, source(origin, first)):
        pass
    second = origin.commit({"a": "2"})
    async with workspaces.open("two", REPO, source(origin, second)) as tree:
        assert (tree.path / "a").read_text() == "2"


async def test_a_pull_request_is_fetched_by_its_head(origin: Origin, workspaces: Workspaces) -> None:
    origin.commit({"a": "1"})
    origin.git("checkout", "--quiet", "-b", "topic")
    sha = origin.commit({"a": "from a fork"})
    origin.git("update-ref", "refs/pull/7/head", sha)
    origin.git("checkout", "--quiet", "main")
    origin.git("branch", "-D", "topic")
    async with workspaces.open("one", REPO, source(origin, sha, "refs/pull/7/head")) as tree:
        assert (tree.path / "a").read_text() == "from a fork"


async def test_a_branch_replaced_by_one_below_its_name_is_fetched(origin: Origin, workspaces: Workspaces) -> None:
    origin.commit({"a": "1"})
    origin.git("checkout", "--quiet", "-b", "topic")
    async with workspaces.open("one", REPO, source(origin, origin.commit({"a": "2"}), "refs/heads/topic")):
        pass
    origin.git("branch", "-m", "topic", "other")
    origin.git("checkout", "--quiet", "-b", "topic/part")
    async with workspaces.open("two", REPO, source(origin, origin.commit({"a": "3"}), "refs/heads/topic/part")) as tree:
        assert (tree.path / "a").read_text() == "3"


async def test_an_empty_repository_is_reported(origin: Origin, workspaces: Workspaces) -> None:
    with pytest.raises(RepositoryEmptyError, match="is empty"):
        async with workspaces.open("one", REPO, source(origin, "0" * 40)):
            pass


async def test_a_missing_branch_is_reported(origin: Origin, workspaces: Workspaces) -> None:
    origin.commit({"a": "1"})
    with pytest.raises(BranchGoneError, match="`feature/x`"):
        async with workspaces.open("one", REPO, source(origin, "1" * 40, "refs/heads/feature/x")):
            pass


async def test_a_missing_commit_is_reported(origin: Origin, workspaces: Workspaces, tmp_path: Path) -> None:
    origin.commit({"a": "1"})
    with pytest.raises(CommitGoneError, match="`main`"):
        async with workspaces.open("one", REPO, source(origin, "1" * 40)):
            pass
    assert list((tmp_path / "state" / "jobs").glob("*/")) == []


@pytest.mark.parametrize("name", ["a/b", "a/403"])
async def test_an_unreachable_server_is_reported_with_a_remedy(name: str, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces", pauses=(0.0,))
    nowhere = Source(url=f"http://127.0.0.1:1/{name}.git", token="t" * 20, ref="refs/heads/main", sha="1" * 40)
    with pytest.raises(CloneError) as caught:
        async with workspaces.open("one", REPO, nowhere):
            pass
    assert type(caught.value) is CloneError
    assert "is reachable" in caught.value.remedy


@pytest.mark.parametrize(
    "ref", ["main", "refs/heads/-x", "refs/heads/a..b", "refs/heads/*", "refs/heads/a b", "refs/tags/v1"]
)
def test_a_ref_that_could_be_something_else_is_refused(ref: str) -> None:
    with pytest.raises(CloneError, match=re.escape(repr(ref))):
        Source(url="x", token="", ref=ref, sha="1" * 40)


@pytest.mark.parametrize("job_id", ["", "../x", "a/b", "-x", "."])
async def test_a_job_id_that_leaves_the_directory_is_refused(
    job_id: str, origin: Origin, workspaces: Workspaces
) -> None:
    with pytest.raises(WorkspaceError, match="cannot name"):
        async with workspaces.open(job_id, REPO, source(origin, "1" * 40)):
            pass


async def test_concurrent_jobs_share_one_mirror(origin: Origin, workspaces: Workspaces) -> None:
    shas = [origin.commit({"a": str(number)}) for number in range(6)]

    async def check(number: int) -> str:
        async with workspaces.open(f"job-{number}", REPO, source(origin, shas[number])) as tree:
            return (tree.path / "a").read_text()

    assert await asyncio.gather(*map(check, range(6))) == [str(number) for number in range(6)]


async def test_the_same_job_twice_at_once_is_refused(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "state", seconds=2.0)
    sha = origin.commit({"a": "1"})
    async with workspaces.open("one", REPO, source(origin, sha)):
        with pytest.raises(WorkspaceError, match="Another process"):
            async with Workspaces(tmp_path / "state", seconds=0.1).open("one", REPO, source(origin, sha)):
                pass


async def test_a_new_worker_waits_for_the_lock_of_the_files(origin: Origin, workspaces: Workspaces) -> None:
    sha, began, go_on, order = origin.commit({"a": "1"}), asyncio.Event(), asyncio.Event(), list[str]()

    async def first() -> None:
        async with workspaces.open("one", REPO, source(origin, sha)):
            began.set()
            await go_on.wait()
            order.append("first")

    async def second() -> None:
        await began.wait()
        go_on.set()
        async with workspaces.open("one", REPO, source(origin, sha)) as tree:
            order.append((tree.path / "a").read_text())

    await asyncio.gather(first(), second())
    assert order == ["first", "1"]


async def test_a_cancelled_job_is_cleaned_up(origin: Origin, workspaces: Workspaces, tmp_path: Path) -> None:
    sha = origin.commit({"a": "1"})
    inside = asyncio.Event()

    async def work() -> None:
        async with workspaces.open("one", REPO, source(origin, sha)):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "state" / "jobs" / "one").exists()
    assert keeps(tmp_path) == ""


async def test_directories_that_the_agent_locked_are_removed(origin: Origin, workspaces: Workspaces) -> None:
    sha = origin.commit({"a": "1"})
    async with workspaces.open("one", REPO, source(origin, sha)) as tree:
        deep = tree.path / "x" / "y"
        deep.mkdir(parents=True)
        (deep / "f").write_text("f")
        deep.chmod(0)
        (tree.path / "x").chmod(0o500)
    assert not tree.path.exists()


async def test_a_sweep_removes_leftovers_of_killed_workers_only(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    sha = origin.commit({"a": "1"})
    async with workspaces.open("alive", REPO, source(origin, sha)) as tree:
        dead = tmp_path / "state" / "jobs" / "dead"
        (dead / "files").mkdir(parents=True)
        (dead / "repo").write_text(str(REPO))
        git(tmp_path / "state" / "mirrors" / f"{REPO}.git", "update-ref", "refs/keep/dead", sha)
        assert await workspaces.sweep(()) == ("dead",)
        assert not dead.exists()
        assert tree.path.exists()
        assert "refs/keep/dead" not in keeps(tmp_path)
        assert "refs/keep/alive" in keeps(tmp_path)


async def test_a_locked_mirror_is_awaited(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "state", seconds=0.1)
    sha = origin.commit({"a": "1"})
    with (tmp_path / "state" / "mirrors" / f"{REPO}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceError, match=rf"{REPO}\.lock.* 0 s"):
            async with workspaces.open("one", REPO, source(origin, sha)):
                pass


async def test_a_service_removes_the_files_of_a_job_after_its_end(
    origin: Origin, workspaces: Workspaces, tmp_path: Path
) -> None:
    wanted, jobs = source(origin, origin.commit({"a.txt": "a"})), tmp_path / "state/jobs"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await workspaces.remove_ended()
    async with workspaces.open("job", REPO, wanted):
        pass
    [removed] = jobs.iterdir()
    assert removed.name.startswith(".removed-job-")
    assert keeps(tmp_path) == ""
    async with workspaces.open("job", REPO, wanted) as tree:  # its name is free
        assert (tree.path / "a.txt").exists()
    await workspaces.remove_ended()
    assert not removed.exists()
    assert len(list(jobs.iterdir())) == 1
    await workspaces.sweep(keep=())  # as after the death of the process
    assert list(jobs.iterdir()) == []
