"""TypeScript's compiler: a line an error, or, for people, with the code below it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, flush, matcher, summary_lines

_PLAIN = matcher(r"^\S.*\(\d+,\d+\): error TS\d+: |^error TS\d+: ")
_PRETTY = matcher(r"^\S+:\d+:\d+ - error TS\d+: ")
_FOUND = matcher(r"^Found \d+ errors? ")
_CODE = matcher(r"^\d+ ")


def _spans(lines: Sequence[str]) -> list[Span]:
    plain = blocks(lines, _PLAIN, flush)
    pretty = blocks(lines, _PRETTY, lambda line: flush(line) and not _CODE(line), most=20)
    return [*plain, *pretty, *summary_lines(lines, _FOUND)]


TOOL = LogTool(name="tsc", signal=r"\berror TS\d+: ", spans=_spans)
