"""`go test`, `go build` and `go vet`: `--- FAIL:` with indented lines below, or before it with -v; panics. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import MOST_LINES, LogTool, Span, blocks, flush, matcher, single_lines, summary_lines

_FAIL = matcher(r"^\s*--- FAIL: \S")
_PANIC = matcher(r"^(?:panic: |fatal error: |WARNING: DATA RACE)")
_PANIC_END = matcher(r"^(?:FAIL\s|FAIL$|exit status \d|={10,})")
_COMPILE = matcher(r"^(?:vet: )?\S+\.go:\d+(?::\d+)?: ")
_PACKAGE = matcher(r"^FAIL\t\S")


def _spans(lines: Sequence[str]) -> list[Span]:
    failures = [_whole(lines, each) for each in blocks(lines, _FAIL, flush)]
    panics = blocks(lines, _PANIC, _PANIC_END)
    return [*failures, *panics, *single_lines(lines, _COMPILE), *summary_lines(lines, _PACKAGE)]


def _whole(lines: Sequence[str], span: Span) -> Span:
    """With what `-v` prints of the test before its verdict."""
    name = lines[span.first].split("--- FAIL: ", 1)[1].split(" ", 1)[0]
    for number in range(span.first - 1, max(-1, span.first - MOST_LINES), -1):
        if lines[number].split() == ["===", "RUN", name]:
            return Span(first=number, end=span.end)
        if "--- FAIL: " in lines[number] or "--- PASS: " in lines[number]:
            break
    return span


TOOL = LogTool(
    name="go test",
    signal=r"^\s*--- FAIL: \S|^FAIL\t\S|^panic: |^(?:vet: )?\S+\.go:\d+:\d+: |^WARNING: DATA RACE",
    spans=_spans,
)
