from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.workspace import state
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a\n")
    (root / "b.txt").write_text("b\n")
    with Workspace(root) as opened:
        yield opened


def test_the_same_files_have_the_same_digest_whatever_their_times(workspace: Workspace) -> None:
    before = Manifest.of(workspace)
    os.utime(workspace.root / "b.txt", (1, 1))
    after = Manifest.of(workspace)
    assert sorted(before.entries) == ["b.txt", "src/a.py"]
    assert (before.digest, before.difference(after), before.note) == (after.digest, [], "")
    assert len(before.digest) == 64


def test_every_kind_of_change_is_told_in_words(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("gone", "tool", "plain", "kind"):
        (root / name).write_text(name)
    (root / "plain").chmod(0o755)
    (root / "link").symlink_to("b.txt")
    before = Manifest.of(workspace)
    (root / "gone").unlink()
    (root / "tool").chmod(0o755)
    (root / "plain").chmod(0o644)
    (root / "kind").unlink()
    (root / "kind").symlink_to("b.txt")
    (root / "link").unlink()
    (root / "link").symlink_to("/etc/passwd")
    (root / "src" / "a.py").write_text("b\n")
    (root / "src" / "new.py").write_text("")
    os.mkfifo(root / "pipe")
    after = Manifest.of(workspace)
    assert before.digest != after.digest
    assert before.difference(after) == [
        "deleted: gone",
        "now a link: kind",
        "link changed: link",
        "created: pipe",
        "no longer executable: plain",
        "modified: src/a.py",
        "created: src/new.py",
        "made executable: tool",
    ]
    assert before.difference(after, limit=2) == ["deleted: gone", "now a link: kind", "… and 6 more"]


def test_ignored_files_and_gits_own_are_left_out(workspace: Workspace) -> None:
    root = workspace.root
    (root / ".gitignore").write_text("build/\n*.log\n")
    before = Manifest.of(workspace)
    (root / "build").mkdir()
    (root / "build" / "x").write_text("x")
    (root / "x.log").write_text("x")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    assert before.difference(Manifest.of(workspace)) == []
    (root / ".gitignore").write_text("build/\n*.log\nsecret\n")
    assert before.difference(Manifest.of(workspace)) == ["modified: .gitignore"]


def test_no_link_is_followed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (workspace.root / "out").symlink_to(tmp_path / "outside")
    assert Manifest.of(workspace).entries["out"] == f"link {tmp_path / 'outside'}"


def test_it_survives_being_written_down(workspace: Workspace) -> None:
    before = Manifest.of(workspace)
    again = Manifest.from_plain(json.loads(json.dumps(before.to_plain())))
    assert (again, again.digest) == (before, before.digest)
    with pytest.raises(ValueError, match="not the state of a workspace: it has a"):
        Manifest.from_plain({"a": 1})


def test_what_is_beyond_the_bounds_is_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.root / "big").write_bytes(b"x" * 1000)
    monkeypatch.setattr(state, "_MOST_BYTES", 900)
    before = Manifest.of(workspace)
    assert before.unread == 1
    assert before.note == "1 file beyond the first 900 bytes was compared by size and time only"
    (workspace.root / "big").write_bytes(b"x" * 1001)
    assert before.difference(Manifest.of(workspace)) == ["modified: big"]
    monkeypatch.setattr(state, "_MOST_FILES", 2)
    cut = Manifest.of(workspace)
    assert (len(cut.entries), cut.unlisted) == (2, True)
    assert "files beyond the first 2 were not looked at" in cut.note


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(workspace: Workspace) -> None:
    (workspace.root / "src").chmod(0)
    (workspace.root / "b.txt").chmod(0)
    try:
        assert Manifest.of(workspace).entries == {"src/": "unreadable", "b.txt": "unreadable"}
    finally:
        (workspace.root / "src").chmod(0o755)
