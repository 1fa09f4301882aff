"""ESLint: a file, and below it a line a problem; those that are mere warnings fail nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, flush, matcher, summary_lines

_ROW = matcher(r"^\s+\d+:\d+\s+error\s+\S")
_ANY_ROW = matcher(r"^\s+\d+:\d+\s+(?:error|warning)\s+\S")
_TOTAL = matcher(r"^✖ \d+ problems? ")


def _spans(lines: Sequence[str]) -> list[Span]:
    found, file = [], -1
    for number, line in enumerate(lines):
        if flush(line):
            file = number
        elif _ROW(line):
            # The file's name goes with its first error, if that is near; rows before that one are warnings.
            is_near = file >= 0 and number - file <= 5 and all(map(_ANY_ROW, lines[file + 1 : number]))  # noqa: PLR2004 - a few
            found.append(Span(first=file if is_near else number, end=number + 1))
            file = -1
    return [*found, *summary_lines(lines, _TOTAL)]


TOOL = LogTool(
    name="eslint", signal=r"^\s+\d+:\d+\s+error\s+\S.*  \S+$|^✖ \d+ problems? \([1-9]\d* errors?", spans=_spans
)
