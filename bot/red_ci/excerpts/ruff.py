"""Ruff, and Flake8, which prints as `ruff --output-format concise` does: a line or a block a finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import MOST_LINES, LogTool, Span, blank, matcher, single_lines, summary_lines

_LINE = matcher(r"^\S+:\d+:\d+: (?:[A-Z]{1,6}\d{2,4}|[a-z-]+:) ")
_PLACE = matcher(r"^\s+--> \S+\.(?:pyi?|ipynb|toml):")
_TITLE = matcher(r"^(?:[A-Z]{1,6}\d{2,4}|invalid-syntax|unformatted|[a-z-]+)\b")
_FILE = matcher(r"^Would reformat: \S")
_FOUND = matcher(r"^Found \d+ errors?\b|^\d+ files? would be reformatted|^\[\*\] \d+ fixable")


def _spans(lines: Sequence[str]) -> list[Span]:
    findings: list[Span] = []
    for title, line in enumerate(lines[:-1]):
        if _PLACE(lines[title + 1]) and _TITLE(line):
            last = min(len(lines), title + MOST_LINES)
            end = next((number for number in range(title, last) if blank(lines[number])), last)
            findings.append(Span(first=title, end=end))
    return [*findings, *single_lines(lines, _LINE), *single_lines(lines, _FILE), *summary_lines(lines, _FOUND)]


TOOL = LogTool(
    name="ruff",
    signal=r"^\S+:\d+:\d+: [A-Z]{1,6}\d{2,4} |^\s+--> \S+\.(?:pyi?|ipynb|toml):|^Would reformat: \S"
    r"|^Found \d+ errors?\.|^\d+ files? would be reformatted",
    spans=_spans,
)
