"""Show a file to the model. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_runtime.workspace.syntax import outline
from agent_runtime.workspace.text import Text

DEFAULT_LINES = 200
_SLACK = 50  # a file this much longer than the default view is shown whole rather than cut near its end
_MOST_CHARS = 40_000
_LINE_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Some lines of a file, ready to be shown.

    Attributes:
        last: the last line shown.
        body: numbered lines, and what is said of the rest.
    """

    last: int
    body: str


def view(
    path: str, text: Text, start: int, end: int | None, outlined: Callable[[str, str, int], list[str]] = outline
) -> View:
    """Show the lines `start` to `end`; without an end about `DEFAULT_LINES`, with an outline of what follows.

    The caller has checked that `1 <= start`, and that `start` and `end` are lines of the file; `outlined` is
    `outline`, or the same for large files.
    """
    wanted = end if end is not None else start + DEFAULT_LINES - 1
    if end is None and text.count - wanted <= _SLACK:
        wanted = text.count
    listing, last = listed(text.first(wanted), start, wanted)
    notes: list[str] = []
    if last < wanted:
        notes.append(f"[cut after {_MOST_CHARS:,} characters: read_file({path!r}, start_line={last + 1}) goes on]")
    elif end is None and last < text.count:
        notes.append(f"[{text.count - last} more lines: read_file({path!r}, start_line={last + 1}) goes on]")
        rest = outlined(path, text.raw, last)
        notes += ["Outline of the rest:", *rest] if rest else []
    return View(last=last, body="\n".join([*listing, *notes]))


def listed(lines: Sequence[str], start: int, end: int) -> tuple[list[str], int]:
    """Number the lines `start` to `end`, as many as fit, at least one; and the number of the last."""
    width = len(str(end))
    shown: list[str] = []
    room = _MOST_CHARS
    for number in range(start, end + 1):
        line = lines[number - 1]
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… [+{len(line) - _LINE_CHARS} characters]"
        room -= len(cut) + width + 4
        if room < 0 and shown:
            return shown, number - 1
        shown.append(f"{number:>{width}} | {cut}" if line else f"{number:>{width}} |")
    return shown, end
