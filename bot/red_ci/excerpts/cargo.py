"""Cargo: the compiler's and clippy's blocks, `---- test stdout ----`, and rustfmt's differences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.red_ci.excerpts.span import LogTool, Span, blank, blocks, matcher, summaries, summary_lines

_LAST_WORDS = r"error: (?:could not compile|test failed|aborting due|\d+ targets? failed|process didn't exit)"
_ERROR = matcher(r"^error(?:\[E\d{4}\])?: \S")
_LAST = matcher(f"^{_LAST_WORDS}")
_TEST = matcher(r"^---- \S.* stdout ----$")
_TEST_END = matcher(r"^(?:stack backtrace:|note: run with `RUST_BACKTRACE|failures:$|test result: )")
_FAILURES = matcher(r"^failures:$")
_RESULT = matcher(r"^test result: FAILED")
_DIFF = matcher(r"^Diff in \S")


def _spans(lines: Sequence[str]) -> list[Span]:
    compiling = blocks(lines, lambda line: _ERROR(line) and not _LAST(line), blank)
    tests = blocks(lines, _TEST, _TEST_END)
    differences = blocks(lines, _DIFF, blank)
    # The first `failures:` stands above the blocks of the tests, the second above their names.
    names = [each for each in summaries(lines, _FAILURES, _RESULT) if not any(map(_TEST, lines[each.first : each.end]))]
    return [*compiling, *tests, *differences, *names, *summary_lines(lines, _LAST)]


TOOL = LogTool(
    name="cargo",
    signal=r"^error\[E\d{4}\]: |^---- \S.* stdout ----$|^test result: FAILED|^Diff in \S+\.rs|^" + _LAST_WORDS,
    spans=_spans,
)
