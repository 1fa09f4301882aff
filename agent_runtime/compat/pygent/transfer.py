"""Copy files between a workspace and another directory, within bounds. No path leaves either of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace

_MOST_FILES, _MOST_BYTES, _FILE_BYTES = 50_000, 1024**3, 256 * 1024**2


def copy(source: Workspace, name: str, target: Workspace, dest: str) -> None:
    """Copy a file, or all files of a directory, over what stands at `dest`; a file into a directory that does.

    A link is copied as the file that it leads to. Links that lead out of the source or to directories are left out, and
    so is what is no file, and a git directory.

    Args:
        source: the directory to copy from.
        name: of the file or directory in it.
        target: the directory to copy to.
        dest: what the copy is called there.

    Raises:
        ToolError: it is too large, or cannot be written there.
    """
    if target.is_directory(dest) and not source.is_directory(name):
        dest = f"{dest}/{PurePath(name).name}"
    room = _MOST_BYTES
    for number, below in enumerate(_files(source, name), 1):
        path = f"{name}{below}"
        data = source.read_bytes(path, _FILE_BYTES)
        room -= len(data)
        if number > _MOST_FILES or room < 0:
            raise ToolError(
                f"{name!r} holds more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes; copy a part of it",
                kind="ValueError",
            )
        target.write_bytes(f"{dest}{below}", data, mode=source.mode(path))


def _files(source: Workspace, name: str) -> Iterator[str]:
    """What follows `name` in the path of each file: nothing for a file itself."""
    if not source.is_directory(name):
        yield ""
        return
    pending = [""]
    while pending:
        above = pending.pop()
        for entry in source.names(f"{name}{above}"):
            below = f"{above}/{entry}"
            if entry.endswith("/"):
                pending.append(below.removesuffix("/"))
            elif _is_file(source, f"{name}{below}"):
                yield below


def _is_file(source: Workspace, path: str) -> bool:
    try:
        return source.is_file(path)
    except ToolError:  # a link that leads out
        return False
