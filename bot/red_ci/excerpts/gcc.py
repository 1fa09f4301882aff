"""GCC with its linker: `file:line:column: error:`, the code below it, and what it is in above it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blocks, flush, matcher, single_lines, summary_lines

_ERROR = matcher(r"^\S+:\d+(?::\d+)?: (?:fatal error|error|internal compiler error): ")
_NOTE = matcher(r"^\S+:\d+(?::\d+)?: note: |^compilation terminated\.$")
_ABOVE = matcher(r"^(?:In file included from \S|\S+: (?:In|At) |\s+from \S+:\d)")
_LINKER = matcher(r": undefined reference to |: multiple definition of |\bld: cannot find ")
_LAST = matcher(r"^collect2: error: |\bg?make(?:\[\d+\])?: \*\*\* ")


def _spans(lines: Sequence[str]) -> list[Span]:
    errors: list[Span] = []
    for each in blocks(lines, _ERROR, lambda line: flush(line) and not _NOTE(line)):
        first = each.first
        while first > 0 and each.first - first < 10 and _ABOVE(lines[first - 1]):  # noqa: PLR2004 - includes in includes
            first -= 1
        errors.append(Span(first=first, end=each.end))
    return [*errors, *single_lines(lines, _LINKER), *summary_lines(lines, _LAST)]


TOOL = LogTool(
    name="gcc",
    signal=r"^\S+\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|S|f90|f|cu|m|mm|ipp|inl):\d+(?::\d+)?: (?:fatal error|error): "
    r"|: undefined reference to |^collect2: error: ",
    spans=_spans,
)
