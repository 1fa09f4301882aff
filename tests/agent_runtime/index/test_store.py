from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
from pathlib import Path

import pytest

from agent_runtime.index import store
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.workspace.files import Workspace

_GOOD = "def good(): pass\n"


async def _index_names(root: Path, index_dir: Path | None = None) -> tuple[WorkspaceIndex, list[str]]:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, index_dir)
        assert await index.wait_ready(300), index.state
        found = [each.path for each in await index.find_definitions("good")]
        await index.close()
    return index, found


@pytest.mark.timeout(400)  # its parsers use up their processor time, which takes long on a busy machine
async def test_unreadable_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(_GOOD)
    (tmp_path / "zgood.py").write_text(_GOOD)
    (tmp_path / "large.py").write_text(_GOOD * 600_000)  # 10 MB
    (tmp_path / "binary.py").write_bytes(b"def good(): pass\n\0\xff")
    (tmp_path / "packed.js").write_text("function good(){}" * 58_000)  # one line of a megabyte
    (tmp_path / "crash.js").write_text("{a:\n" * 100_000)  # its grammar crashes, or takes too long
    (tmp_path / "deep.py").write_text("(" * 5_000 + "\n" * 100)  # too slow to query
    (tmp_path / "two\nlines.py").write_text(_GOOD)
    (tmp_path / "link.py").symlink_to(tmp_path / "good.py")
    (tmp_path / "bytes.py").write_bytes(b"def good(): '\xff\xfe'\n\xed\xa0\x80")
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / ".gitignore")
    _, found = await _index_names(tmp_path)
    assert found == ["bytes.py", "good.py", "zgood.py"]


def test_files_beyond_a_bound_are_skipped_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MAX_FILES", 10)
    for number in range(20):
        (tmp_path / f"{number}.py").write_text(_GOOD)
    head, _, data = store.refresh(Workspace(tmp_path), str(tmp_path / "none"), 1000, 60, []).partition(b"\n")
    assert json.loads(head) == {"behind": "", "files": 10, "parsed": 10, "truncated": True}
    database = sqlite3.connect(":memory:")
    database.deserialize(data)
    assert database.execute("SELECT count(*) FROM definitions").fetchone() == (10,)


def test_a_round_ends_in_time_and_the_next_one_goes_on(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.py").write_text(_GOOD)
    place = tmp_path / "index.db"
    behind = []
    for _ in range(3):
        head, _, data = store.refresh(Workspace(tmp_path), str(place), 1, 60, []).partition(b"\n")
        place.write_bytes(data)
        behind.append(json.loads(head)["behind"])
    assert behind == ["1.py", "2.py", ""]


async def test_a_cancelled_build_leaves_no_partial_index(tmp_path: Path) -> None:
    root, kept = tmp_path / "work", tmp_path / "kept.db"
    root.mkdir()
    (root / "good.py").write_text(_GOOD)
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, kept)
        assert not await index.wait_ready(0)
        await index.close()
    assert not kept.exists()
    assert (await _index_names(root, kept))[1] == ["good.py"]


async def test_two_runs_may_share_a_cached_index(tmp_path: Path) -> None:
    root, kept = tmp_path / "work", tmp_path / "kept.db"
    root.mkdir()
    (root / "good.py").write_text(_GOOD)
    both = await asyncio.gather(_index_names(root, kept), _index_names(root, kept))
    assert [found for _, found in both] == [["good.py"]] * 2
    names = await asyncio.to_thread(lambda: sorted(path.name for path in tmp_path.iterdir()))
    assert names == ["kept.db", "work"], "no temporary file is left"
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, kept)
        assert await index.wait_ready(60)
        assert index.state.parsed == 0
        await index.close()


async def test_without_room_on_the_disk_there_is_no_index_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(_GOOD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Workspace(tmp_path) as workspace:
        index = WorkspaceIndex(workspace)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            assert not await index.wait_ready(60)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "there is no code index" in index.state.problem
        assert await index.search("good") == await index.find_definitions("good") == []
        assert await index.wait_ready(60), "the next look tries again"
        assert len(await index.find_definitions("good")) == 1
        await index.close()
