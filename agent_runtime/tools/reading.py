"""Render a file for a call of `read_file`."""

from __future__ import annotations

import json

from agent_runtime.core.calls import ListedLines, ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.tools import parsing
from agent_runtime.workspace.edits import is_whole
from agent_runtime.workspace.overlay import TextFile
from agent_runtime.workspace.text import Text
from agent_runtime.workspace.views import view

_NEAR = 256_000  # characters; what is longer is cut into lines in a worker process
_SECONDS = 10.0
_MEMORY = 200 * 1024**2


def shown(path: str, file: TextFile, start: int, end: int | None) -> ToolResult:
    """Some lines of a file: numbered for the model, as they are for its code.

    Raises:
        ToolError: a line number is out of range.
        BoundExceededError: so many lines take too much room.
    """
    text = file.text
    if len(text.raw) <= _NEAR:
        head, last, value = _shown(path, text, file.version, start, end)
    else:
        given = (path, text, file.version, start, end)
        told = call_bounded(_packed, *given, seconds=_SECONDS, memory=_MEMORY, what=f"Reading {path!r}")
        first, _, value = told.partition("\n")
        head, last = json.loads(first)
    lines = ListedLines(path=path, first=start, last=last) if last >= start else None
    return ToolResult(value=value, text=head, lines=lines)


def _packed(path: str, text: Text, version: str, start: int, end: int | None) -> str:
    head, last, value = _shown(path, text, version, start, end)
    return f"{json.dumps([head, last])}\n{value}"


def _shown(path: str, text: Text, version: str, start: int, end: int | None) -> tuple[str, int, str]:
    count = text.count
    if not is_whole(start) or not (end is None or is_whole(end)):
        raise ToolError("start_line and end_line must be whole numbers", kind="TypeError")
    if not 1 <= start <= max(1, count):
        raise ToolError(f"start_line={start}: must be 1 to {max(1, count)}, the file's last line", kind="ValueError")
    if end is not None and end < start:
        raise ToolError(f"end_line={end}: must be at least start_line={start}", kind="ValueError")
    last = count if end is None else min(end, count)
    body = view(path, text, start, last if end is not None else None, parsing.outline)
    span = f"lines {start}–{body.last} of {count}" if count else "empty"  # noqa: RUF001 - the dash of a range
    about = ", ".join(note for note in (span, f"version {version}", text.peculiarities) if note)
    wanted = text.first(last)[start - 1 : last]
    closed = last < count or text.ends_with_newline
    head = f"[read_file] {path!r} ({about})" + (f"\n{body.body}" if body.body else "")
    # A stated range that is cut here may be cut again by the step's bound, which then names all that is missing.
    return head, body.last if end is None else last, "\n".join(wanted) + ("\n" if wanted and closed else "")
