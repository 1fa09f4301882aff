"""Jobs resume on another machine with the same files; only the bot can read or write snapshots."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from bot.domain.errors import QueueError, StorageError
from bot.git.blobs import BlobStore, open_blobs
from bot.git.errors import CloneError, WorkspaceError, WorkspaceGoneError
from bot.git.filesystem import hold_lock, release, try_lock
from bot.git.mirror import Source
from bot.git.snapshots import _TICK_NS, Entry, SnapshotLimits, Snapshots, Vault, blob_id, restore_tracked
from bot.git.workspace import WorkspaceRef, Workspaces
from tests import s3
from tests.hostile_trees import nest
from tests.origin import Origin
from tests.waiting import eventually

REPO = 4711
KEY = b"k" * 32


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit(
        {"a.txt": "1\n", "src/b.py": "x = 1\n", "src/deep/c.py": "y\n", "empty": "", ".gitignore": "*.pyc\nbuild/\n"}
    )
    return origin


@pytest.fixture(scope="module")
def server() -> Iterator[s3.S3]:
    with s3.running() as running:
        yield running


@pytest.fixture(params=["directory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "directory":
        return open_blobs((tmp_path / "store").as_uri())
    server: s3.S3 = request.getfixturevalue("server")
    return open_blobs(f"s3://{s3.BUCKET}/{uuid4().hex}", server.access)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return open_blobs((tmp_path / "store").as_uri())


def machine(
    tmp_path: Path, name: str, blobs: BlobStore, *, key: bytes = KEY, limits: SnapshotLimits | None = None
) -> Workspaces:
    snapshots = Snapshots(blobs=blobs, key=key, limits=limits or SnapshotLimits())
    return Workspaces(tmp_path / name, seconds=20, snapshots=snapshots)


def source(origin: Origin) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())


def left(origin: Origin, generation: str) -> WorkspaceRef:
    return WorkspaceRef(generation=generation, repo_id=REPO, source=source(origin))


def always() -> bool:
    return True


def is_locked(lock: Path) -> bool:
    descriptor = try_lock(lock)
    if descriptor is not None:
        release(lock, descriptor)
    return descriptor is None


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything a program can observe of a directory: kinds, modes, times, contents."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = path.readlink()
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            mode = stat.S_IMODE(status.st_mode)
            found[os.path.relpath(path, root)] = (kind, mode, status.st_mtime_ns, status.st_nlink, content)
    return found


def work(files: Path) -> None:
    """Files of set-up, the agent and its programs."""
    (files / "a.txt").write_text("2\n")
    (files / "src/b.py").unlink()
    (files / "src/new.py").write_text("new\n")
    (files / os.fsdecode(b"caf\xe9")).write_text("not UTF-8\n")
    (files / "line\nbreak").write_text("x")
    (files / "build/lib").mkdir(parents=True)
    (files / "build/lib/ignored.pyc").write_bytes(os.urandom(70_000))
    (files / "build/nothing").mkdir()
    (files / "build/empty-file").touch()
    (files / "build/large").write_bytes(os.urandom(9 * 1024 * 1024) + bytes(2 * 1024 * 1024) + b"end")
    (files / "build/run").write_text("#!/bin/sh\n")
    (files / "build/run").chmod(0o755)
    (files / "build/read-only").write_text("x")
    (files / "build/read-only").chmod(0o444)
    (files / "build/lib").chmod(0o555)
    (files / "link").symlink_to("a.txt")
    (files / "dangling").symlink_to("/nowhere/at/all")
    (files / "build/to-folder").symlink_to("../src")
    os.link(files / "build/large", files / "build/large-again")
    os.link(files / "build/run", files / "src/run")
    (files / "vendor/.git").mkdir(parents=True)
    (files / "vendor/.git/HEAD").write_text("ref: refs/heads/main\n")
    for path in ("build/run", "src/deep/c.py", "build"):
        os.utime(files / path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))


async def parked(
    workspaces: Workspaces, origin: Origin, job_id: str = "job"
) -> tuple[str, dict[str, tuple[object, ...]]]:
    """Work on a job and leave it waiting; return its generation and its files."""
    async with workspaces.open(job_id, REPO, source(origin), keep=always) as tree:
        (tree.path / "generated.txt").write_text("by set-up\n")
        (tree.path / "deps").mkdir()
        (tree.path / "deps/lib").write_text("by set-up\n")
        await tree.reset_baseline(["deps"])
        work(tree.path)
        made = time.time_ns()
        # What was changed in this very moment is stored again the next time.
        await eventually(lambda: time.time_ns() > made + 2 * _TICK_NS or None)
        return tree.generation, seen(tree.path)


async def test_a_job_continues_on_another_machine_with_the_same_files(
    blobs: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    here, there = machine(tmp_path, "here", blobs), machine(tmp_path, "there", blobs)
    generation, before = await parked(here, origin)
    async with here.reopen("job", left(origin, generation), keep=always) as tree:
        change, generation = await tree.change(), tree.generation
    (tmp_path / "here").rename(tmp_path / "gone")
    async with there.reopen("job", left(origin, generation), keep=always) as tree:
        assert seen(tree.path) == before
        assert tree.base_sha == origin.head()
        assert set(tree.blobs) == {"a.txt", "src/b.py", "src/deep/c.py", "empty", ".gitignore"}
        assert replace(await tree.change(), patch_file=None) == replace(change, patch_file=None)
        assert "generated.txt" not in {file.path for file in change.files}
        (tree.path / "deps/more").write_text("left out\n")
        (tree.path / "generated.txt").write_text("by the agent\n")
        paths = {file.path for file in (await tree.change()).files}
        assert paths == {file.path for file in change.files} | {"generated.txt"}
        after, generation = seen(tree.path), tree.generation
    # And back again, to a machine that never had them.
    async with machine(tmp_path, "third", blobs).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == after
        sha = await tree.commit(await tree.change(), message="Fix it")
        await tree.push(sha, branch="fix", expected="", url=origin.url, token="")
    assert origin.git("show", f"{sha}:a.txt") == "2"
    assert list(blobs.list("snapshots")) == []


async def test_a_build_tool_finds_nothing_newer_than_it_was(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    generation, before = await parked(machine(tmp_path, "here", store), origin)
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        times = {path: facts[2] for path, facts in seen(tree.path).items()}
    assert times == {path: facts[2] for path, facts in before.items()}


async def test_restored_files_are_as_old_as_they_were_until_a_program_writes_to_them(
    store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    generation, _ = await parked(machine(tmp_path, "here", store), origin)
    async with machine(tmp_path, "here", store).reopen("job", left(origin, generation), keep=always) as tree:
        touched, generation = (await tree.change()).touched, tree.generation
    assert touched is not None
    stored = {each.name for each in store.list("snapshots")}
    there = machine(tmp_path, "third", store)
    for each in (machine(tmp_path, "second", store), there, there):
        async with each.reopen("job", left(origin, generation), keep=always) as tree:
            assert (await tree.change()).touched == touched
            generation = tree.generation
        assert {each.name for each in store.list("snapshots")} == stored
    async with there.reopen("job", left(origin, generation), keep=always) as tree:
        began = time.time() - _TICK_NS / 1e9
        path, before = tree.path / "a.txt", (tree.path / "a.txt").stat()
        path.write_text("3\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed, generation = (await tree.change()).touched, tree.generation
    assert changed is not None
    assert changed[1] > began
    async with machine(tmp_path, "fourth", store).reopen("job", left(origin, generation)) as tree:
        assert (await tree.change()).touched == changed


async def test_local_files_are_used_without_the_snapshot(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    workspaces = machine(tmp_path, "here", store)
    generation, _ = await parked(workspaces, origin)
    inode = (tmp_path / "here/jobs/job/files/a.txt").stat().st_ino
    for each in store.list("snapshots"):
        store.delete(each.name)
    async with workspaces.reopen("job", left(origin, generation)) as tree:
        assert (tree.path / "a.txt").stat().st_ino == inode


async def test_a_mirror_that_was_removed_is_fetched_again(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "here", seconds=20)
    generation, before = await parked(workspaces, origin)
    shutil.rmtree(tmp_path / "here/mirrors")
    (tmp_path / "here/mirrors").mkdir()
    async with workspaces.reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before
        assert await tree.change()


async def test_files_of_an_older_state_are_never_used(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here, there = machine(tmp_path, "here", store), machine(tmp_path, "there", store)
    first, _ = await parked(here, origin)
    async with there.reopen("job", left(origin, first), keep=always) as tree:
        (tree.path / "a.txt").write_text("3\n")
        second = tree.generation
    # The first machine has the files as they were before, and the store has the newer ones.
    async with here.reopen("job", left(origin, second), keep=always) as tree:
        assert (tree.path / "a.txt").read_text() == "3\n"
        third = tree.generation
    # A worker that was killed stored nothing: neither the second machine's files nor the snapshot fit.
    (tmp_path / "here/jobs/job").rename(tmp_path / "lost")
    assert len({first, second, third}) == 3
    async with there.open("other", REPO, source(origin)):
        pass
    with pytest.raises(WorkspaceGoneError):
        async with there.reopen("job", left(origin, "of-the-killed-worker"), keep=always):
            pass


async def test_a_state_that_was_not_recorded_yet_is_the_one_before(
    store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    here = machine(tmp_path, "here", store)
    generation, _ = await parked(here, origin)
    for _ in range(2):  # the worker dies before it has recorded the new name, and changed nothing
        async with here.reopen("job", left(origin, generation), keep=always) as tree:
            assert tree.generation != generation


async def test_the_next_snapshot_stores_only_what_changed(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here = machine(tmp_path, "here", store)
    generation, _ = await parked(here, origin)
    packs = {each.name for each in store.list("snapshots/job") if not each.name.endswith("/head")}
    os.utime(tmp_path / "here/jobs/job/files/a.txt", ns=(1, 1))
    async with here.reopen("job", left(origin, generation), keep=always) as tree:
        (tree.path / "small").write_text("small")
        generation, before = tree.generation, seen(tree.path)
    again = {each.name: each.size for each in store.list("snapshots/job")}
    new = {name for name in again.keys() - packs if not name.endswith("/head")}
    assert len(packs & again.keys()) >= 2  # with the large file
    assert sum(again[name] for name in new) < 100_000
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_packs_with_mostly_unused_content_are_rewritten(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here = machine(tmp_path, "here", store)
    generation, _ = await parked(here, origin)
    large = tmp_path / "here/jobs/job/files/build"
    before: dict[str, tuple[object, ...]] = {}
    for _ in range(3):
        async with here.reopen("job", left(origin, generation), keep=always) as tree:
            (large / "large").unlink(missing_ok=True)
            (large / "large-again").unlink(missing_ok=True)
            generation, before = tree.generation, seen(tree.path)
    assert sum(each.size for each in store.list("snapshots/job")) < 200_000
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_unchanged_files_of_the_commit_are_not_stored(store: BlobStore, tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    origin.commit({f"f{number}": os.urandom(30_000).hex() for number in range(30)})
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "f1").write_text("changed")
        before, generation = seen(tree.path), tree.generation
    assert sum(each.size for each in store.list("snapshots")) < 10_000
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_a_large_sparse_file_takes_no_space(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        with (tree.path / "sparse").open("wb") as file:
            file.seek(200 * 1024 * 1024)
            file.write(b"end")
        generation = tree.generation
    assert sum(each.size for each in store.list("snapshots")) < 1024 * 1024
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        status = (tree.path / "sparse").stat()
        assert status.st_size == 200 * 1024 * 1024 + 3
        assert status.st_blocks * 512 < 1024 * 1024


async def test_pipes_and_sockets_are_skipped(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        os.mkfifo(tree.path / "pipe")
        generation = tree.generation
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert not (tree.path / "pipe").exists()
        assert (tree.path / "a.txt").exists()


@pytest.mark.parametrize("what", ["deep", "large", "many", "pipes"])
async def test_an_oversized_workspace_stays_on_its_machine(
    what: str, store: BlobStore, origin: Origin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = SnapshotLimits(content=1_000_000, entries=50)
    here = machine(tmp_path, "here", store, limits=limits)
    async with here.open("job", REPO, source(origin), keep=always) as tree:
        match what:
            case "deep":
                nest(tree.path, 120)
            case "large":
                with (tree.path / "sparse").open("wb") as file:
                    file.truncate(1 << 40)
            case "pipes":
                for number in range(60):
                    os.mkfifo(tree.path / str(number))
            case _:
                for number in range(60):
                    (tree.path / str(number)).touch()
        generation = tree.generation
    assert "only this machine can continue the job" in caplog.text
    assert list(store.list("snapshots")) == []
    async with here.reopen("job", left(origin, generation)) as tree:
        assert tree.base_sha == origin.head()


async def test_nothing_outside_is_read_through_links(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "out").symlink_to(tmp_path / "outside")
        (tree.path / "secret").symlink_to(tmp_path / "outside/secret")
        generation = tree.generation
    shutil.rmtree(tmp_path / "outside")
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert (tree.path / "out").is_symlink()
        assert (tree.path / "secret").is_symlink()
        assert not (tree.path / "secret").exists()


async def test_unreadable_files_are_stored_with_their_mode(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    modes = {"locked": 0o111, "locked/inner": 0, "locked/inner/file": 0}
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "locked/inner").mkdir(parents=True)
        (tree.path / "locked/inner/file").write_text("content")
        for path in reversed(modes):
            (tree.path / path).chmod(modes[path])
        generation = tree.generation
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        for path, mode in modes.items():
            assert stat.S_IMODE((tree.path / path).stat().st_mode) == mode
            (tree.path / path).chmod(0o700)
        assert (tree.path / "locked/inner/file").read_text() == "content"


async def test_set_user_id_bits_are_not_restored(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "a.txt").chmod(0o6755)
        generation = tree.generation
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert stat.S_IMODE((tree.path / "a.txt").stat().st_mode) == 0o755


async def test_the_store_holds_no_word_of_the_code(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    async with machine(tmp_path, "here", store).open("job", REPO, source(origin), keep=always) as tree:
        (tree.path / "private_name.py").write_text("private = 'content'\n" * 2)
    found = b"".join(store.get(each.name, limit=1 << 20) or b"" for each in store.list("snapshots"))
    assert found
    for word in (b"private", b"content", b"a.txt", origin.head().encode()):
        assert word not in found


def _with_another_byte(content: bytes, index: int) -> bytes:
    changed = bytearray(content)
    changed[index] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("how", ["head", "manifest", "pack", "swapped", "other job", "other key", "large"])
async def test_a_blob_written_with_another_key_is_rejected(
    how: str, store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    generation, _ = await parked(machine(tmp_path, "here", store), origin)
    there = machine(tmp_path, "there", store)
    names = sorted(each.name for each in store.list("snapshots/job") if not each.name.endswith("/head"))
    content = {name: store.get(name, limit=1 << 30) or b"" for name in (*names, "snapshots/job/head")}
    job_id = "job"
    match how:
        case "head":
            store.put("snapshots/job/head", _with_another_byte(content["snapshots/job/head"], -1))
        case "manifest" | "pack":
            for name in names:
                store.put(name, _with_another_byte(content[name], 40))
        case "swapped":
            for name, other in zip(names, reversed(names), strict=True):
                store.put(name, content[other])
        case "other job":
            job_id = "other"
            for name, each in content.items():
                store.put(name.replace("/job/", "/other/"), each)
        case "other key":
            there = machine(tmp_path, "there", store, key=b"o" * 32)
        case _:
            for name in content:
                store.put(name, bytes(20 * 1024 * 1024))
    with pytest.raises(WorkspaceGoneError):
        async with there.reopen(job_id, left(origin, generation)):
            pass
    assert list((tmp_path / "there/jobs").iterdir()) == []


def test_a_blob_of_another_job_is_rejected(store: BlobStore) -> None:
    one, other = (Vault(blobs=store, folder=f"snapshots/{job}", key=KEY) for job in ("one", "other"))
    assert one.content_name(b"content") != other.content_name(b"content")


def test_a_blob_under_another_name_is_rejected(store: BlobStore) -> None:
    vault = Vault(blobs=store, folder="snapshots/job", key=KEY)
    vault.write("one", b"content")
    store.put("snapshots/job/other", store.get("snapshots/job/one", limit=999) or b"")
    assert vault.read("one", limit=999) == b"content"
    with pytest.raises(WorkspaceGoneError):
        vault.read("other", limit=999)


@pytest.mark.parametrize("other", ["repository", "commit"])
async def test_a_snapshot_of_another_repository_or_commit_is_rejected(
    other: str, store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    generation, _ = await parked(machine(tmp_path, "here", store), origin)
    wanted = left(origin, generation)
    if other == "repository":
        wanted = replace(wanted, repo_id=REPO + 1)
    else:
        wanted = replace(wanted, source=replace(wanted.source, sha=origin.commit({"a.txt": "pushed since\n"})))
    with pytest.raises(WorkspaceGoneError):
        async with machine(tmp_path, "there", store).reopen("job", wanted):
            pass


async def test_a_snapshot_of_another_version_is_rejected(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here = machine(tmp_path, "here", store)
    generation, _ = await parked(here, origin)
    vault = Snapshots(blobs=store, key=KEY).vault("job")
    head = json.loads(vault.read("head", limit=9999) or b"")
    vault.write("head", json.dumps({**head, "version": head["version"] + 1}).encode())
    with pytest.raises(WorkspaceGoneError, match="another version"):
        async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)):
            pass


def test_a_file_that_is_not_as_it_was_committed_is_not_restored(tmp_path: Path) -> None:
    blob = blob_id(b"good\n", "0" * 40)
    entry = Entry("a.txt", "file", 0o644, 0, size=5, blob=blob)
    restore_tracked(tmp_path, [entry], f"{blob} blob 5\n".encode() + b"good\n\n")
    assert (tmp_path / "a.txt").read_bytes() == b"good\n"
    with pytest.raises(WorkspaceGoneError, match=r"`a\.txt`"):
        restore_tracked(tmp_path, [entry], f"{blob} blob 5\n".encode() + b"evil\n\n")


async def test_an_older_snapshot_that_is_put_back_is_not_used(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here = machine(tmp_path, "here", store)
    first, _ = await parked(here, origin)
    old = {each.name: store.get(each.name, limit=1 << 30) or b"" for each in store.list("snapshots")}
    async with here.reopen("job", left(origin, first), keep=always) as tree:
        (tree.path / "a.txt").write_text("3\n")
        second = tree.generation
    for name, content in old.items():
        store.put(name, content)
    with pytest.raises(WorkspaceGoneError):
        async with machine(tmp_path, "there", store).reopen("job", left(origin, second)):
            pass


async def test_a_store_that_is_down_when_a_job_parks_gets_its_files_later(
    origin: Origin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_blobs((tmp_path / "store").as_uri())
    here = machine(tmp_path, "here", store)
    _break(tmp_path / "store")
    generation, before = await parked(here, origin)
    assert "only this machine can continue the job until its files are stored" in caplog.text
    await here.store_pending()
    _repair(tmp_path / "store")
    with pytest.raises(WorkspaceGoneError):
        async with machine(tmp_path, "early", store).reopen("job", left(origin, generation)):
            pass
    await here.store_pending()
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_a_worker_that_lost_its_job_overwrites_no_snapshot(
    store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    """It was suspended, or could not reach the store when its job began to wait."""

    async def lost(_job_id: str, _generation: str) -> bool:
        return False

    late = machine(tmp_path, "late", store)
    async with late.open("job", REPO, source(origin), keep=always, current=lost):
        generation, before = await parked(machine(tmp_path, "there", store), origin)
    (tmp_path / "late/jobs/job/owed").touch()
    await late.store_pending(lost)
    async with late.reopen("job", current=lost):
        pass
    async with machine(tmp_path, "third", store).reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_files_of_unknown_ownership_are_stored_once_it_is_known(
    store: BlobStore, origin: Origin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def unknown(_job_id: str, _generation: str) -> bool:
        raise QueueError("the database is away")

    here = machine(tmp_path, "here", store)
    async with here.open("job", REPO, source(origin), keep=always, current=unknown) as tree:
        (tree.path / "a.txt").write_text("2\n")
        generation = tree.generation
    await here.store_pending(unknown)
    assert list(store.list("snapshots")) == []
    assert "the database is away" in caplog.text
    await here.store_pending()
    async with machine(tmp_path, "there", store).reopen("job", left(origin, generation), current=unknown) as tree:
        assert (tree.path / "a.txt").read_text() == "2\n"
    assert list(store.list("snapshots")) != []  # for a sweep


async def test_files_stay_when_a_worker_is_interrupted_while_it_opens_them_again(
    origin: Origin, tmp_path: Path
) -> None:
    here = Workspaces(tmp_path / "here", seconds=20)
    generation, before = await parked(here, origin)

    async def reopened() -> None:
        async with here.reopen("job", left(origin, generation), keep=always):
            raise AssertionError("it was to be interrupted before")

    async with hold_lock(tmp_path / f"here/mirrors/{REPO}.lock", seconds=1):
        opening = asyncio.create_task(reopened())
        await eventually(lambda: is_locked(tmp_path / "here/jobs/job.lock") or None)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    async with here.reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_a_store_that_is_down_when_a_job_goes_on_loses_nothing(origin: Origin, tmp_path: Path) -> None:
    store = open_blobs((tmp_path / "store").as_uri())
    generation, before = await parked(machine(tmp_path, "here", store), origin)
    there = machine(tmp_path, "there", store)
    _break(tmp_path / "store")
    with pytest.raises(StorageError):
        async with there.reopen("job", left(origin, generation), keep=always):
            pass
    _repair(tmp_path / "store")
    async with there.reopen("job", left(origin, generation)) as tree:
        assert seen(tree.path) == before


async def test_a_commit_that_cannot_be_fetched_now_loses_nothing(
    store: BlobStore, origin: Origin, tmp_path: Path
) -> None:
    generation, before = await parked(machine(tmp_path, "here", store), origin)
    there = Workspaces(tmp_path / "there", snapshots=Snapshots(blobs=store, key=KEY), pauses=())
    wanted = left(origin, generation)
    moved = tmp_path / "moved"
    origin.path.rename(moved)
    with pytest.raises(CloneError):
        async with there.reopen("job", wanted):
            pass
    moved.rename(origin.path)
    async with there.reopen("job", wanted) as tree:
        assert seen(tree.path) == before


async def test_snapshots_go_with_their_jobs(store: BlobStore, origin: Origin, tmp_path: Path) -> None:
    here = machine(tmp_path, "here", store)
    for job_id in ("discarded", "swept", "live", "young"):
        await parked(here, origin, job_id)
    await machine(tmp_path, "there", store).discard("discarded")
    assert list(store.list("snapshots/discarded")) == []
    for each in (*store.list("snapshots/swept"), *store.list("snapshots/live")):
        os.utime(tmp_path / "store" / each.name, (1, 1))
    await machine(tmp_path, "there", store).sweep({"live"})
    assert {each.name.split("/")[1] for each in store.list("snapshots")} == {"live", "young"}


async def test_without_snapshots_nothing_is_stored(origin: Origin, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "here", seconds=20)
    generation, before = await parked(workspaces, origin)
    async with workspaces.reopen("job", left(origin, generation), keep=always) as tree:
        assert seen(tree.path) == before
    with pytest.raises(WorkspaceError):
        async with Workspaces(tmp_path / "there").reopen("job", left(origin, generation)):
            pass


def _break(store: Path) -> None:
    """Make every access fail, even for root."""
    store.rename(store.with_name("away"))
    store.write_text("no directory")


def _repair(store: Path) -> None:
    store.unlink()
    store.with_name("away").rename(store)
