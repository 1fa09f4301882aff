"""pytest: sections of failures under titles between underscores, and a summary of a line each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summaries

_TITLE = matcher(r"^_+ \S.* _+$")
_RULE = matcher(r"^={3,} .* ={3,}$")
_SECTION = matcher(r"^={3,} (?:FAILURES|ERRORS) ={3,}$")
_CAPTURED = matcher(r"^-{3,} Captured .* -{3,}$")
_SUMMARY = matcher(r"^={3,} short test summary info ={3,}$")
_LAST = matcher(r"^(?:={3,} )?\d+ (?:failed|passed|errors?|skipped|deselected)\b.* in [0-9.]+s")
_BARE = matcher(r"^(?:ImportError while loading conftest|ERROR: \S|INTERNALERROR> Traceback|E   \S+Error)")
_CAPTURED_LINES = 15


def _spans(lines: Sequence[str]) -> list[Span]:
    found = [_shortened(lines, each) for each in blocks(lines, _TITLE, _RULE, most=400) if _TITLE(lines[each.first])]
    if not any(_SECTION(line) for line in lines):
        found = blocks(lines, _BARE, _RULE)
    return [*found, *summaries(lines, _SUMMARY, _LAST, most=200)]


def _shortened(lines: Sequence[str], span: Span) -> Span:
    """Without what the test wrote beyond its first lines: what it says itself stands before that."""
    for number in range(span.first, span.end):
        if _CAPTURED(lines[number]):
            return Span(first=span.first, end=min(span.end, number + _CAPTURED_LINES))
    return span


TOOL = LogTool(
    name="pytest",
    signal=r"^={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}$|^ImportError while loading conftest"
    r"|^ERROR: (?:not found|file or directory not found|usage):|^INTERNALERROR> ",
    spans=_spans,
)
