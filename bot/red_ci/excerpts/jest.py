"""Jest: a block under `●` for each failed test, some of them said twice. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summaries, summary_lines

_TITLE = matcher(r"^  ● (?:[^C]|C[^o]|Co[^n]|Con[^s])")  # not `● Console`
_END = matcher(r"^(?:Test Suites: |(?:FAIL|PASS) \S|Summary of all failing tests|  ● Console)")
_FILE = matcher(r"^FAIL \S")
_TOTALS = matcher(r"^Test Suites: ")
_TIME = matcher(r"^Time: ")


def _spans(lines: Sequence[str]) -> list[Span]:
    seen: set[str] = set()
    failures = []
    for each in blocks(lines, _TITLE, _END):
        if lines[each.first] not in seen:
            seen.add(lines[each.first])
            failures.append(each)
    return [*failures, *summary_lines(lines, _FILE), *summaries(lines, _TOTALS, _TIME, most=5)]


TOOL = LogTool(name="jest", signal=r"^FAIL \S+\.[cm]?[jt]sx?\b|^  ● |^Test Suites: \d+ failed", spans=_spans)
