"""Vitest: ` FAIL ` and the test, what went wrong, the code, a rule. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summaries

_TITLE = matcher(r"^ FAIL  \S")
_RULE = matcher(r"^⎯{5,}")
_TOTALS = matcher(r"^ Test Files  ")
_TESTS = matcher(r"^      Tests  ")


def _spans(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _TITLE, _RULE), *summaries(lines, _TOTALS, _TESTS, most=4)]


TOOL = LogTool(name="vitest", signal=r"^ FAIL  \S|⎯ Failed (?:Tests|Suites) \d", spans=_spans)
