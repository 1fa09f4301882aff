"""The tools whose failures are known, each named once; and the excerpt of a log. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import re2

from bot.red_ci.excerpts import (
    cargo,
    clang,
    eslint,
    gcc,
    go_test,
    gradle,
    jest,
    maven,
    mypy,
    pytest,
    ruff,
    tsc,
    unittest,
    vitest,
)
from bot.red_ci.excerpts.span import LogTool, Span, matcher
from bot.red_ci.log import GAP, gap

TOOLS: tuple[LogTool, ...] = (
    pytest.TOOL,
    unittest.TOOL,
    jest.TOOL,
    vitest.TOOL,
    go_test.TOOL,
    cargo.TOOL,
    maven.TOOL,
    gradle.TOOL,
    tsc.TOOL,
    eslint.TOOL,
    ruff.TOOL,
    mypy.TOOL,
    gcc.TOOL,
    clang.TOOL,
)

is_signal = matcher("|".join(tool.signal for tool in TOOLS))
"""Whether a line is one that some tool prints only for a failure."""

_LAST_LINES = 4
_LINE_CHARS = 600
_HALF = 280
_SMALL_GAP = 2
_SHORT_CHARS = 80


def excerpt(lines: Sequence[str], limit: int) -> tuple[str, int]:
    """The first failures of a log, whole; or its end, where no tool is known that wrote it.

    Args:
        lines: of the log.
        limit: characters; the first failure loses its middle when it alone is longer.

    Returns:
        The text, and how many failures are not in it.
    """
    lines = [line if len(line) <= _LINE_CHARS else f"{line[:_HALF]} […] {line[-_HALF:]}" for line in lines]
    text = "\n".join(lines)
    tools = [tool for tool in TOOLS if re2.search(f"(?m){tool.signal}", text)]
    spans = [span for tool in tools for span in tool.spans(lines)]
    failures = _joined([each for each in spans if each.kind == "failure"])
    if not spans:
        return "\n".join(lines[_tail(lines, limit) :]), 0
    end = Span(first=max(0, len(lines) - _LAST_LINES), end=len(lines), kind="summary")
    summary = _within(lines, _joined([*(each for each in spans if each.kind == "summary"), end]), limit // 4)
    chosen = _within(lines, failures, limit - sum(_size(lines, each) for each in summary))
    # The lines of the spans, with a word for each gap; of a span that is too long, its beginning and its end.
    shown: list[str] = []
    before = 0
    for each in _joined([*chosen, *summary]):
        room = limit // 4 if each.kind == "summary" else limit * 2 // 3
        shown += (*_gap(lines[before : each.first]), *_cut(lines[each.first : each.end], room))
        before = each.end
    return "\n".join([*shown, *_gap(lines[before:])]), len(failures) - len(chosen)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """In order, those that share lines made one: two tools may know the same line."""
    joined: list[Span] = []
    for each in sorted(spans, key=lambda span: (span.first, span.end)):
        if joined and each.first < joined[-1].end:
            last = joined.pop()
            joined.append(Span(first=last.first, end=max(last.end, each.end), kind=last.kind))
        else:
            joined.append(each)
    return joined


def _within(lines: Sequence[str], spans: Sequence[Span], room: int) -> list[Span]:
    """The first of them that find room; at least one, which `excerpt` cuts."""
    chosen: list[Span] = []
    for each in spans:
        room -= _size(lines, each)
        if chosen and room < 0:
            break
        chosen.append(each)
    return chosen


def _size(lines: Sequence[str], span: Span) -> int:
    return sum(len(line) + 1 for line in lines[span.first : span.end])


def _gap(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= _SMALL_GAP and sum(map(len, lines)) <= _SMALL_GAP * _SHORT_CHARS:
        return lines
    already = [GAP.fullmatch(line) for line in lines if line.startswith("[…")]
    return [gap(len(lines) + sum(int(each[1].replace(",", "")) - 1 for each in already if each is not None))]


def _cut(lines: Sequence[str], limit: int) -> Sequence[str]:
    if sum(len(line) + 1 for line in lines) <= limit:
        return lines
    last = _tail(lines, limit // 3)
    first, room = 0, limit - limit // 3
    while first < last and (first == 0 or room > len(lines[first])):
        room -= len(lines[first]) + 1
        first += 1
    return [*lines[:first], *_gap(lines[first:last]), *lines[last:]]


def _tail(lines: Sequence[str], room: int) -> int:
    """The first of the last lines that find room."""
    first = len(lines)
    while first > 0 and (room := room - len(lines[first - 1]) - 1) >= 0:
        first -= 1
    return first
