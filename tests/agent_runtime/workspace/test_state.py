from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.workspace import state
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest, Watch

LINES = [f"line {i}" for i in range(1, 101)]


def put(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def age(path: Path) -> None:
    """Make a file old enough for reliable times."""
    os.utime(path, ns=(10**18, 10**18))


def test_no_change_is_reported_without_changes(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "a", LINES)
    watch = Watch(workspace)
    watch.record("a")
    assert watch.take_changes() == []
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o600)
    assert watch.take_changes() == []


def test_unchanged_stamps_need_no_check() -> None:
    with Workspace(Path(__file__).parent) as old:
        watch = Watch(old)
        assert not watch.may_have_changes()
        watch.record(Path(__file__).name)
        watch.record("none.py")
        assert not watch.may_have_changes()


def test_recent_stamps_need_a_check(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "a", LINES)
    watch = Watch(workspace)
    watch.record("a")
    assert watch.may_have_changes()  # so young that its times could not tell a second change
    (tmp_path / "a").unlink()
    assert watch.may_have_changes()
    assert watch.take_changes() == ["Deleted: a"]
    assert not watch.may_have_changes()
    put(tmp_path / "a", LINES)
    assert watch.may_have_changes()


def test_links_are_not_followed_for_stamps(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    watch = Watch(workspace)
    watch.record("there/none")
    assert not watch.may_have_changes()
    (tmp_path / "there").rmdir()
    (tmp_path / "there").symlink_to("elsewhere")
    assert watch.may_have_changes()
    assert watch.take_changes() == []


def test_many_files_may_always_have_changes() -> None:
    with Workspace(Path(__file__).parent) as old:
        watch = Watch(old)
        for number in range(17):
            watch.record(f"none_{number}.py")
        assert watch.may_have_changes()
        assert watch.take_changes() == []


def test_changed_lines_are_reported_once_by_new_numbers(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "main.py", LINES)
    watch = Watch(workspace)
    watch.record("main.py")
    put(tmp_path / "main.py", ["a", "b", "c", "d", *LINES[4:46], "new", *LINES[47:]])
    assert watch.take_changes() == ["Modified: main.py", "Changed lines: 1-4, 47"]
    assert watch.take_changes() == []


def test_removed_lines_are_reported_by_the_line_before(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "a", LINES)
    watch = Watch(workspace)
    watch.record("a")
    put(tmp_path / "a", LINES[:10] + LINES[13:])
    assert watch.take_changes() == ["Modified: a", "Changed lines: after 10 (3 removed)"]


def test_created_and_deleted_files_are_reported(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "old", LINES)
    watch = Watch(workspace)
    watch.record("old")
    watch.record(".env")
    watch.record("never")
    (tmp_path / "old").unlink()
    put(tmp_path / ".env", LINES[:3])
    assert watch.take_changes() == ["Deleted: old", "Created: .env (3 lines)"]
    put(tmp_path / "old", LINES)
    assert watch.take_changes() == ["Created: old (100 lines)"]


def test_unrelated_files_are_not_read(workspace: Workspace, tmp_path: Path) -> None:
    watch = Watch(workspace)
    put(tmp_path / "other", LINES)
    assert watch.take_changes() == []


def test_a_change_with_equal_size_and_time_is_detected(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    age(tmp_path / "a")
    watch = Watch(workspace)
    watch.record("a")
    (tmp_path / "a").write_text("two\n")
    age(tmp_path / "a")
    assert watch.take_changes() == ["Modified: a", "Changed lines: 1"]


def test_a_file_replaced_by_another_of_the_same_content_has_not_changed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    watch = Watch(workspace)
    watch.record("a")
    (tmp_path / "b").write_text("one\n")
    (tmp_path / "b").rename(tmp_path / "a")
    assert watch.take_changes() == []


def test_thirty_ranges_a_file_and_a_hundred_in_all(workspace: Workspace, tmp_path: Path) -> None:
    watch = Watch(workspace)
    for name in "abcde":
        put(tmp_path / name, LINES)
        watch.record(name)
        put(tmp_path / name, [f"{line}!" if i % 2 else line for i, line in enumerate(LINES)])
    told = watch.take_changes()
    counts = [line.count(",") + 1 for line in told if line.startswith("Changed")]
    assert counts == [31, 31, 31, 11, 1]
    assert told[1].startswith("Changed lines: 2, 4, 6, ")
    assert told[1].endswith(", 60, 20 more")
    assert told[-1] == "Changed lines: 50 more"


def test_a_file_turned_binary_or_link_is_reported_without_lines(workspace: Workspace, tmp_path: Path) -> None:
    put(tmp_path / "a", LINES)
    put(tmp_path / "b", LINES)
    watch = Watch(workspace)
    watch.record("a")
    watch.record("b")
    (tmp_path / "a").write_bytes(b"\0\1")
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to("/etc/hostname")
    assert watch.take_changes() == ["Modified: a", "Modified: b"]


def test_only_files_whose_stamp_differs_are_read_again(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        put(tmp_path / f"{i}", LINES)
    watch = Watch(workspace)
    monkeypatch.setattr("agent_runtime.workspace.files._TIME_GRANULARITY", -(10**18))
    for i in range(20):
        watch.record(f"{i}")
    read: list[str] = []

    def read_bytes(path: str, limit: int) -> bytes:
        read.append(path)
        return b""

    monkeypatch.setattr(workspace, "read_bytes", read_bytes)
    put(tmp_path / "7", LINES[:5])
    watch.take_changes()
    assert read == ["7"]


@pytest.fixture
def filled_workspace(tmp_path: Path) -> Iterator[Workspace]:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a\n")
    (root / "b.txt").write_text("b\n")
    with Workspace(root) as opened:
        yield opened


def test_the_digest_ignores_file_times(filled_workspace: Workspace) -> None:
    before = Manifest.scan(filled_workspace)
    os.utime(filled_workspace.root / "b.txt", (1, 1))
    after = Manifest.scan(filled_workspace)
    assert sorted(before.entries) == ["b.txt", "src/a.py"]
    assert (before.digest, before.difference(after), before.note) == (after.digest, [], "")
    assert len(before.digest) == 64


def test_all_kinds_of_change_are_described(filled_workspace: Workspace) -> None:
    root = filled_workspace.root
    for name in ("gone", "tool", "plain", "kind"):
        (root / name).write_text(name)
    (root / "plain").chmod(0o755)
    (root / "link").symlink_to("b.txt")
    before = Manifest.scan(filled_workspace)
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
    after = Manifest.scan(filled_workspace)
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


def test_ignored_files_and_gits_own_are_skipped(filled_workspace: Workspace) -> None:
    root = filled_workspace.root
    (root / ".gitignore").write_text("build/\n*.log\n")
    before = Manifest.scan(filled_workspace)
    (root / "build").mkdir()
    (root / "build" / "x").write_text("x")
    (root / "x.log").write_text("x")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    assert before.difference(Manifest.scan(filled_workspace)) == []
    (root / ".gitignore").write_text("build/\n*.log\nsecret\n")
    assert before.difference(Manifest.scan(filled_workspace)) == ["modified: .gitignore"]


def test_no_link_is_followed(filled_workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (filled_workspace.root / "out").symlink_to(tmp_path / "outside")
    assert Manifest.scan(filled_workspace).entries["out"] == f"link {tmp_path / 'outside'}"


def test_it_survives_being_written_down(filled_workspace: Workspace) -> None:
    before = Manifest.scan(filled_workspace)
    again = Manifest.from_plain(json.loads(json.dumps(before.to_plain())))
    assert (again, again.digest) == (before, before.digest)
    with pytest.raises(ValueError, match="not the state of a workspace: it has a"):
        Manifest.from_plain({"a": 1})


def test_files_beyond_the_bounds_are_reported(filled_workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (filled_workspace.root / "big").write_bytes(b"x" * 1000)
    monkeypatch.setattr(state, "_MAX_BYTES", 900)
    before = Manifest.scan(filled_workspace)
    assert before.unread == 1
    assert before.note == "1 file beyond the first 900 bytes was compared by size and time only"
    (filled_workspace.root / "big").write_bytes(b"x" * 1001)
    assert before.difference(Manifest.scan(filled_workspace)) == ["modified: big"]
    monkeypatch.setattr(state, "_MAX_FILES", 2)
    cut = Manifest.scan(filled_workspace)
    assert (len(cut.entries), cut.unlisted) == (2, True)
    assert "files beyond the first 2 were not looked at" in cut.note


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_entries_are_reported(filled_workspace: Workspace) -> None:
    (filled_workspace.root / "src").chmod(0)
    (filled_workspace.root / "b.txt").chmod(0)
    try:
        assert Manifest.scan(filled_workspace).entries == {"src/": "unreadable", "b.txt": "unreadable"}
    finally:
        (filled_workspace.root / "src").chmod(0o755)
