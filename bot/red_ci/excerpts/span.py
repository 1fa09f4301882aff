"""Parts of a log that report failures, and the ways to find them that several tools share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import re2

MOST_LINES = 60
"""Of one failure; more is a stack or an output without end."""

Says = Callable[[str], object]
"""Whether a line is of some kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some lines of a log.

    Attributes:
        first: the first line, from 0.
        end: the line behind the last.
        kind: one failure, or a summary of several.
    """

    first: int
    end: int
    kind: Literal["failure", "summary"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTool:
    """How one tool reports failures.

    Attributes:
        name: what people call it.
        signal: a regular expression (RE2) of the lines that a log has only when this tool found a failure.
        spans: finds the failures, in order, and the summaries.
    """

    name: str
    signal: str
    spans: Callable[[Sequence[str]], list[Span]]


def matcher(pattern: str) -> Says:
    """Whether a pattern is found in a line, in linear time."""
    compiled: Any = re2.compile(pattern)
    search: Says = compiled.search
    return search


def blocks(lines: Sequence[str], begins: Says, ends: Says, *, most: int = MOST_LINES) -> list[Span]:
    """From each line that begins a failure to the next one that begins or ends one, without blank lines at its end."""
    found: list[Span] = []
    for start, end in _bounds(lines, begins, ends, most):
        last = next((number for number in range(end - 1, start, -1) if not blank(lines[number])), start)
        found.append(Span(first=start, end=last + 1))
    return found


def _bounds(lines: Sequence[str], begins: Says, ends: Says, most: int) -> Iterator[tuple[int, int]]:
    starts = [number for number, line in enumerate(lines) if begins(line)]
    for start, following in pairwise([*starts, len(lines)]):
        last = min(following, start + most)
        yield start, next((number for number in range(start + 1, last) if ends(lines[number])), last)


def single_lines(lines: Sequence[str], says: Says) -> list[Span]:
    """Each line of a kind as a failure."""
    return [Span(first=number, end=number + 1) for number, line in enumerate(lines) if says(line)]


def summaries(lines: Sequence[str], begins: Says, ends: Says, *, most: int = MOST_LINES) -> list[Span]:
    """`blocks`, of summaries; the line that ends one belongs to it."""
    bounds = _bounds(lines, begins, ends, most)
    return [Span(first=start, end=min(end + 1, len(lines)), kind="summary") for start, end in bounds]


def summary_lines(lines: Sequence[str], says: Says) -> list[Span]:
    """Each line of a kind as a summary."""
    return [Span(first=each.first, end=each.end, kind="summary") for each in single_lines(lines, says)]


def blank(line: str) -> bool:
    """Whether nothing is in it."""
    return not line.strip()


def flush(line: str) -> bool:
    """Whether it begins at the margin."""
    return bool(line) and not line[0].isspace()
