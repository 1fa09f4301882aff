from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import files
from agent_runtime.workspace.files import Staged, StagedFile, Workspace, apply_all
from tests.block_files import BlockFiles


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as opened:
        yield opened


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}


def test_several_changes_are_made(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"old")
    apply_all(
        workspace,
        [
            StagedFile(path="a", data=b"new", old=b"old"),
            StagedFile(path="d/c", data=b"made", old=None, mode=0o755),
            StagedFile(path="b", data=None, old=b"old"),
        ],
    )
    assert tree(tmp_path) == {"a": b"new", "d": None, "d/c": b"made"}
    assert (tmp_path / "d" / "c").stat().st_mode & 0o777 == 0o755


def test_what_was_done_is_taken_back_when_a_later_change_fails(workspace: Workspace, tmp_path: Path) -> None:
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
        apply_all(workspace, changes)
    assert tree(tmp_path) == before
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


class Raced(Workspace):
    """A workspace in which someone else is faster: they do something between the staging of a file and its renaming."""

    def __init__(self, root: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self._meanwhile = meanwhile

    @override
    def stage(self, path: str, data: bytes, *, mode: int | None = None) -> Staged:
        staged = super().stage(path, data, mode=mode)
        self._meanwhile()
        return staged


@pytest.mark.parametrize("name", ["a", "b"])
def test_what_someone_else_writes_between_reading_and_renaming_is_not_lost(tmp_path: Path, name: str) -> None:
    for each in "ab":
        (tmp_path / each).write_text("one\ntwo\nthree\n")
    changes = [StagedFile(path=each, data=b"mine\n", old=b"one\ntwo\nthree\n") for each in "ab"]

    def meanwhile() -> None:
        (tmp_path / name).write_text("one\ntheirs\nthree\n")

    with Raced(tmp_path, meanwhile) as workspace, pytest.raises(ToolError) as told:
        apply_all(workspace, changes)
    first, *shown = str(told.value).split("\n")
    assert first.startswith(f"{name!r} ")
    assert shown == ["1 | one", "2 | theirs", "3 | three"]
    assert tree(tmp_path) == {each: b"one\ntheirs\nthree\n" if each == name else b"one\ntwo\nthree\n" for each in "ab"}


@pytest.mark.parametrize(
    ("old", "now"), [(b"old\n", None), (b"old\n", b"\0bin"), (None, b"made\n"), (b"old\n", b"x" * 10_000_001)]
)
def test_a_file_that_someone_else_makes_removes_or_replaces_meanwhile_is_left_alone(
    tmp_path: Path, old: bytes | None, now: bytes | None
) -> None:
    def meanwhile() -> None:
        (tmp_path / "a").unlink(missing_ok=True)
        if now is not None:
            (tmp_path / "a").write_bytes(now)

    if old is not None:
        (tmp_path / "a").write_bytes(old)
    with Raced(tmp_path, meanwhile) as workspace, pytest.raises(ToolError, match="'a' "):
        apply_all(workspace, [StagedFile(path="a", data=b"mine\n", old=old)])
    assert tree(tmp_path) == ({"a": now} if now is not None else {})


def test_a_race_is_told_to_the_agent_whose_next_edit_refers_to_what_it_saw(tmp_path: Path) -> None:
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
        apply_all(
            workspace,
            [StagedFile(path="a", data=b"new", old=b"old"), StagedFile(path="x/y/b", data=b"large", old=None)],
        )
    assert tree(tmp_path) == {"a": b"old"}


def test_a_limit_on_file_size_leaves_everything_as_it_was(workspace: Workspace, tmp_path: Path) -> None:
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


def test_a_full_disk_is_named_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
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
