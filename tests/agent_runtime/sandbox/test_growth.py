"""Growth of a workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

from agent_runtime.sandbox.limits import WorkspaceGrowth, find_growth
from tests.sandboxes import opened_in

T = TypeVar("T")
BLOCKS = 64 * 1024


def walked(root: Path, since: int = 0) -> WorkspaceGrowth:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return result_of(find_growth(descriptor, since))
    finally:
        os.close(descriptor)


def result_of(generator: Generator[None, None, T]) -> T:
    while True:
        try:
            next(generator)
        except StopIteration as end:
            found: T = end.value
            return found


def written(path: Path) -> None:
    path.write_bytes(bytes(BLOCKS))


def test_files_and_directories_count_with_their_disk_use(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    written(tmp_path / "a" / "b" / "x")
    written(tmp_path / "y")
    found = walked(tmp_path)
    assert found.files == 4
    assert 2 * BLOCKS <= found.disk_bytes < 2 * BLOCKS + 2**16
    assert not found.is_partial


def test_unchanged_files_do_not_count(tmp_path: Path) -> None:
    written(tmp_path / "before")
    since = _after(tmp_path / "before")
    written(tmp_path / "new")
    with (tmp_path / "new").open("ab") as file:
        file.write(b"x")
    assert walked(tmp_path, since).files == 1


def test_a_forged_time_hides_nothing(tmp_path: Path) -> None:
    written(tmp_path / "before")
    since = _after(tmp_path / "before")
    written(tmp_path / "new")
    os.utime(tmp_path / "new", (0, 0))
    assert walked(tmp_path, since).files == 1


def test_a_hole_takes_nothing(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 40)
    assert walked(tmp_path).disk_bytes < BLOCKS


def test_names_of_one_file_count_once(tmp_path: Path) -> None:
    written(tmp_path / "x")
    for number in range(5):
        (tmp_path / f"link{number}").hardlink_to(tmp_path / "x")
    assert walked(tmp_path).files == 1


def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    written(tmp_path / "out" / "x")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "work" / "loop").symlink_to(".")
    assert walked(tmp_path / "work").files == 2


def test_a_directory_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    (work / "d").mkdir(parents=True)
    out.mkdir()
    for number in range(200):
        written(out / str(number))
        written(work / f"f{number}")
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    generator = find_growth(descriptor, 0)
    next(generator)
    if (work / "d").exists():
        (work / "d").rmdir()
        (work / "d").symlink_to(out)
    found = result_of(generator)
    os.close(descriptor)
    assert found.files <= 201


def test_a_directory_removed_meanwhile_ends_no_walk(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(300):
        (tmp_path / "d" / str(number)).touch()
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    generator = find_growth(descriptor, 0)
    next(generator)
    for entry in (tmp_path / "d").iterdir():
        entry.unlink()
    (tmp_path / "d").rmdir()
    assert not result_of(generator).is_partial
    os.close(descriptor)


def test_directories_beyond_the_depth_limit_make_the_result_partial(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(120):
        place /= "d"
    place.mkdir(parents=True)
    assert walked(tmp_path).is_partial


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
def test_unreadable_directories_make_the_result_partial(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    assert walked(tmp_path).is_partial


def test_a_walk_that_is_broken_off_gives_its_descriptors_back(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / "a" / str(number)).mkdir(parents=True)
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    generator = find_growth(descriptor, 0)
    next(generator)
    generator.close()
    assert opened_in(tmp_path) == [tmp_path]
    os.close(descriptor)


def _after(path: Path) -> int:
    """Return a time before all later writes; the kernel's file clock advances in steps."""
    first = path.stat().st_ctime_ns
    probe = path.parent / "probe"
    deadline = time.monotonic() + 10
    while True:
        probe.touch()
        stamp = probe.stat().st_ctime_ns
        probe.unlink()
        if stamp > first:
            return stamp
        assert time.monotonic() < deadline
