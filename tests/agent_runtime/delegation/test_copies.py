"""Copies of workspaces, also of hostile ones."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.delegation.copies import CopyBounds, copy_workspace
from agent_runtime.workspace.files import Workspace
from tests.waiting import eventually


async def copy_of(
    root: Path,
    target: Path,
    names: list[str] | None = None,
    *,
    size: int = 10**9,
    files: int = 10_000,
    seconds: float = 60.0,
    free: int = 0,
) -> Path:
    await asyncio.to_thread(target.mkdir)
    with Workspace(root) as workspace:
        await copy_workspace(
            workspace,
            target,
            names,
            CopyBounds(bytes_left=size, files_left=files, seconds=seconds, reserved_bytes=free),
        )
    return target


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


async def test_everything_is_copied_except_links_that_lead_elsewhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory in (root / "node_modules" / "x", root / ".git" / "objects", root / "module", outside):
        directory.mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (root / ".gitignore").write_text("node_modules\n")
    (root / "node_modules" / "x" / "index.js").write_text("1")
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (root / "module" / ".git").write_text("gitdir: /elsewhere")
    (root / "run.sh").write_text("true")
    (root / "run.sh").chmod(0o4755)
    os.utime(root / "run.sh", ns=(10**18, 10**18))
    os.mkfifo(root / "pipe")
    (root / "locked").write_text("x")
    (root / "link").symlink_to(outside)
    os.link(root / "run.sh", root / "same.sh")
    made = await copy_of(root, tmp_path / "copy")
    assert set(tree(root)) - set(tree(made)) == {"module/.git", "pipe"}
    assert (made / "link").readlink() == outside
    assert (made / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (made / "run.sh").stat().st_mtime_ns == 10**18
    (made / "run.sh").write_text("false")
    assert (root / "run.sh").read_text() == (made / "same.sh").read_text() == "true"


async def test_named_parts_are_copied_with_the_directories_above_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt"):
        (root / name).write_text(name)
    made = await copy_of(root, tmp_path / "copy", ["a.txt", "src/deep"])
    assert tree(made) == ["a.txt", "src", "src/deep", "src/deep/c.txt"]
    for name in ("src/c.txt", "scr/deep"):
        with pytest.raises(ToolError, match=f"there is no '{name}' in the workspace"):
            await copy_of(root, tmp_path / "none", ["a.txt", name])
        assert tree(tmp_path / "none") == []
        (tmp_path / "none").rmdir()


async def test_a_copy_is_bounded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(30):
        (root / f"{number}").write_text("x" * 1_000)
    with pytest.raises(ToolError, match="too many files"):
        await copy_of(root, tmp_path / "one", files=20)
    with pytest.raises(ToolError, match="too large"):
        await copy_of(root, tmp_path / "other", size=5_000)
    with pytest.raises(ToolError, match="takes longer than 0 seconds"):
        await copy_of(root, tmp_path / "late", seconds=0.0)
    with pytest.raises(ToolError, match="would stay free"):
        await copy_of(root, tmp_path / "full", free=10**18)


async def test_a_sparse_file_and_very_many_levels_end_in_an_error(tmp_path: Path) -> None:
    sparse, deep = tmp_path / "sparse", tmp_path / "deep"
    sparse.mkdir()
    deep.mkdir()
    with (sparse / "huge").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ToolError, match="too large"):
        await copy_of(sparse, tmp_path / "copy of sparse", size=10**7)
    here = os.open(deep, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(ToolError, match="100 levels"):
        await copy_of(deep, tmp_path / "copy of deep")


async def test_a_cancelled_copy_ends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with (root / "huge").open("wb") as file:
        file.truncate(10**9)
    work = asyncio.create_task(copy_of(root, tmp_path / "copy", size=10**12))
    await eventually(lambda: list((tmp_path / "copy").glob("huge")))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (tmp_path / "copy" / "huge").stat().st_size < 10**9
