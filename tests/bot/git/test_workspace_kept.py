"""Workspaces of waiting jobs survive the process, and trust nothing the agent wrote."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from bot.git.change import Change
from bot.git.errors import WorkspaceError, WorkspaceGoneError
from bot.git.filesystem import discard, try_lock
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin, git
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
REPO = 4711


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": "1\n", "src/b.py": "x = 1\n", ".gitignore": "*.pyc\n"})
    return origin


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "state", seconds=20)


def source(origin: Origin, sha: str = "") -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha or origin.head())


def keeps(tmp_path: Path) -> str:
    return git(tmp_path / "state" / "mirrors" / f"{REPO}.git", "for-each-ref", "--format=%(refname)", "refs/keep")


def always() -> bool:
    return True


async def _worked(workspaces: Workspaces, origin: Origin, job_id: str = "job") -> Change:
    """Work on a job and leave it waiting; return the change."""
    async with workspaces.open(job_id, REPO, source(origin), keep=always) as tree:
        (tree.path / "a.txt").write_text("2\n")
        (tree.path / os.fsdecode(b"caf\xe9")).write_text("new\n")
        (tree.path / "src/b.py").unlink()
        return await tree.change()


async def test_a_kept_workspace_is_unchanged(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    change = await _worked(workspaces, origin)
    assert keeps(tmp_path) == "refs/keep/job"
    async with Workspaces(tmp_path / "state").reopen("job") as tree:
        assert (tree.path / "a.txt").read_text() == "2\n"
        assert tree.base_sha == change.base_sha
        assert set(tree.blobs) == {"a.txt", "src/b.py", ".gitignore"}
        assert await tree.change() == change
        (tree.path / "a.txt").write_text("3\n")
        sha = await tree.commit(await tree.change(), message="Fix it")
        await tree.push(sha, branch="fix", expected="", url=origin.url, token="")
    assert origin.git("show", f"{sha}:a.txt") == "3"
    assert list((tmp_path / "state/jobs").iterdir()) == []
    assert keeps(tmp_path) == ""


async def test_files_that_are_carried_to_another_machine_are_as_old_as_they_were(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    touched = (await _worked(workspaces, origin)).touched
    async with workspaces.reopen("job") as tree:
        carried = await tree.read_carried()
    there = Workspaces(tmp_path / "there", seconds=20)
    async with there.open("job", REPO, source(origin), keep=always) as tree:
        await tree.restore_carried(carried)
        assert (await tree.change()).touched == touched
    async with there.reopen("job") as tree:  # in another process, for another answer
        assert await tree.read_carried() == carried
        (tree.path / "a.txt").write_text("3\n")
        changed = (await tree.change()).touched
    assert touched is not None
    assert changed is not None
    assert changed[1] > touched[1]


async def test_a_small_leftover_is_carried_since_it_may_be_wanted(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    await _worked(workspaces, origin)
    async with workspaces.reopen("job") as tree:
        (tree.path / "a.txt.orig").write_text("1\n")
        (tree.path / "node_modules").mkdir()
        (tree.path / "node_modules/a.js").write_text("cache\n")
        carried = await tree.read_carried()
    async with Workspaces(tmp_path / "there").open("job", REPO, source(origin)) as tree:
        await tree.restore_carried(carried)
        change = await tree.change(lambda path: path == "a.txt.orig")
        assert not (tree.path / "node_modules").exists()
    assert "a.txt.orig" in {file.path for file in change.files}


async def test_it_can_be_kept_again_and_again(workspaces: Workspaces, origin: Origin) -> None:
    change = await _worked(workspaces, origin)
    for _ in range(2):
        async with workspaces.reopen("job", keep=always) as tree:
            assert await tree.change() == change


async def test_files_of_setup_are_no_change_after_reopening(workspaces: Workspaces, origin: Origin) -> None:
    async with workspaces.open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "generated.txt").write_text("by setup\n")
        (tree.path / "deps").mkdir()
        (tree.path / "src/b.py").unlink()
        await tree.reset_baseline(["deps"])
        (tree.path / "a.txt").write_text("2\n")
    async with workspaces.reopen("job") as tree:
        (tree.path / "deps/lib").write_text("x\n")
        assert [file.path for file in (await tree.change()).files] == ["a.txt"]


async def test_keep_is_called_on_every_exit(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    waits = False

    async def park_and_fail() -> None:
        nonlocal waits
        async with workspaces.open("job", REPO, source(origin), keep=lambda: waits):
            waits = True
            raise RuntimeError("after parking")

    with pytest.raises(RuntimeError, match="after parking"):
        await park_and_fail()
    async with workspaces.reopen("job", keep=lambda: waits):
        waits = False
    assert not (tmp_path / "state/jobs/job").exists()


async def test_a_failed_workspace_is_never_kept(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        async with workspaces.open("job", REPO, source(origin, "1" * 40), keep=always):
            pass
    assert not (tmp_path / "state/jobs/job").exists()


async def test_the_workspace_has_no_git_data_and_planted_data_is_ignored(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    change = await _worked(workspaces, origin)
    files = tmp_path / "state/jobs/job/files"
    assert sorted(path.name for path in files.iterdir()) == sorted([".gitignore", "a.txt", "src", "caf\udce9"])
    git(files, "init", "--quiet")
    for name in ("given.json", "repo", "trusted/given.json", ".git/given.json"):
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_text('{"base_sha": "0", "modes": {}}')
    async with workspaces.reopen("job") as tree:
        again = await tree.change()
    assert again.base_sha == change.base_sha
    assert {file.path for file in again.files} == {
        *(file.path for file in change.files),
        "given.json",
        "repo",
        "trusted/given.json",
    }


@pytest.mark.parametrize("missing", ["folder", "note", "damaged", "mirror", "never"])
async def test_a_missing_workspace_is_reported_and_leftovers_removed(
    missing: str, workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    folder, mirror = tmp_path / "state/jobs/job", tmp_path / f"state/mirrors/{REPO}.git"
    if missing != "never":
        await _worked(workspaces, origin)
    match missing:
        case "folder":
            shutil.rmtree(folder)
        case "note":
            (folder / "trusted/given.json").unlink()
        case "damaged":
            (folder / "trusted/given.json").write_text('{"base_sha": "0", "modes": []}')
        case "mirror":
            shutil.rmtree(mirror)
        case _:
            pass
    with pytest.raises(WorkspaceGoneError, match="job job"):
        async with workspaces.reopen("job", keep=always):
            pass
    assert not folder.exists()
    if missing in {"note", "damaged"}:
        assert keeps(tmp_path) == ""


async def test_it_works_on_after_the_mirror_was_repacked_and_its_branch_force_pushed(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    first = origin.head()
    origin.commit({"a.txt": "dropped later\n"})
    change = await _worked(workspaces, origin)
    origin.git("reset", "--quiet", "--hard", first)
    async with workspaces.open("other", REPO, source(origin, origin.commit({"z": "1"}))):
        pass
    mirror = tmp_path / f"state/mirrors/{REPO}.git"
    git(mirror, "repack", "-a", "-d", "--quiet")
    git(mirror, "gc", "--quiet", "--prune=now")
    async with workspaces.reopen("job") as tree:
        assert await tree.change() == change
        assert (tree.path / "a.txt").read_text() == "2\n"


async def test_stale_locks_of_a_killed_git_are_removed(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    change = await _worked(workspaces, origin)
    mirror, trusted = tmp_path / f"state/mirrors/{REPO}.git", tmp_path / "state/jobs/job/trusted"
    for held in (mirror / "packed-refs", mirror / "refs/keep/job", trusted / "change.index"):
        held.with_name(f"{held.name}.lock").touch()
    async with workspaces.reopen("job") as tree:
        assert await tree.change() == change
    assert keeps(tmp_path) == ""


async def test_a_lost_keep_ref_is_recreated(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    await _worked(workspaces, origin)
    git(tmp_path / f"state/mirrors/{REPO}.git", "update-ref", "-d", "refs/keep/job")
    async with workspaces.reopen("job"):
        assert keeps(tmp_path) == "refs/keep/job"


async def test_discarding_removes_files_and_refs_and_is_idempotent(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    change = await _worked(workspaces, origin)
    async with workspaces.reopen("job", keep=always) as tree:
        await tree.replay(change, source(origin, origin.commit({"theirs": "1"})))
        assert set(keeps(tmp_path).split()) == {"refs/keep/job", "refs/keep/job.onto"}
    for _ in range(2):
        await workspaces.discard("job")
    assert list((tmp_path / "state/jobs").iterdir()) == []
    assert keeps(tmp_path) == ""
    with pytest.raises(WorkspaceError, match="cannot name"):
        await workspaces.discard("../x")


async def test_discarding_waits_for_the_worker_that_is_just_leaving(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    async with workspaces.open("job", REPO, source(origin), keep=always):
        discarding = asyncio.create_task(workspaces.discard("job"))
        await asyncio.sleep(0)
        assert (tmp_path / "state/jobs/job").exists()
    await discarding
    assert not (tmp_path / "state/jobs/job").exists()


async def test_the_lock_is_held_until_the_removing_thread_ends(
    workspaces: Workspaces, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _worked(workspaces, origin)
    begun, go_on, removed = Event(), Event(), list[Path]()

    def slowly(folder: Path) -> None:
        begun.set()
        go_on.wait(20)
        discard(folder)
        removed.append(folder)

    async def begin_anew() -> None:
        async with workspaces.open("job", REPO, source(origin)):
            pass

    monkeypatch.setattr("bot.git.workspace.discard", slowly)
    beginning = asyncio.create_task(begin_anew())
    await eventually(begun.is_set)
    beginning.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert try_lock(tmp_path / "state/jobs/job.lock") is None
    go_on.set()
    await asyncio.wait([beginning])
    assert removed == [tmp_path / "state/jobs/job"]


async def test_a_restarted_job_has_no_kept_files(workspaces: Workspaces, origin: Origin) -> None:
    await _worked(workspaces, origin)
    async with workspaces.open("job", REPO, source(origin)) as tree:
        assert not await tree.change()


async def test_a_sweep_spares_waiting_jobs_only(workspaces: Workspaces, origin: Origin, tmp_path: Path) -> None:
    for job_id in ("waits", "ended"):
        await _worked(workspaces, origin, job_id)
    assert await workspaces.sweep({"waits", "never-had-one"}) == ("ended",)
    assert keeps(tmp_path) == "refs/keep/waits"
    async with workspaces.reopen("waits") as tree:
        assert await tree.change()


_WORKER = """
import asyncio, sys
from pathlib import Path
from bot.git.mirror import Source
from bot.git.workspace import Workspaces

async def main():
    state, url, sha = sys.argv[1:]
    source = Source(url=url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(Path(state)).open("job", 4711, source, keep=lambda: True) as tree:
        (tree.path / "generated").write_text("by setup")
        await tree.reset_baseline([])
        (tree.path / "a.txt").write_text("2\\n")
        print("parked", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_right_after_parking_leaves_a_whole_workspace(
    workspaces: Workspaces, origin: Origin, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path / "state"), origin.url, origin.head()],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "parked\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    async def go_on() -> list[str]:
        assert await workspaces.sweep({"job"}) == ()
        async with workspaces.reopen("job") as tree:
            return [file.path for file in (await tree.change()).files]

    assert asyncio.run(go_on()) == ["a.txt"]
