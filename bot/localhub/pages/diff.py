"""A unified difference as rows for a table. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line; a line number is None on the side where the line is not."""

    kind: Literal["hunk", "added", "removed", "same", "note"]
    old: int | None
    new: int | None
    text: str


def rows(patch: str) -> list[Row]:
    """The rows of one file's hunks."""
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
