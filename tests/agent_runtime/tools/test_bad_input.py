"""Invalid arguments of the file tools: the error names them, and nothing is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import files
from agent_runtime.workspace.files import Workspace
from tests.block_files import BlockFiles, call

_NOBODY = 65534


class Tools:
    """The tools as called by control code."""

    def __init__(self, workspace: Workspace) -> None:
        self.files = BlockFiles(workspace)
        self.registry = self.files.registry

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - wrong types, too
        self.files.take("x\n", "y\n")
        tool = self.registry.get(name)
        return await call(tool, tool.bind(args, kwargs))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")
    os.mkfifo(tmp_path / "pipe")
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def tools(root: Path) -> Iterator[Tools]:
    with Workspace(root) as workspace:
        yield Tools(workspace)


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Drop root's privileges, which ignore file modes."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {}, "missing a required argument: 'path'"),
    ("read_file", {"path": 3}, "argument path.str: Input should be a valid string"),
    ("read_file", {"path": ""}, "path must name a file"),
    ("read_file", {"path": "a.txt", "start_line": "x"}, "argument start_line: Input should be a valid integer"),
    ("read_file", {"path": "a.txt", "start_line": 0}, "start_line=0: must be 1 to 3"),
    ("read_file", {"path": "a.txt", "start_line": -3}, "start_line=-3: must be 1 to 3"),
    ("read_file", {"path": "a.txt", "start_line": 4}, "start_line=4: must be 1 to 3"),
    ("read_file", {"path": "a.txt", "end_line": 1.5}, "argument end_line"),
    ("read_file", {"path": "a.txt", "start_line": 2, "end_line": 1}, "end_line=1: must be at least start_line=2"),
    ("read_file", {"path": "gone.txt"}, "'gone.txt' does not exist"),
    ("read_file", {"path": "d"}, "'d' is a directory"),
    ("read_file", {"path": "b.bin"}, "'b.bin' is a binary file"),
    ("read_file", {"path": "pipe"}, "'pipe' is not a regular file"),
    ("read_file", {"path": "a.txt/x"}, "something that is not a directory"),
    ("read_file", {"path": "a.txt", "limit": 3}, "unexpected keyword argument 'limit'"),
    ("write_file", {}, "path must name the file"),
    ("write_file", {"path": None}, "argument path"),
    ("write_file", {"path": "d"}, "'d' is a directory"),
    ("write_file", {"path": "pipe"}, "'pipe' is not a regular file"),
    ("write_file", {"path": "a.txt/x"}, "something that is not a directory"),
    ("write_file", {"path": "a.txt", "mode": "W"}, "argument mode: Input should be 'w', 'a', 'edit'"),
    ("write_file", {"path": "a.txt", "mode": "edit", "start_line": "x", "end_line": 1}, "argument start_line"),
    ("write_file", {"path": "a.txt", "mode": "edit", "start_line": 1, "end_line": []}, "argument end_line"),
    ("write_file", {"path": "a.txt", "mode": "edit", "start_line": 1, "end_line": 4}, "1 <= start <= end <= 3"),
    ("write_file", {"path": "a.txt", "mode": "insert", "after_line": {}}, "argument after_line"),
    ("write_file", {"path": "a.txt", "mode": "insert", "after_line": 4}, r"after_line=4: must be 0 \(the top\) to 3"),
    ("write_file", {"path": "a.txt", "mode": "multi_edit", "edits": "x"}, "argument edits"),
    ("write_file", {"path": "a.txt", "mode": "multi_edit", "edits": [(1,)]}, r"argument edits\.0"),
    ("write_file", {"path": "a.txt", "mode": "multi_edit", "edits": [("x", 2)]}, r"argument edits\.0\.0"),
    ("write_file", {"path": "a.txt", "version": 3}, "argument version"),
    ("write_file", {"path": "a.txt", "force": "perhaps"}, "argument force"),
    ("write_file", {"path": "a.txt", "payload": "x"}, "argument payload"),
    ("write_file", {"path": "a.txt", "payload": -1}, "payload=-1: must be the number of a write that was refused"),
    ("list_files", {"pattern": 3}, "argument pattern"),
    ("list_files", {"pattern": ""}, "pattern='': must be a glob"),
    ("list_files", {"pattern": "!x"}, "pattern='!x': must be a glob"),
    ("list_files", {"path": 3}, "argument path"),
    ("list_files", {"path": "gone"}, "path='gone' does not exist"),
    ("list_files", {"path": "a.txt"}, "path='a.txt' is not a directory"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), WRONG)
async def test_a_wrong_argument_is_named(
    root: Path, tools: Tools, name: str, arguments: dict[str, Any], words: str
) -> None:
    before = tree(root)
    with pytest.raises(ToolError, match=words):
        await tools.call(name, **arguments)
    assert tree(root) == before


async def test_a_file_without_permission_is_named(root: Path, tools: Tools) -> None:
    (root / "secret.txt").write_text("1\n")
    (root / "secret.txt").chmod(0)
    with ordinary_user():
        for name, arguments in (
            ("read_file", {"path": "secret.txt"}),
            ("write_file", {"path": "secret.txt", "mode": "edit", "start_line": 1, "end_line": 1}),
        ):
            with pytest.raises(ToolError, match=r"'secret\.txt'") as told:
                await tools.call(name, **arguments)
            assert told.value.kind == "PermissionError"
    (root / "secret.txt").chmod(0o600)
    assert (root / "secret.txt").read_text() == "1\n"


async def test_a_directory_without_permission_is_named_and_left_alone(root: Path, tools: Tools) -> None:
    (root / "d").chmod(0o555)
    with ordinary_user():
        for path in ("d/new.txt", "d/e/new.txt"):
            with pytest.raises(ToolError, match=f"'{path}'") as told:
                await tools.call("write_file", path=path)
            assert told.value.kind == "PermissionError"
    (root / "d").chmod(0o755)
    assert list((root / "d").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full; remove what is not needed"),
        (errno.EDQUOT, "the disk quota is used up; remove what is not needed"),
        (errno.EFBIG, "larger than this process may make a file"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
async def test_a_disk_that_refuses_is_named_and_leaves_all_as_it_was(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def refuse(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:1])
        raise OSError(code, os.strerror(code))

    before = tree(root)
    monkeypatch.setattr(files, "_write", refuse)
    for path in ("a.txt", "n/e/w.txt"):
        with pytest.raises(ToolError, match=words):
            await tools.call("write_file", path=path)
    assert tree(root) == before
