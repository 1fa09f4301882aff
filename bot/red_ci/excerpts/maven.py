"""Maven with its compiler and Surefire: lines under `[ERROR]`, and the stack below a failed test. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blank, blocks, matcher, summaries, summary_lines

_TEST = matcher(r"<<< (?:FAILURE|ERROR)!\s*$")
_TOTAL = matcher(r"^(?:\[ERROR\] )?Tests run: ")
_TEST_END = matcher(r"^\[(?:INFO|ERROR|WARNING)\]|^\s*$")
_COMPILE = matcher(r"^\[ERROR\] \S+:\[\d+,\d+\] ")
_COMPILE_END = matcher(r"^\[INFO\]|^\[ERROR\]\s*$|^\[ERROR\] \S")
_RESULTS = matcher(r"^\[ERROR\] (?:Failures|Errors):\s*$")
_GOAL = matcher(r"^\[ERROR\] Failed to execute goal ")
_TEST_LINES = 25


def _spans(lines: Sequence[str]) -> list[Span]:
    tests = blocks(lines, lambda line: _TEST(line) and not _TOTAL(line), _TEST_END, most=_TEST_LINES)
    # The lines, what the compiler said taken out where Maven says it once more at the end.
    end = next((number for number, line in enumerate(lines) if _GOAL(line)), len(lines))
    compiling = blocks([*lines[:end], *("" for _ in lines[end:])], _COMPILE, _COMPILE_END)
    results = summaries(lines, _RESULTS, lambda line: blank(line) or _TOTAL(line))
    return [*tests, *compiling, *results, *summary_lines(lines, _GOAL)]


TOOL = LogTool(
    name="maven",
    signal=r"^\[ERROR\] (?:Tests run: |Failed to execute goal |\S+:\[\d+,\d+\] )|<<< (?:FAILURE|ERROR)!\s*$",
    spans=_spans,
)
