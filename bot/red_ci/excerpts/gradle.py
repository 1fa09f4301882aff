"""Gradle: failed tests, what javac and kotlinc say, and what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blank, blocks, flush, matcher, summaries, summary_lines

_TEST = matcher(r"^\S.* > .+ FAILED$")
_JAVA = matcher(r"^\S+\.(?:java|groovy|scala):\d+: error: ")
_JAVA_END = matcher(r"^(?:\d+ (?:error|warning)s?$|> Task |\S+\.(?:java|groovy|scala):\d+: warning: )|^\s*$")
_KOTLIN = matcher(r"^e: \S")
_WENT_WRONG = matcher(r"^\* What went wrong:")
_TRY = matcher(r"^\* Try:")
_TASK = matcher(r"^> Task \S+ FAILED$|^\d+ tests? completed, \d+ failed")


def _spans(lines: Sequence[str]) -> list[Span]:
    tests = blocks(lines, lambda line: _TEST(line) and not _TASK(line), lambda line: blank(line) or flush(line))
    java = blocks(lines, _JAVA, _JAVA_END)
    kotlin = blocks(lines, _KOTLIN, flush)
    wrong = summaries(lines, _WENT_WRONG, _TRY)
    return [*tests, *java, *kotlin, *wrong, *summary_lines(lines, _TASK)]


TOOL = LogTool(
    name="gradle",
    signal=r"^> Task \S+ FAILED$|^\* What went wrong:|^\S.* > .+ FAILED$|^e: (?:file://)?\S+\.kts?:\d+",
    spans=_spans,
)
