"""Where lines that someone saw stand now. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_NEIGHBOURS = [(0, 0), *(pair for n in range(1, 9) for pair in ((n, n), (n, 0), (0, n)))]
"""How many lines before and after a block are taken with it, one try after the other."""


def rebase(seen: Sequence[str], now: Sequence[str], start: int, end: int) -> int | None:
    """By how many lines the block `start`..`end` (from 1, inclusive) moved between two versions of a file.

    None when that is not certain: the block must lie in the part before or behind everything that changed, or it must,
    alone or with some of its neighbours, stand exactly once in either version.
    """
    if end <= _common(seen, now):
        return 0
    moved = len(now) - len(seen)
    if len(seen) - start + 1 <= _common(seen[::-1], now[::-1]):
        return moved
    for before, after in _NEIGHBOURS:
        first = max(0, start - 1 - before)
        block = list(seen[first : min(len(seen), end + after)])
        here = _places(now, block)
        if len(here) == 1 and len(_places(seen, block)) == 1:
            return here[0] - first
    return None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two versions share at the beginning."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _places(lines: Sequence[str], block: Sequence[str]) -> list[int]:
    size = len(block)
    return [i for i in range(len(lines) - size + 1) if lines[i] == block[0] and list(lines[i : i + size]) == block]
