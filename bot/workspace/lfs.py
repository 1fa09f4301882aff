"""Files that belong in Git LFS: a pointer is in the commit, and the object is kept until it is uploaded.

https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from bot.workspace.change import FileChange, LargeFile

_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\n"
    rb"(?:ext-[0-9]-[\w.-]+ sha256:[0-9a-f]{64}\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n"
    rb"size (?P<size>[0-9]{1,15})\n?"
)
_LONGEST_POINTER = 1024
_CHUNK = 1024 * 1024
_OVERLAP = 4096


def pointer(oid: str, size: int) -> bytes:
    """What is in the commit for an object."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()


def parse_pointer(content: bytes | None) -> tuple[str, int] | None:
    """The id and the size of the object that a pointer stands for; None for anything else."""
    if content is None or len(content) >= _LONGEST_POINTER:
        return None
    match = _POINTER.fullmatch(content)
    return (match["oid"].decode(), int(match["size"])) if match else None


def put_aside(staging: Path, staged: Sequence[tuple[bytes, str]], large: Collection[bytes], objects: Path) -> None:
    """Put pointers in the place of files that belong in LFS.

    Args:
        staging: holds the numbered copies of the changed files.
        staged: path and mode of each, by number.
        large: the paths that belong in LFS.
        objects: where the contents go, each under its id.
    """
    for number, (path, mode) in enumerate(staged):
        copy = staging / str(number)
        if path not in large or mode == "120000":
            continue
        with copy.open("rb") as file:
            if not file.peek(1) or parse_pointer(file.peek(_LONGEST_POINTER)[:_LONGEST_POINTER]):
                continue  # git-lfs, too, leaves an empty file and a pointer as they are
            oid = hashlib.file_digest(file, "sha256").hexdigest()
        size = copy.stat().st_size
        os.replace(copy, objects / oid)  # noqa: PTH105 - the name is hexadecimal
        copy.write_bytes(pointer(oid, size))


def pointers(files: Iterable[FileChange]) -> list[LargeFile]:
    """Those of the changed files that are pointers now."""
    found = ((file.path, parse_pointer(file.content)) for file in files if file.new_mode != "120000")
    return [LargeFile(path=path, oid=read[0], size=read[1]) for path, read in found if read is not None]


def any_chunk(path: Path, holds: Callable[[str], bool]) -> bool:
    """Whether `holds` is true of a part of a file, of which a megabyte is read at a time; not of one that is absent."""
    if not path.is_file():
        return False
    before = ""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            text = chunk.decode("latin-1")
            if holds(before + text):
                return True
            before = text[-_OVERLAP:]
    return False
