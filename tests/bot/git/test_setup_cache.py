"""Setup cache: complete, verified, bounded, and separate for each repository."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from pathlib import Path

import pytest

from bot.git.errors import WorkspaceError
from bot.git.setup_cache import SetupCache

REPO, OTHER = 7, 8
KEY, KEY2 = "a" * 64, "b" * 64
PATHS = (".venv", "web/node_modules")


@pytest.fixture
def cache(tmp_path: Path) -> SetupCache:
    return SetupCache(tmp_path / "cache", max_bytes=10_000)


def made(folder: Path, text: str = "x = 1\n") -> Path:
    """A workspace after its setup."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/run").write_text("#!/bin/sh\n")
    (folder / ".venv/bin/run").chmod(0o755)
    (folder / ".venv/lib").symlink_to("bin")
    (folder / ".venv/empty").mkdir()
    (folder / "web/node_modules/.git").mkdir(parents=True)
    (folder / "web/node_modules/.git/a.py").write_text(text)
    os.utime(folder / "web/node_modules/.git/a.py", (1, 1))
    return folder


def fresh(folder: Path) -> Path:
    (folder / "web").mkdir(parents=True)
    return folder


async def restored(cache: SetupCache, folder: Path, *, repo: int = REPO, key: str = KEY) -> Path | None:
    return folder if await cache.restore(repo, key, fresh(folder), PATHS) else None


async def test_an_entry_is_restored_with_links_modes_and_times(cache: SetupCache, tmp_path: Path) -> None:
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    there = await restored(cache, tmp_path / "two")
    assert there is not None
    assert os.access(there / ".venv/bin/run", os.X_OK)
    assert (there / ".venv/lib").readlink() == Path("bin")
    assert (there / ".venv/empty").is_dir()
    assert (there / "web/node_modules/.git/a.py").read_text() == "x = 1\n"
    assert (there / "web/node_modules/.git/a.py").stat().st_mtime == 1


async def test_the_checkouts_files_are_newer_than_an_entry_that_was_stored_after_them(
    cache: SetupCache, tmp_path: Path
) -> None:
    """A build tool must see that a source differs from the one that a cached result was made of."""
    workspace = fresh(tmp_path / "two")
    old, new = workspace / "web/old.c", workspace / "new.c"
    old.write_text("x")
    new.write_text("x")
    os.utime(old, (5, 5))
    os.utime(new, (2**33, 2**33))
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    assert await cache.restore(REPO, KEY, workspace, PATHS)
    assert old.stat().st_mtime > (workspace / ".venv/bin/run").stat().st_mtime
    assert new.stat().st_mtime == 2**33
    assert (workspace / "web/node_modules/.git/a.py").stat().st_mtime == 1


async def test_writing_to_a_copy_does_not_change_the_entry(cache: SetupCache, tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    await cache.keep(REPO, KEY, one, PATHS)
    (one / "web/node_modules/.git/a.py").write_text("evil\n")
    two = await restored(cache, tmp_path / "two")
    assert two is not None
    with (two / "web/node_modules/.git/a.py").open("r+") as file:
        file.write("evil\n")
    three = await restored(cache, tmp_path / "three")
    assert three is not None
    assert (three / "web/node_modules/.git/a.py").read_text() == "x = 1\n"


async def test_another_key_or_repository_finds_nothing(cache: SetupCache, tmp_path: Path) -> None:
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    assert await restored(cache, tmp_path / "two", repo=OTHER) is None
    assert await restored(cache, tmp_path / "three", key=KEY2) is None
    assert not (tmp_path / "two/.venv").exists()


async def test_an_existing_entry_is_never_rewritten(cache: SetupCache, tmp_path: Path) -> None:
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    await cache.keep(REPO, KEY, made(tmp_path / "two", "other\n"), PATHS)
    three = await restored(cache, tmp_path / "three")
    assert three is not None
    assert (three / "web/node_modules/.git/a.py").read_text() == "x = 1\n"


async def test_a_missing_path_is_skipped(cache: SetupCache, tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    shutil.rmtree(one / ".venv")
    await cache.keep(REPO, KEY, one, PATHS)
    two = await restored(cache, tmp_path / "two")
    assert two is not None
    assert not (two / ".venv").exists()
    assert (two / "web/node_modules").is_dir()


@pytest.mark.parametrize(
    "damage", ["changed", "cut", "missing", "extra", "not executable", "other link", "no note", "bad note"]
)
async def test_a_damaged_entry_is_dropped(
    cache: SetupCache, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    entry = tmp_path / "cache" / str(REPO) / KEY
    file, run, link = (
        entry / "files" / each for each in ("1/node_modules/.git/a.py", "0/.venv/bin/run", "0/.venv/lib")
    )
    match damage:
        case "changed":
            file.write_text("x = 2\n")
        case "cut":
            file.write_text("")
        case "missing":
            file.unlink()
        case "extra":
            (entry / "files/0/.venv/more").touch()
        case "not executable":
            run.chmod(0o644)
        case "other link":
            link.unlink()
            link.symlink_to("/etc")
        case "no note":
            (entry / "note.json").unlink()
        case _:
            (entry / "note.json").write_text('{"digest": ')
    assert await restored(cache, tmp_path / "two") is None
    assert not entry.exists()
    assert [str(entry) in each for each in caplog.messages] == [True]
    await cache.keep(REPO, KEY, made(tmp_path / "three"), PATHS)
    assert await restored(cache, tmp_path / "four") is not None


async def test_links_are_copied_as_links_without_access_outside(cache: SetupCache, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s3cret")
    one = made(tmp_path / "one")
    (one / ".venv/out").symlink_to(outside)
    shutil.rmtree(one / "web/node_modules")
    (one / "web/node_modules").symlink_to(outside)
    await cache.keep(REPO, KEY, one, PATHS)
    two = await restored(cache, tmp_path / "two")
    assert two is not None
    assert (two / "web/node_modules").readlink() == (two / ".venv/out").readlink() == outside
    assert not any("s3cret" in each.read_text() for each in (tmp_path / "cache").rglob("*") if each.is_file())


async def test_a_link_in_a_parent_directory_is_not_followed(cache: SetupCache, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "node_modules").mkdir(parents=True)
    (outside / "node_modules/secret").write_text("s3cret")
    one = made(tmp_path / "one")
    shutil.rmtree(one / "web")
    (one / "web").symlink_to(outside)
    with pytest.raises(WorkspaceError, match=r"`web`.*`web/node_modules`"):
        await cache.keep(REPO, KEY, one, PATHS)
    await cache.keep(REPO, KEY, made(tmp_path / "two"), PATHS)
    three = tmp_path / "three"
    three.mkdir()
    (three / "web").symlink_to(outside)
    with pytest.raises(WorkspaceError):
        await cache.restore(REPO, KEY, three, PATHS)
    assert [each.name for each in three.iterdir()] == ["web"]
    assert [each.name for each in (outside / "node_modules").iterdir()] == ["secret"]


async def test_a_failed_copy_leaves_nothing_and_changes_nothing(cache: SetupCache, tmp_path: Path) -> None:
    await cache.keep(REPO, KEY, made(tmp_path / "one"), PATHS)
    (tmp_path / "two/web").mkdir(parents=True)
    (tmp_path / "two/web/node_modules").write_text("mine")
    with pytest.raises(WorkspaceError, match="`web/node_modules` already exists"):
        await cache.restore(REPO, KEY, tmp_path / "two", PATHS)
    assert (tmp_path / "two/web/node_modules").read_text() == "mine"
    assert not (tmp_path / "two/.venv").exists()


async def test_a_pipe_is_rejected_without_blocking(cache: SetupCache, tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    os.mkfifo(one / ".venv/pipe")
    with pytest.raises(WorkspaceError, match="`pipe`"):
        await cache.keep(REPO, KEY, one, PATHS)
    assert await restored(cache, tmp_path / "two") is None


async def test_an_oversized_entry_is_rejected_with_a_remedy(cache: SetupCache, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"10,000.*CODEPILOT_SETUP_CACHE_GB"):
        await cache.keep(REPO, KEY, made(tmp_path / "one", "x" * 20_000), PATHS)
    assert not (tmp_path / "cache" / str(REPO) / KEY).exists()


async def test_the_least_recently_used_entry_is_evicted_first(cache: SetupCache, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    for number, (repo, key) in enumerate([(REPO, KEY), (REPO, KEY2), (OTHER, KEY)]):
        if number == 2:
            os.utime(root / f"{REPO}/{KEY}", (10, 10))
            os.utime(root / f"{REPO}/{KEY2}", (20, 20))
            assert await restored(cache, tmp_path / "used") is not None
        await cache.keep(repo, key, made(tmp_path / str(number), "x" * 4_000), PATHS)
    assert (root / f"{REPO}/{KEY}").exists()
    assert not (root / f"{REPO}/{KEY2}").exists()
    assert (root / f"{OTHER}/{KEY}").exists()


async def test_an_expired_entry_is_evicted_despite_free_space(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    cache = SetupCache(root, max_bytes=100_000, unused_seconds=3600)
    for key in (KEY, KEY2):
        await cache.keep(REPO, key, made(tmp_path / key), PATHS)
    long_ago = time.time() - 3700
    os.utime(root / f"{REPO}/{KEY}", (long_ago, long_ago))
    await cache.sweep()
    assert [(root / f"{REPO}/{key}").exists() for key in (KEY, KEY2)] == [False, True]


async def test_a_partial_entry_of_a_killed_worker_is_removed(cache: SetupCache, tmp_path: Path) -> None:
    half = tmp_path / "cache" / str(REPO) / f"{KEY}.partial"
    made(half / "files/0")
    assert await restored(cache, tmp_path / "one") is None
    await cache.keep(REPO, KEY2, made(tmp_path / "two"), PATHS)
    assert not half.exists()


async def test_jobs_side_by_side_keep_and_use_one_entry(
    cache: SetupCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    places = [made(tmp_path / f"made-{number}") for number in range(4)]
    await asyncio.gather(*(cache.keep(REPO, KEY, place, PATHS) for place in places))
    results = await asyncio.gather(*(restored(cache, tmp_path / f"used-{number}") for number in range(4)))
    assert all(results)
    assert [each.name for each in (tmp_path / "cache" / str(REPO)).iterdir()] == [KEY]
    assert not caplog.records
