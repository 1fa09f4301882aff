"""A change as a unified diff, for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.workspace.diffs import changed_spans

_CONTEXT = 3

_Span = tuple[int, int, int, int]


def unified(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The hunks that make one text of another, three lines of context each; none when nothing changed.

    Args:
        before: lines; one that keeps its line ending has one that the others have not.
        after: the same of the new text.
    """
    hunks: list[str] = []
    groups: list[list[_Span]] = []
    for span in changed_spans(before, after):  # changes whose contexts touch, together
        if groups and span[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(span)
        else:
            groups.append([span])
    for group in groups:
        (first, _, new_first, _), (_, last, _, new_last) = group[0], group[-1]
        lead, trail = min(_CONTEXT, first), min(_CONTEXT, len(before) - last)
        old = _range(first - lead, last + trail)
        hunks.append(f"@@ -{old} +{_range(new_first - lead, new_last + trail)} @@")
        at = first - lead
        for a, b, c, d in group:
            hunks += [f" {line}" for line in before[at:a]]
            hunks += [f"-{line}" for line in before[a:b]]
            hunks += [f"+{line}" for line in after[c:d]]
            at = b
        hunks += [f" {line}" for line in before[at : last + trail]]
    return hunks


def unified_text(before: Sequence[str], after: Sequence[str], most: int) -> str:
    """The same as one text, of which the middle is left out beyond `most` characters."""
    text = "\n".join(unified(before, after)) or "(only line endings or the last newline changed)"
    half = most // 2
    cut = f"{text[:half]}\n... [{len(text) - 2 * half} characters truncated] ...\n{text[-half:]}"
    return text if len(text) <= most else cut


def _range(start: int, end: int) -> str:
    """A range as diffs write it: the first line, from 1, and how many; an empty one names the line before it."""
    return f"{start + (end > start)},{end - start}"
