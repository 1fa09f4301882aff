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
    found: list[Span] = []
    for each in blocks(lines, _TITLE, _RULE, most=400):
        if _TITLE(lines[each.first]):
            # Of what the test wrote only the first lines: what it says itself stands before that.
            captured = next((number for number in range(each.first, each.end) if _CAPTURED(lines[number])), each.end)
            found.append(Span(first=each.first, end=min(each.end, captured + _CAPTURED_LINES)))
    if not any(_SECTION(line) for line in lines):
        found = blocks(lines, _BARE, _RULE)
    return [*found, *summaries(lines, _SUMMARY, _LAST, most=200)]


TOOL = LogTool(
    name="pytest",
    signal=r"^={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}$|^ImportError while loading conftest"
    r"|^ERROR: (?:not found|file or directory not found|usage):|^INTERNALERROR> ",
    spans=_spans,
)
