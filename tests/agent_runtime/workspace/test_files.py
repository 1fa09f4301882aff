from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace import files
from agent_runtime.workspace.files import StagedContent, StagedFile, Workspace, apply_changes
from tests.block_files import BlockFiles


def test_written_files_are_read_back_and_directories_created(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("a/b/c.txt", b"one\0two")
    assert workspace.read_bytes("a/b/c.txt", 100) == b"one\0two"
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == b"one\0two"


def test_a_write_leaves_no_temporary_file(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("x", b"1")
    workspace.write_bytes("x", b"2")
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    workspace.write_bytes("x", b"old")
    monkeypatch.setattr(files, "_write", full)
    with pytest.raises(ToolError, match="disk is full") as told:
        workspace.write_bytes("x", b"new")
    assert told.value.kind == "OSError"
    assert (tmp_path / "x").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_a_file_is_replaced_not_rewritten(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with (tmp_path / "x").open("rb") as reader:
        workspace.write_bytes("x", b"new content")
        assert reader.read() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o444])
def test_mode_bits_survive_a_write(workspace: Workspace, tmp_path: Path, mode: int) -> None:
    (tmp_path / "x").write_bytes(b"")
    (tmp_path / "x").chmod(mode)
    workspace.write_bytes("x", b"new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_a_new_file_gets_the_umask_s_mode_or_the_requested_one(workspace: Workspace, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        workspace.write_bytes("plain", b"")
        workspace.write_bytes("script", b"", mode=0o755)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "script").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_survives_a_write(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    os.chown(tmp_path / "x", 12345, 23456)
    workspace.write_bytes("x", b"new")
    status = (tmp_path / "x").stat()
    assert (status.st_uid, status.st_gid) == (12345, 23456)


def test_a_dangling_link_inside_is_written_through(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("made/target")
    workspace.write_bytes("link", b"x")
    assert (tmp_path / "made" / "target").read_bytes() == b"x"


def test_a_file_over_the_limit_is_refused_with_its_size(workspace: Workspace) -> None:
    workspace.write_bytes("x", b"12345")
    assert workspace.read_bytes("x", 5) == b"12345"
    with pytest.raises(ToolError, match=r"5 bytes, .* 4"):
        workspace.read_bytes("x", 4)


def test_absolute_paths_beneath_the_root_are_relative_ones(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "alias").symlink_to(real)
    with Workspace(tmp_path / "alias", agent_path="/workspace") as workspace:
        for path in ("/workspace/a/x", f"{tmp_path}/alias/a/x", f"{real}/a/x", "./a//x", "b/../a/x"):
            assert workspace.resolve(path) == "a/x"
        assert workspace.resolve("/workspace") == "."
        assert workspace.resolve(".") == "."


def test_the_refusal_of_an_absolute_path_names_the_root_that_the_agent_sees(tmp_path: Path) -> None:
    with Workspace(tmp_path, agent_path="/workspace") as workspace, pytest.raises(ToolError, match="'/workspace'"):
        workspace.resolve("/etc/passwd")


def test_two_names_of_one_file_resolve_alike(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("a/x", b"")
    (tmp_path / "b").symlink_to("a")
    assert workspace.resolve("b/x") == workspace.resolve("./a/../b/x") == "a/x"


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("gone", "FileNotFoundError", "does not exist"),
        ("dir", "IsADirectoryError", "is a directory"),
        ("file/x", "NotADirectoryError", "not a directory"),
        ("n" * 300, "ValueError", "longer than the file system allows"),
    ],
)
def test_unreadable_entries_are_reported(workspace: Workspace, path: str, kind: str, words: str) -> None:
    workspace.write_bytes("dir/x", b"")
    workspace.write_bytes("file", b"")
    with pytest.raises(ToolError, match=words) as told:
        workspace.read_bytes(path, 10)
    assert told.value.kind == kind
    assert repr(path) in str(told.value)


def test_a_directory_cannot_be_written_as_a_file(workspace: Workspace) -> None:
    workspace.write_bytes("dir/x", b"")
    for path in ("dir", ".", "file/x"):
        workspace.write_bytes("file", b"")
        with pytest.raises(ToolError, match="directory"):
            workspace.write_bytes(path, b"")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_reported(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "x").touch(mode=0o000)
    with pytest.raises(ToolError, match="permission denied") as told:
        workspace.read_bytes("x", 10)
    assert told.value.kind == "PermissionError"


def test_existence_and_kinds(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("dir/x", b"123")
    (tmp_path / "dangling").symlink_to("nothing")
    assert [workspace.exists(name) for name in ("dir", "dir/x", "dir/y", "dangling")] == [True, True, False, False]
    assert [workspace.is_directory(name) for name in ("dir", "dir/x", "dir/y")] == [True, False, False]
    assert [workspace.is_file(name) for name in ("dir", "dir/x", "dir/y")] == [False, True, False]
    assert [workspace.size(name) for name in ("dir/x", "dir/y")] == [3, 0]


def test_a_listing_is_sorted_marks_directories_and_leaves_git_out(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("b/x", "a", "c"):
        workspace.write_bytes(name, b"")
    (tmp_path / ".git").mkdir()
    assert workspace.list_directory(".") == ["a", "b/", "c"]


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.close()
    workspace.close()
    with pytest.raises(ToolError):
        workspace.read_bytes("x", 1)


def test_an_unconfined_workspace_reaches_the_user_s_files(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "x").write_bytes(b"outside")
    (inside / "link").symlink_to(outside)
    with Workspace(inside, confined_to_root=False) as workspace:
        assert workspace.read_bytes(str(outside / "x"), 100) == b"outside"
        assert workspace.read_bytes("../out/x", 100) == b"outside"
        assert workspace.read_bytes("link/x", 100) == b"outside"
        assert workspace.resolve("../out/x") == workspace.resolve("link/x") == str(outside.resolve() / "x")
        assert workspace.resolve(str(inside / "a" / "b")) == "a/b"
        workspace.write_bytes(str(outside / "new"), b"1")
        workspace.write_bytes("a/b", b"2")
        assert workspace.list_directory(".") == ["a/", "link"]
        assert workspace.stamp(workspace.resolve("../out/x")) is not None
    assert (outside / "new").read_bytes() == b"1"
    assert (inside / "a" / "b").read_bytes() == b"2"


async def test_the_tools_of_an_unconfined_workspace_work_wherever_their_user_may(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "a.txt").write_text("one\ntwo\n")
    outside = str(tmp_path / "else" / "a.txt")
    with Workspace(tmp_path / "work", confined_to_root=False) as workspace:
        tools = BlockFiles(workspace)
        assert tools.read_file(outside).value == "one\ntwo\n"
        assert tools.read_file("../else/a.txt").value == "one\ntwo\n"
        tools.take("TWO\n", "new\n")
        tools.write(outside, 2, 2, mode="edit")
        tools.write(str(tmp_path / "made" / "b.txt"))
        assert (await tools.list_files("*.txt", str(tmp_path / "else"))).value == [outside]
        search = SearchTools(workspace, Bubblewrap(SandboxSettings()))
        for arguments in ({"scope": "file", "target": outside}, {"target": str(tmp_path / "else")}):
            found = await search.find("TWO", **arguments)  # type: ignore[arg-type] # mypy joins the kinds of arguments
            assert found.value == [{"file": outside, "line": 2, "text": "TWO"}]
    assert (tmp_path / "made" / "b.txt").read_text() == "new\n"


def test_an_unconfined_workspace_still_refuses_git_and_irregular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Workspace(tmp_path, confined_to_root=False) as workspace:
        with pytest.raises(ToolError, match="git directory"):
            workspace.write_bytes("../.git/config", b"")
        with pytest.raises(ToolError, match="'pipe'"):
            workspace.read_bytes("pipe", 10)
        with pytest.raises(ToolError, match="/dev/zero"):
            workspace.read_bytes("/dev/zero", 10)


def test_a_file_is_deleted_but_not_a_directory(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("d/x", b"1")
    with pytest.raises(ToolError, match="'d'") as told:
        workspace.delete("d")
    assert told.value.kind == "IsADirectoryError"
    workspace.delete("d/x")
    with pytest.raises(ToolError, match="'d/x'") as told:
        workspace.delete("d/x")
    assert told.value.kind == "FileNotFoundError"
    assert list(tmp_path.iterdir()) == [tmp_path / "d"]


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}


def test_several_changes_are_applied(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"old")
    apply_changes(
        workspace,
        [
            StagedFile(path="a", data=b"new", old=b"old"),
            StagedFile(path="d/c", data=b"made", old=None, mode=0o755),
            StagedFile(path="b", data=None, old=b"old"),
        ],
    )
    assert tree(tmp_path) == {"a": b"new", "d": None, "d/c": b"made"}
    assert (tmp_path / "d" / "c").stat().st_mode & 0o777 == 0o755


def test_applied_changes_are_reverted_when_a_later_one_fails(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").write_bytes(b"old")
    before = tree(tmp_path)
    changes = [
        StagedFile(path="a", data=b"new", old=b"old", mode=0o600),
        StagedFile(path="made", data=b"new", old=None),
        StagedFile(path="b", data=None, old=b"old"),
        StagedFile(path="gone", data=None, old=b""),
    ]
    with pytest.raises(ToolError, match="'gone' "):
        apply_changes(workspace, changes)
    assert tree(tmp_path) == before
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


class Raced(Workspace):
    """A workspace that another program changes between staging and renaming."""

    def __init__(self, root: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self._meanwhile = meanwhile

    @override
    def stage(self, path: str, data: bytes, *, mode: int | None = None) -> StagedContent:
        staged = super().stage(path, data, mode=mode)
        self._meanwhile()
        return staged


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_concurrent_write_before_the_rename_is_not_lost(tmp_path: Path, name: str) -> None:
    for each in "ab":
        (tmp_path / each).write_text("one\ntwo\nthree\n")
    changes = [StagedFile(path=each, data=b"mine\n", old=b"one\ntwo\nthree\n") for each in "ab"]

    def meanwhile() -> None:
        (tmp_path / name).write_text("one\ntheirs\nthree\n")

    with Raced(tmp_path, meanwhile) as workspace, pytest.raises(ToolError) as told:
        apply_changes(workspace, changes)
    first, *shown = str(told.value).split("\n")
    assert first.startswith(f"{name!r} ")
    assert shown == ["1 | one", "2 | theirs", "3 | three"]
    assert tree(tmp_path) == {each: b"one\ntheirs\nthree\n" if each == name else b"one\ntwo\nthree\n" for each in "ab"}


@pytest.mark.parametrize(
    ("old", "now"), [(b"old\n", None), (b"old\n", b"\0bin"), (None, b"made\n"), (b"old\n", b"x" * 10_000_001)]
)
def test_a_concurrently_changed_file_is_not_overwritten(tmp_path: Path, old: bytes | None, now: bytes | None) -> None:
    def meanwhile() -> None:
        (tmp_path / "a").unlink(missing_ok=True)
        if now is not None:
            (tmp_path / "a").write_bytes(now)

    if old is not None:
        (tmp_path / "a").write_bytes(old)
    with Raced(tmp_path, meanwhile) as workspace, pytest.raises(ToolError, match="'a' "):
        apply_changes(workspace, [StagedFile(path="a", data=b"mine\n", old=old)])
    assert tree(tmp_path) == ({"a": now} if now is not None else {})


def test_a_race_is_reported_and_the_next_edit_refers_to_the_lines_read(tmp_path: Path) -> None:
    def meanwhile() -> None:
        (tmp_path / "a.txt").write_text("zero\none\ntwo\n")

    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with Raced(tmp_path, meanwhile) as workspace:
        tools = BlockFiles(workspace)
        tools.read_file("a.txt")
        tools.take("TWO\n")
        with pytest.raises(ToolError, match=r"(?s)1 \| zero.*payload=1 "):
            tools.write("a.txt", 2, 2, mode="edit")
        tools.take()
        tools.write("a.txt", 2, 2, mode="edit", payload=1)
    assert (tmp_path / "a.txt").read_text() == "zero\none\nTWO\n"


def test_nothing_is_put_in_place_before_all_contents_are_on_the_disk(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    write = files._write

    def fill(descriptor: int, data: bytes) -> None:
        if data == b"large":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, data)

    monkeypatch.setattr(files, "_write", fill)
    with pytest.raises(ToolError, match=r"'x/y/b' .* disk is full"):
        apply_changes(
            workspace,
            [StagedFile(path="a", data=b"new", old=b"old"), StagedFile(path="x/y/b", data=b"large", old=None)],
        )
    assert tree(tmp_path) == {"a": b"old"}


def test_a_file_size_limit_changes_no_file(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_bytes("a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ToolError, match=r"'a' .* larger"):
            workspace.write_bytes("a", b"x" * 5000)
        with pytest.raises(ToolError, match=r"'d/b' .* larger"):
            workspace.write_bytes("d/b", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert tree(tmp_path) == {"a": b"old"}


_ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(root)], check=True)
with Workspace(root) as workspace:
    workspace.write_bytes("a", b"old")
    for path in ("a", "d/b"):
        try:
            workspace.write_bytes(path, b"x" * 200_000)
        except ToolError as error:
            print(error.kind, error)
    print(sorted(str(p.relative_to(root)) for p in root.rglob("*")), (root / "a").read_bytes())
"""


def test_a_full_disk_is_reported_and_changes_no_file(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    argv = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*argv, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        [*argv, sys.executable, "-c", _ON_A_SMALL_DISK, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    full = "could not be written: the disk is full; remove what is not needed"
    assert done.stdout.splitlines() == [f"OSError 'a' {full}", f"OSError 'd/b' {full}", "['a'] b'old'"]
