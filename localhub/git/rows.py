"""A file's unified difference as rows, and where a comment on one of its lines belongs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from localhub.state.model import Side

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the patch; a line number is None on the side where the line is not."""

    kind: Literal["hunk", "added", "removed", "same", "note"]
    old: int | None
    new: int | None
    text: str


def rows(patch: str) -> list[Row]:
    """The rows of one file's hunks, one for each line of the patch: the index of a row is GitHub's `position`."""
    found: list[Row] = []
    old = new = 0
    for line in patch.split("\n"):
        mark, text = line[:1], line[1:]
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
            found.append(Row(kind="hunk", old=None, new=None, text=line))
        elif mark == "+":
            found.append(Row(kind="added", old=None, new=new, text=text))
            new += 1
        elif mark == "-":
            found.append(Row(kind="removed", old=old, new=None, text=text))
            old += 1
        elif mark == "\\":
            found.append(Row(kind="note", old=None, new=None, text=line[2:]))
        else:
            found.append(Row(kind="same", old=old, new=new, text=text))
            old, new = old + 1, new + 1
    return found


def position(found: list[Row], line: int, side: Side) -> int | None:
    """The index of the row that shows this line on this side; None when the difference does not show it."""
    for at, row in enumerate(found):
        if line == (row.old if side == "LEFT" else row.new):
            return at
    return None


def hunk_start(found: list[Row], at: int) -> int:
    """The index of the header of the hunk that a row is in."""
    return max(index for index, row in enumerate(found[: at + 1]) if row.kind == "hunk")


def excerpt(patch: str, at: int) -> str:
    """A hunk from its header down to a row: GitHub's `diff_hunk`."""
    return "\n".join(patch.split("\n")[hunk_start(rows(patch), at) : at + 1])
