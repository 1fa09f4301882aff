"""Which lines of which files a diff shows: where GitHub takes a comment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bot.github.drafts import Side

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class DiffLines:
    """The lines that are shown, by file and side: the number of each with the number of its hunk."""

    shown: dict[tuple[str, Side], dict[int, int]] = field(default_factory=dict)

    def hold(self, path: str, side: Side, first: int, last: int) -> bool:
        """Whether these lines are shown in one hunk; GitHub refuses a comment on others."""
        lines = self.shown.get((path, side), {})
        return first <= last and first in lines and lines.get(last) == lines[first]


def diff_lines(diff: str) -> DiffLines:
    """Read a diff as git writes it, its end may be missing."""
    found = DiffLines()
    lines = iter(diff.split("\n"))
    before = after = ""
    number = 0
    for line in lines:
        if line.startswith("diff --git "):
            before = after = ""
        elif line.startswith("--- "):
            before = _path(line)
        elif line.startswith("+++ "):
            after = _path(line)
        elif (start := _HUNK.match(line)) is not None:
            number += 1
            # A file goes by its name after the change, on both sides, unless it is gone.
            _read_hunk(found, lines, start, after or before, number)
    return found


def _read_hunk(found: DiffLines, lines: Iterator[str], start: re.Match[str], path: str, number: int) -> None:
    """Note the lines of one hunk; its head says how many there are, whatever they look like."""
    old, new = int(start[1]), int(start[3])
    old_end, new_end = old + int(start[2] or 1), new + int(start[4] or 1)
    while old < old_end or new < new_end:
        mark = next(lines, "")[:1]
        if mark not in {" ", "-", "+", "\\"}:
            return
        if mark in {" ", "-"}:
            found.shown.setdefault((path, "LEFT"), {})[old] = number
            old += 1
        if mark in {" ", "+"}:
            found.shown.setdefault((path, "RIGHT"), {})[new] = number
            new += 1


def _path(line: str) -> str:
    """The name in a `---` or `+++` line without its `a/` or `b/`; empty for `/dev/null`."""
    name = line[4:].rstrip("\t")
    if name.startswith('"') and name.endswith('"'):
        raw = _ESCAPE.sub(_unescaped, name[1:-1].encode("utf-8", "replace"))
        name = raw.decode("utf-8", "replace")
    return "" if name == "/dev/null" else name[2:]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    # https://git-scm.com/docs/git-config#Documentation/git-config.txt-corequotePath
    if len(escape[1]) > 1:
        return bytes([int(escape[1], 8) & 0xFF])
    return _NAMED.get(escape[1], escape[1])
