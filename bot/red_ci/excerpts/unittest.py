"""unittest, and what is built on it: a rule, `FAIL:` or `ERROR:`, another rule, a traceback. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summaries

_TITLE = matcher(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): \S")
_RULE = matcher(r"^={50,}$|^Ran \d+ tests? in ")
_RAN = matcher(r"^Ran \d+ tests? in ")
_RESULT = matcher(r"^FAILED \(")


def _spans(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _TITLE, _RULE), *summaries(lines, _RAN, _RESULT, most=4)]


TOOL = LogTool(name="unittest", signal=r"^(?:FAIL|ERROR): \S+ \(|^FAILED \((?:failures|errors)=", spans=_spans)
