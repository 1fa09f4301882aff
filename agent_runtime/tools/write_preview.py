"""Preview the changes of a `write_file` call as a diff for people."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.tools import preview
from agent_runtime.tools.changes import FileWrite
from agent_runtime.workspace.text import Text, decode
from agent_runtime.workspace.unified import unified

_PLAIN = re.compile(r"[A-Za-z0-9_./+@-]+")
_HEX = 64
_NO_NEWLINE = "\n\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What becomes of one file: what it is called, what happens in a few words, and the lines that say it all."""

    path: str
    what: str
    lines: list[str]


def of_writes(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    """All files with what becomes of them, and below that the whole diff in git's style; empty where it is too long.

    Args:
        writes: what the planner made of the call.
        replaced: sizes in bytes of the files that are replaced without having been read: no text, or very large.
    """
    moved = {write.origin for write in writes if write.origin is not None}
    before = {write.canonical: write.change.old for write in writes}
    files = [
        _file(write, before.get(write.origin or write.canonical), replaced.get(write.canonical))
        for write in writes
        if write.change.data is not None or write.canonical not in moved
    ]
    if not files:
        return "Nothing would change."
    # First all names: what a long diff pushes out of sight is at least named.
    names = [f"{each.path}: {each.what}" for each in files]
    return preview.whole([*names, "", *(line for each in files for line in each.lines)])


def _file(write: FileWrite, before: bytes | None, replaced: int | None) -> _File:
    path, origin, after = _quoted(write.canonical), _quoted(write.origin or write.canonical), write.change.data
    old = decode(before) if before is not None else None
    new = decode(after) if after is not None else None
    head = [f"diff --git a/{origin} b/{path}"]
    fate = _fate(write, before, replaced)
    if write.origin is not None:
        head += [f"rename from {origin}", f"rename to {path}"]
    elif fate in {"new file", "deleted"}:
        head.append("new file" if fate == "new file" else "deleted file")
    hunks = unified(*_lines(old, new)) if before != after else []
    if hunks:
        told = "\n".join(hunks).split("\n")
    elif before == after:
        told = ["Its content stays as it is."]
    else:
        told = ["It is empty." if not before and not after else "Only how its text is encoded changes."]
    if (before is not None and old is None and before != after) or replaced is not None:
        was = replaced if replaced is not None else len(before or b"")
        head.append(f"Not compared: {was:,} bytes before, {'gone' if after is None else f'{len(after):,} bytes'} after")
        told = told if after else []
    if after is not None and new is None and before != after:
        # Bytes that are no text: as hexadecimal digits, which are at least all of them.
        digits = after.hex()
        told = [f"+{digits[at : at + _HEX]}" for at in range(0, len(digits), _HEX)]
    if hunks:
        sides = ("/dev/null" if before is None and replaced is None else f"a/{origin}", f"b/{path}")
        head += [f"--- {sides[0]}", f"+++ {'/dev/null' if after is None else sides[1]}"]
    added = sum(line.startswith("+") for line in hunks)
    removed = sum(line.startswith("-") for line in hunks)
    return _File(path=path, what=f"{fate}, +{added} -{removed}", lines=[*head, *told])


def _quoted(path: str) -> str:
    """A path, in quotes if anything in it could be taken for the words around it."""
    return path if _PLAIN.fullmatch(path) else repr(path)


def _fate(write: FileWrite, before: bytes | None, replaced: int | None) -> str:
    if write.change.data is None:
        return "deleted"
    if write.origin is not None:
        return f"moved from {_quoted(write.origin)}"
    if replaced is not None:
        return f"replaced whole, {replaced:,} bytes before"
    return "new file" if before is None else "changed"


def _lines(old: Text | None, new: Text | None) -> tuple[list[str], list[str]]:
    """Both texts' lines; with their carriage returns where the two end their lines differently."""
    same = old is None or new is None or old.newline == new.newline
    both: list[list[str]] = []
    for text in (old, new):
        lines: list[str] = []
        if text is not None:
            lines = list(text.lines) if same else text.raw.removesuffix("\n").split("\n") if text.raw else []
            if lines and not text.ends_with_newline:
                lines[-1] += _NO_NEWLINE
        both.append(lines)
    return both[0], both[1]
