"""Clang with its linkers: as GCC, but the code below an error begins at the margin, and errors are counted. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, matcher, summary_lines

_ERROR = matcher(r"^\S+:\d+:\d+: (?:fatal error|error): ")
_OTHER = matcher(r"^\S+:\d+:\d+: warning: |^\d+ (?:error|warning)s?\b.* generated\.$|^\s*$")
_LINKER = matcher(r"^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: |^ld: symbol\(s\) not found")
_LINKER_END = matcher(r"^clang(?:\+\+)?: error: |^ld: symbol")
_LAST = matcher(r"^clang(?:\+\+)?: error: |^\d+ (?:error|warning)s?\b.* generated\.$")
_LINES = 15


def _spans(lines: Sequence[str]) -> list[Span]:
    errors = blocks(lines, _ERROR, _OTHER, most=_LINES)
    return [*errors, *blocks(lines, _LINKER, _LINKER_END, most=_LINES), *summary_lines(lines, _LAST)]


TOOL = LogTool(
    name="clang",
    signal=r"^(?:\d+ warnings? and )?\d+ errors? generated\.$|^clang(?:\+\+)?: error: "
    r"|^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: ",
    spans=_spans,
)
