"""mypy: a line an error, with notes below it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summary_lines

_ERROR = matcher(r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: error: ")
_NOTE = matcher(r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: note: |^    ")
_FOUND = matcher(r"^Found \d+ errors? in \d+ files?")


def _spans(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _ERROR, lambda line: not _NOTE(line)), *summary_lines(lines, _FOUND)]


TOOL = LogTool(
    name="mypy", signal=r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: error: |^Found \d+ errors? in \d+ files?", spans=_spans
)
