"""The edit engine: a text and line edits in, the new text out. Pure.

Line numbers are the ones of the text as it came, in every edit of a batch. What an edit does not touch keeps every
byte; what it brings gets the file's own line ending, and the file ends with or without a newline as it did before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.text import Text, split


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """Put `text` in place of the lines `start` to `end`.

    Attributes:
        start: first line replaced, from 1.
        end: last line replaced; `start - 1` replaces nothing and inserts before `start`.
        text: the new lines; empty to delete.
    """

    start: int
    end: int
    text: str


def replacement(name: str, start: object, end: object, text: str, count: int) -> LineEdit:
    """An edit of existing lines, checked.

    Args:
        name: how the caller wrote the range, for the error text.
        start: first line.
        end: last line.
        text: the new lines.
        count: lines of the file.

    Raises:
        ToolError: the range is not within the file.
    """
    if not is_whole(start) or not is_whole(end):
        raise ToolError(f"{name}: line numbers must be whole numbers", kind="TypeError")
    if not 1 <= start <= end <= count:
        least = f"it must hold 1 <= start <= end <= {count}" if count else "use mode='w' or mode='a'"
        raise ToolError(f"{name}: out of range; the file has {count} lines, {least}", kind="ValueError")
    return LineEdit(start=start, end=end, text=text)


def insertion(after: object, text: str, count: int) -> LineEdit:
    """An insertion after a line, 0 for the top, checked.

    Raises:
        ToolError: there is no such line.
    """
    if not is_whole(after):
        raise ToolError("after_line must be a whole number", kind="TypeError")
    if not 0 <= after <= count:
        raise ToolError(f"after_line={after}: must be 0 (the top) to {count} (the last line)", kind="ValueError")
    return LineEdit(start=after + 1, end=after, text=text)


def apply(text: Text, edits: Sequence[LineEdit]) -> str:
    """Make all edits, or none.

    Raises:
        ToolError: two edits touch the same lines.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for before, after in pairwise(ordered):
        if after.start <= before.end:
            raise ToolError(
                f"edits overlap: lines {before.start}-{before.end} and {after.start}-{after.end}; "
                "give every line to one edit only",
                kind="ValueError",
            )
    carriage = text.newline.removesuffix("\n")
    pieces = list(text.lines) if text.newline == "\n" else split(text.raw)
    if pieces and not text.ends_with_newline:
        pieces[-1] += carriage
    for edit in reversed(ordered):
        pieces[edit.start - 1 : edit.end] = [line + carriage for line in lines_of(edit.text)]
    if not pieces:
        return ""
    if text.ends_with_newline:
        return "\n".join(pieces) + "\n"
    pieces[-1] = pieces[-1].removesuffix(carriage)
    return "\n".join(pieces)


def append(text: Text, payload: str) -> str:
    """Add lines at the end; a last line without a newline gets one first, so that no two lines are joined.

    The end is then the payload's own: with or without a newline as it was written.
    """
    added = payload.replace("\r\n", "\n").replace("\n", text.newline)
    joint = "" if text.ends_with_newline or not added else text.newline
    return text.raw + joint + added


def lines_of(payload: str) -> list[str]:
    """A payload's lines, whatever its line endings."""
    return split(payload.replace("\r\n", "\n"))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value can be a line number's type."""
    return isinstance(value, int) and not isinstance(value, bool)
