"""Find the failures in a saved log. Runs in a worker process, because it reads strangers' bytes from a file."""

from __future__ import annotations

import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import re2

from bot.ci_logs.log import GAP, Moment, failing_lines, gap

# ---- Parts of a log that report failures, and the ways to find them that several tools share. Pure.


MOST_LINES = 60
"""Of one failure; more is a stack or an output without end."""

Says = Callable[[str], object]
"""Whether a line is of some kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some lines of a log.

    Attributes:
        first: the first line, from 0.
        end: the line behind the last.
        kind: one failure, or a summary of several.
    """

    first: int
    end: int
    kind: Literal["failure", "summary"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTool:
    """How one tool reports failures.

    Attributes:
        name: what people call it.
        signal: a regular expression (RE2) of the lines that a log has only when this tool found a failure.
        spans: finds the failures, in order, and the summaries.
    """

    name: str
    signal: str
    spans: Callable[[Sequence[str]], list[Span]]


def matcher(pattern: str) -> Says:
    """Whether a pattern is found in a line, in linear time."""
    compiled: Any = re2.compile(pattern)
    search: Says = compiled.search
    return search


def blocks(lines: Sequence[str], begins: Says, ends: Says, *, most: int = MOST_LINES) -> list[Span]:
    """From each line that begins a failure to the next one that begins or ends one, without blank lines at its end."""
    found: list[Span] = []
    for start, end in _bounds(lines, begins, ends, most):
        last = next((number for number in range(end - 1, start, -1) if not blank(lines[number])), start)
        found.append(Span(first=start, end=last + 1))
    return found


def _bounds(lines: Sequence[str], begins: Says, ends: Says, most: int) -> Iterator[tuple[int, int]]:
    starts = [number for number, line in enumerate(lines) if begins(line)]
    for start, following in pairwise([*starts, len(lines)]):
        last = min(following, start + most)
        yield start, next((number for number in range(start + 1, last) if ends(lines[number])), last)


def single_lines(lines: Sequence[str], says: Says) -> list[Span]:
    """Each line of a kind as a failure."""
    return [Span(first=number, end=number + 1) for number, line in enumerate(lines) if says(line)]


def summaries(lines: Sequence[str], begins: Says, ends: Says, *, most: int = MOST_LINES) -> list[Span]:
    """`blocks`, of summaries; the line that ends one belongs to it."""
    bounds = _bounds(lines, begins, ends, most)
    return [Span(first=start, end=min(end + 1, len(lines)), kind="summary") for start, end in bounds]


def summary_lines(lines: Sequence[str], says: Says) -> list[Span]:
    """Each line of a kind as a summary."""
    return [Span(first=each.first, end=each.end, kind="summary") for each in single_lines(lines, says)]


def blank(line: str) -> bool:
    """Whether nothing is in it."""
    return not line.strip()


def flush(line: str) -> bool:
    """Whether it begins at the margin."""
    return bool(line) and not line[0].isspace()


# ---- Cargo: the compiler's and clippy's blocks, `---- test stdout ----`, and rustfmt's differences. Pure.


_LAST_WORDS = r"error: (?:could not compile|test failed|aborting due|\d+ targets? failed|process didn't exit)"
_ERROR_CARGO = matcher(r"^error(?:\[E\d{4}\])?: \S")
_LAST_CARGO = matcher(f"^{_LAST_WORDS}")
_TEST_CARGO = matcher(r"^---- \S.* stdout ----$")
_TEST_END = matcher(r"^(?:stack backtrace:|note: run with `RUST_BACKTRACE|failures:$|test result: )")
_FAILURES = matcher(r"^failures:$")
_RESULT = matcher(r"^test result: FAILED")
_DIFF = matcher(r"^Diff in \S")


def _spans_cargo(lines: Sequence[str]) -> list[Span]:
    compiling = blocks(lines, lambda line: _ERROR_CARGO(line) and not _LAST_CARGO(line), blank)
    tests = blocks(lines, _TEST_CARGO, _TEST_END)
    differences = blocks(lines, _DIFF, blank)
    # The first `failures:` stands above the blocks of the tests, the second above their names.
    names = [
        each for each in summaries(lines, _FAILURES, _RESULT) if not any(map(_TEST_CARGO, lines[each.first : each.end]))
    ]
    return [*compiling, *tests, *differences, *names, *summary_lines(lines, _LAST_CARGO)]


TOOL_CARGO = LogTool(
    name="cargo",
    signal=r"^error\[E\d{4}\]: |^---- \S.* stdout ----$|^test result: FAILED|^Diff in \S+\.rs|^" + _LAST_WORDS,
    spans=_spans_cargo,
)


# ---- Clang with its linkers: as GCC, but the code below an error begins at the margin, and errors are counted.
# Pure.


_ERROR_CLANG = matcher(r"^\S+:\d+:\d+: (?:fatal error|error): ")
_OTHER = matcher(r"^\S+:\d+:\d+: warning: |^\d+ (?:error|warning)s?\b.* generated\.$|^\s*$")
_LINKER = matcher(r"^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: |^ld: symbol\(s\) not found")
_LINKER_END = matcher(r"^clang(?:\+\+)?: error: |^ld: symbol")
_LAST_CLANG = matcher(r"^clang(?:\+\+)?: error: |^\d+ (?:error|warning)s?\b.* generated\.$")
_LINES = 15


def _spans_clang(lines: Sequence[str]) -> list[Span]:
    errors = blocks(lines, _ERROR_CLANG, _OTHER, most=_LINES)
    return [*errors, *blocks(lines, _LINKER, _LINKER_END, most=_LINES), *summary_lines(lines, _LAST_CLANG)]


TOOL_CLANG = LogTool(
    name="clang",
    signal=r"^(?:\d+ warnings? and )?\d+ errors? generated\.$|^clang(?:\+\+)?: error: "
    r"|^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: ",
    spans=_spans_clang,
)


# ---- ESLint: a file, and below it a line a problem; those that are mere warnings fail nothing. Pure.


_ROW = matcher(r"^\s+\d+:\d+\s+error\s+\S")
_ANY_ROW = matcher(r"^\s+\d+:\d+\s+(?:error|warning)\s+\S")
_TOTAL = matcher(r"^✖ \d+ problems? ")


def _spans_eslint(lines: Sequence[str]) -> list[Span]:
    found, file = [], -1
    for number, line in enumerate(lines):
        if flush(line):
            file = number
        elif _ROW(line):
            # The file's name goes with its first error, if that is near; rows before that one are warnings.
            is_near = file >= 0 and number - file <= 5 and all(map(_ANY_ROW, lines[file + 1 : number]))  # noqa: PLR2004 - a few
            found.append(Span(first=file if is_near else number, end=number + 1))
            file = -1
    return [*found, *summary_lines(lines, _TOTAL)]


TOOL_ESLINT = LogTool(
    name="eslint", signal=r"^\s+\d+:\d+\s+error\s+\S.*  \S+$|^✖ \d+ problems? \([1-9]\d* errors?", spans=_spans_eslint
)


# ---- GCC with its linker: `file:line:column: error:`, the code below it, and what it is in above it. Pure.


_ERROR_GCC = matcher(r"^\S+:\d+(?::\d+)?: (?:fatal error|error|internal compiler error): ")
_NOTE = matcher(r"^\S+:\d+(?::\d+)?: note: |^compilation terminated\.$")
_ABOVE = matcher(r"^(?:In file included from \S|\S+: (?:In|At) |\s+from \S+:\d)")
_LINKER_GCC = matcher(r": undefined reference to |: multiple definition of |\bld: cannot find ")
_LAST_GCC = matcher(r"^collect2: error: |\bg?make(?:\[\d+\])?: \*\*\* ")


def _spans_gcc(lines: Sequence[str]) -> list[Span]:
    errors: list[Span] = []
    for each in blocks(lines, _ERROR_GCC, lambda line: flush(line) and not _NOTE(line)):
        first = each.first
        while first > 0 and each.first - first < 10 and _ABOVE(lines[first - 1]):  # noqa: PLR2004 - includes in includes
            first -= 1
        errors.append(Span(first=first, end=each.end))
    return [*errors, *single_lines(lines, _LINKER_GCC), *summary_lines(lines, _LAST_GCC)]


TOOL_GCC = LogTool(
    name="gcc",
    signal=r"^\S+\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|S|f90|f|cu|m|mm|ipp|inl):\d+(?::\d+)?: (?:fatal error|error): "
    r"|: undefined reference to |^collect2: error: ",
    spans=_spans_gcc,
)


# ---- `go test`, `go build` and `go vet`: `--- FAIL:` with indented lines below, or before it with -v; panics. Pure.


_FAIL = matcher(r"^\s*--- FAIL: \S")
_PANIC = matcher(r"^(?:panic: |fatal error: |WARNING: DATA RACE)")
_PANIC_END = matcher(r"^(?:FAIL\s|FAIL$|exit status \d|={10,})")
_COMPILE = matcher(r"^(?:vet: )?\S+\.go:\d+(?::\d+)?: ")
_PACKAGE = matcher(r"^FAIL\t\S")


def _spans_go_test(lines: Sequence[str]) -> list[Span]:
    failures = [_whole(lines, each) for each in blocks(lines, _FAIL, flush)]
    panics = blocks(lines, _PANIC, _PANIC_END)
    return [*failures, *panics, *single_lines(lines, _COMPILE), *summary_lines(lines, _PACKAGE)]


def _whole(lines: Sequence[str], span: Span) -> Span:
    """With what `-v` prints of the test before its verdict."""
    name = lines[span.first].split("--- FAIL: ", 1)[1].split(" ", 1)[0]
    for number in range(span.first - 1, max(-1, span.first - MOST_LINES), -1):
        if lines[number].split() == ["===", "RUN", name]:
            return Span(first=number, end=span.end)
        if "--- FAIL: " in lines[number] or "--- PASS: " in lines[number]:
            break
    return span


TOOL_GO_TEST = LogTool(
    name="go test",
    signal=r"^\s*--- FAIL: \S|^FAIL\t\S|^panic: |^(?:vet: )?\S+\.go:\d+:\d+: |^WARNING: DATA RACE",
    spans=_spans_go_test,
)


# ---- Gradle: failed tests, what javac and kotlinc say, and what went wrong. Pure.


_TEST_GRADLE = matcher(r"^\S.* > .+ FAILED$")
_JAVA = matcher(r"^\S+\.(?:java|groovy|scala):\d+: error: ")
_JAVA_END = matcher(r"^(?:\d+ (?:error|warning)s?$|> Task |\S+\.(?:java|groovy|scala):\d+: warning: )|^\s*$")
_KOTLIN = matcher(r"^e: \S")
_WENT_WRONG = matcher(r"^\* What went wrong:")
_TRY = matcher(r"^\* Try:")
_TASK = matcher(r"^> Task \S+ FAILED$|^\d+ tests? completed, \d+ failed")


def _spans_gradle(lines: Sequence[str]) -> list[Span]:
    tests = blocks(lines, lambda line: _TEST_GRADLE(line) and not _TASK(line), lambda line: blank(line) or flush(line))
    java = blocks(lines, _JAVA, _JAVA_END)
    kotlin = blocks(lines, _KOTLIN, flush)
    wrong = summaries(lines, _WENT_WRONG, _TRY)
    return [*tests, *java, *kotlin, *wrong, *summary_lines(lines, _TASK)]


TOOL_GRADLE = LogTool(
    name="gradle",
    signal=r"^> Task \S+ FAILED$|^\* What went wrong:|^\S.* > .+ FAILED$|^e: (?:file://)?\S+\.kts?:\d+",
    spans=_spans_gradle,
)


# ---- Jest: a block under `●` for each failed test, some of them said twice. Pure.


_TITLE_JEST = matcher(r"^  ● (?:[^C]|C[^o]|Co[^n]|Con[^s])")  # not `● Console`
_END = matcher(r"^(?:Test Suites: |(?:FAIL|PASS) \S|Summary of all failing tests|  ● Console)")
_FILE = matcher(r"^FAIL \S")
_TOTALS = matcher(r"^Test Suites: ")
_TIME = matcher(r"^Time: ")


def _spans_jest(lines: Sequence[str]) -> list[Span]:
    seen: set[str] = set()
    failures = []
    for each in blocks(lines, _TITLE_JEST, _END):
        if lines[each.first] not in seen:
            seen.add(lines[each.first])
            failures.append(each)
    return [*failures, *summary_lines(lines, _FILE), *summaries(lines, _TOTALS, _TIME, most=5)]


TOOL_JEST = LogTool(name="jest", signal=r"^FAIL \S+\.[cm]?[jt]sx?\b|^  ● |^Test Suites: \d+ failed", spans=_spans_jest)


# ---- Maven with its compiler and Surefire: lines under `[ERROR]`, and the stack below a failed test. Pure.


_TEST_MAVEN = matcher(r"<<< (?:FAILURE|ERROR)!\s*$")
_TOTAL_MAVEN = matcher(r"^(?:\[ERROR\] )?Tests run: ")
_TEST_END_MAVEN = matcher(r"^\[(?:INFO|ERROR|WARNING)\]|^\s*$")
_COMPILE_MAVEN = matcher(r"^\[ERROR\] \S+:\[\d+,\d+\] ")
_COMPILE_END = matcher(r"^\[INFO\]|^\[ERROR\]\s*$|^\[ERROR\] \S")
_RESULTS = matcher(r"^\[ERROR\] (?:Failures|Errors):\s*$")
_GOAL = matcher(r"^\[ERROR\] Failed to execute goal ")
_TEST_LINES = 25


def _spans_maven(lines: Sequence[str]) -> list[Span]:
    tests = blocks(lines, lambda line: _TEST_MAVEN(line) and not _TOTAL_MAVEN(line), _TEST_END_MAVEN, most=_TEST_LINES)
    # The lines, what the compiler said taken out where Maven says it once more at the end.
    end = next((number for number, line in enumerate(lines) if _GOAL(line)), len(lines))
    compiling = blocks([*lines[:end], *("" for _ in lines[end:])], _COMPILE_MAVEN, _COMPILE_END)
    results = summaries(lines, _RESULTS, lambda line: blank(line) or _TOTAL_MAVEN(line))
    return [*tests, *compiling, *results, *summary_lines(lines, _GOAL)]


TOOL_MAVEN = LogTool(
    name="maven",
    signal=r"^\[ERROR\] (?:Tests run: |Failed to execute goal |\S+:\[\d+,\d+\] )|<<< (?:FAILURE|ERROR)!\s*$",
    spans=_spans_maven,
)


# ---- mypy: a line an error, with notes below it. Pure.


_ERROR_MYPY = matcher(r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: error: ")
_NOTE_MYPY = matcher(r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: note: |^    ")
_FOUND_MYPY = matcher(r"^Found \d+ errors? in \d+ files?")


def _spans_mypy(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _ERROR_MYPY, lambda line: not _NOTE_MYPY(line)), *summary_lines(lines, _FOUND_MYPY)]


TOOL_MYPY = LogTool(
    name="mypy",
    signal=r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: error: |^Found \d+ errors? in \d+ files?",
    spans=_spans_mypy,
)


# ---- pytest: sections of failures under titles between underscores, and a summary of a line each. Pure.


_TITLE_PYTEST = matcher(r"^_+ \S.* _+$")
_RULE_PYTEST = matcher(r"^={3,} .* ={3,}$")
_SECTION = matcher(r"^={3,} (?:FAILURES|ERRORS) ={3,}$")
_CAPTURED = matcher(r"^-{3,} Captured .* -{3,}$")
_SUMMARY = matcher(r"^={3,} short test summary info ={3,}$")
_LAST_PYTEST = matcher(r"^(?:={3,} )?\d+ (?:failed|passed|errors?|skipped|deselected)\b.* in [0-9.]+s")
_BARE = matcher(r"^(?:ImportError while loading conftest|ERROR: \S|INTERNALERROR> Traceback|E   \S+Error)")
_CAPTURED_LINES = 15


def _spans_pytest(lines: Sequence[str]) -> list[Span]:
    found: list[Span] = []
    for each in blocks(lines, _TITLE_PYTEST, _RULE_PYTEST, most=400):
        if _TITLE_PYTEST(lines[each.first]):
            # Of what the test wrote only the first lines: what it says itself stands before that.
            captured = next((number for number in range(each.first, each.end) if _CAPTURED(lines[number])), each.end)
            found.append(Span(first=each.first, end=min(each.end, captured + _CAPTURED_LINES)))
    if not any(_SECTION(line) for line in lines):
        found = blocks(lines, _BARE, _RULE_PYTEST)
    return [*found, *summaries(lines, _SUMMARY, _LAST_PYTEST, most=200)]


TOOL_PYTEST = LogTool(
    name="pytest",
    signal=r"^={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}$|^ImportError while loading conftest"
    r"|^ERROR: (?:not found|file or directory not found|usage):|^INTERNALERROR> ",
    spans=_spans_pytest,
)


# ---- Ruff, and Flake8, which prints as `ruff --output-format concise` does: a line or a block a finding. Pure.


_LINE = matcher(r"^\S+:\d+:\d+: (?:[A-Z]{1,6}\d{2,4}|[a-z-]+:) ")
_PLACE = matcher(r"^\s+--> \S+\.(?:pyi?|ipynb|toml):")
_TITLE_RUFF = matcher(r"^(?:[A-Z]{1,6}\d{2,4}|invalid-syntax|unformatted|[a-z-]+)\b")
_FILE_RUFF = matcher(r"^Would reformat: \S")
_FOUND_RUFF = matcher(r"^Found \d+ errors?\b|^\d+ files? would be reformatted|^\[\*\] \d+ fixable")


def _spans_ruff(lines: Sequence[str]) -> list[Span]:
    findings: list[Span] = []
    for title, line in enumerate(lines[:-1]):
        if _PLACE(lines[title + 1]) and _TITLE_RUFF(line):
            last = min(len(lines), title + MOST_LINES)
            end = next((number for number in range(title, last) if blank(lines[number])), last)
            findings.append(Span(first=title, end=end))
    return [
        *findings,
        *single_lines(lines, _LINE),
        *single_lines(lines, _FILE_RUFF),
        *summary_lines(lines, _FOUND_RUFF),
    ]


TOOL_RUFF = LogTool(
    name="ruff",
    signal=r"^\S+:\d+:\d+: [A-Z]{1,6}\d{2,4} |^\s+--> \S+\.(?:pyi?|ipynb|toml):|^Would reformat: \S"
    r"|^Found \d+ errors?\.|^\d+ files? would be reformatted",
    spans=_spans_ruff,
)


# ---- TypeScript's compiler: a line an error, or, for people, with the code below it. Pure.


_PLAIN = matcher(r"^\S.*\(\d+,\d+\): error TS\d+: |^error TS\d+: ")
_PRETTY = matcher(r"^\S+:\d+:\d+ - error TS\d+: ")
_FOUND_TSC = matcher(r"^Found \d+ errors? ")
_CODE = matcher(r"^\d+ ")


def _spans_tsc(lines: Sequence[str]) -> list[Span]:
    plain = blocks(lines, _PLAIN, flush)
    pretty = blocks(lines, _PRETTY, lambda line: flush(line) and not _CODE(line), most=20)
    return [*plain, *pretty, *summary_lines(lines, _FOUND_TSC)]


TOOL_TSC = LogTool(name="tsc", signal=r"\berror TS\d+: ", spans=_spans_tsc)


# ---- unittest, and what is built on it: a rule, `FAIL:` or `ERROR:`, another rule, a traceback. Pure.


_TITLE_UNITTEST = matcher(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): \S")
_RULE_UNITTEST = matcher(r"^={50,}$|^Ran \d+ tests? in ")
_RAN = matcher(r"^Ran \d+ tests? in ")
_RESULT_UNITTEST = matcher(r"^FAILED \(")


def _spans_unittest(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _TITLE_UNITTEST, _RULE_UNITTEST), *summaries(lines, _RAN, _RESULT_UNITTEST, most=4)]


TOOL_UNITTEST = LogTool(
    name="unittest", signal=r"^(?:FAIL|ERROR): \S+ \(|^FAILED \((?:failures|errors)=", spans=_spans_unittest
)


# ---- Vitest: ` FAIL ` and the test, what went wrong, the code, a rule. Pure.


_TITLE_VITEST = matcher(r"^ FAIL  \S")
_RULE_VITEST = matcher(r"^⎯{5,}")
_TOTALS_VITEST = matcher(r"^ Test Files  ")
_TESTS = matcher(r"^      Tests  ")


def _spans_vitest(lines: Sequence[str]) -> list[Span]:
    return [*blocks(lines, _TITLE_VITEST, _RULE_VITEST), *summaries(lines, _TOTALS_VITEST, _TESTS, most=4)]


TOOL_VITEST = LogTool(name="vitest", signal=r"^ FAIL  \S|⎯ Failed (?:Tests|Suites) \d", spans=_spans_vitest)


# ---- The tools whose failures are known, each named once; and the excerpt of a log. Pure.


TOOLS: tuple[LogTool, ...] = (
    TOOL_PYTEST,
    TOOL_UNITTEST,
    TOOL_JEST,
    TOOL_VITEST,
    TOOL_GO_TEST,
    TOOL_CARGO,
    TOOL_MAVEN,
    TOOL_GRADLE,
    TOOL_TSC,
    TOOL_ESLINT,
    TOOL_RUFF,
    TOOL_MYPY,
    TOOL_GCC,
    TOOL_CLANG,
)

is_signal = matcher("|".join(tool.signal for tool in TOOLS))
"""Whether a line is one that some tool prints only for a failure."""

_LAST_LINES = 4
_LINE_CHARS = 600
_HALF = 280
_SMALL_GAP = 2
_SHORT_CHARS = 80


def excerpt(lines: Sequence[str], limit: int) -> tuple[str, int]:
    """The first failures of a log, whole; or its end, where no tool is known that wrote it.

    Args:
        lines: of the log.
        limit: characters; the first failure loses its middle when it alone is longer.

    Returns:
        The text, and how many failures are not in it.
    """
    lines = [line if len(line) <= _LINE_CHARS else f"{line[:_HALF]} […] {line[-_HALF:]}" for line in lines]
    text = "\n".join(lines)
    tools = [tool for tool in TOOLS if re2.search(f"(?m){tool.signal}", text)]
    spans = [span for tool in tools for span in tool.spans(lines)]
    failures = _joined([each for each in spans if each.kind == "failure"])
    if not spans:
        return "\n".join(lines[_tail(lines, limit) :]), 0
    end = Span(first=max(0, len(lines) - _LAST_LINES), end=len(lines), kind="summary")
    summary = _within(lines, _joined([*(each for each in spans if each.kind == "summary"), end]), limit // 4)
    chosen = _within(lines, failures, limit - sum(_size(lines, each) for each in summary))
    # The lines of the spans, with a word for each gap; of a span that is too long, its beginning and its end.
    shown: list[str] = []
    before = 0
    for each in _joined([*chosen, *summary]):
        room = limit // 4 if each.kind == "summary" else limit * 2 // 3
        shown += (*_gap(lines[before : each.first]), *_cut(lines[each.first : each.end], room))
        before = each.end
    return "\n".join([*shown, *_gap(lines[before:])]), len(failures) - len(chosen)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """In order, those that share lines made one: two tools may know the same line."""
    joined: list[Span] = []
    for each in sorted(spans, key=lambda span: (span.first, span.end)):
        if joined and each.first < joined[-1].end:
            last = joined.pop()
            joined.append(Span(first=last.first, end=max(last.end, each.end), kind=last.kind))
        else:
            joined.append(each)
    return joined


def _within(lines: Sequence[str], spans: Sequence[Span], room: int) -> list[Span]:
    """The first of them that find room; at least one, which `excerpt` cuts."""
    chosen: list[Span] = []
    for each in spans:
        room -= _size(lines, each)
        if chosen and room < 0:
            break
        chosen.append(each)
    return chosen


def _size(lines: Sequence[str], span: Span) -> int:
    return sum(len(line) + 1 for line in lines[span.first : span.end])


def _gap(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= _SMALL_GAP and sum(map(len, lines)) <= _SMALL_GAP * _SHORT_CHARS:
        return lines
    already = [GAP.fullmatch(line) for line in lines if line.startswith("[…")]
    return [gap(len(lines) + sum(int(each[1].replace(",", "")) - 1 for each in already if each is not None))]


def _cut(lines: Sequence[str], limit: int) -> Sequence[str]:
    if sum(len(line) + 1 for line in lines) <= limit:
        return lines
    last = _tail(lines, limit // 3)
    first, room = 0, limit - limit // 3
    while first < last and (first == 0 or room > len(lines[first])):
        room -= len(lines[first]) + 1
        first += 1
    return [*lines[:first], *_gap(lines[first:last]), *lines[last:]]


def _tail(lines: Sequence[str], room: int) -> int:
    """The first of the last lines that find room."""
    first = len(lines)
    while first > 0 and (room := room - len(lines[first - 1]) - 1) >= 0:
        first -= 1
    return first


_CHUNK_BYTES = 256 * 1024
_MOST_ENTRIES = 20_000
# What no file of a zip is called: https://github.com/cli/cli/blob/trunk/pkg/cmd/run/view/logs.go
_NO_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_NAME_CHARS = 90
_NUMBERED = re.compile(r"-?\d+_(.*)\.txt", re.DOTALL)


def digest(path: str, moments: list[Moment], limit: int) -> tuple[str, int]:
    """The excerpt of a job's log, and how many failures it has beside those in it.

    Args:
        path: the log.
        moments: when the job's failed steps ran.
        limit: characters of the excerpt.
    """
    lines: list[str] = []
    # Where GitHub's times are not those of the log, all of it counts.
    for times in (moments, []):
        with Path(path).open("rb") as log:
            lines = lines or failing_lines(_chunks(log), times, is_signal=is_signal)
    return excerpt(lines, limit)


def digest_of_zip(path: str, job: str, moments: list[Moment], limit: int, most: int) -> tuple[str, int]:
    """`digest`, of a job in the zip file of a run's logs.

    Args:
        path: the zip file.
        job: the job's name.
        moments: when its failed steps ran.
        limit: characters of the excerpt.
        most: bytes that are unpacked.

    Raises:
        ValueError: it is no zip file, or has no log of that job.
    """
    lines: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            member = _member(archive, job)
            for times in (moments, []):
                with archive.open(member) as log:
                    lines = lines or failing_lines(_chunks(log, most), times, is_signal=is_signal)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError("the zip file of the logs cannot be read") from error
    return excerpt(lines, limit)


def _member(archive: zipfile.ZipFile, job: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    if len(members) > _MOST_ENTRIES:
        raise ValueError(f"the zip file has more than {_MOST_ENTRIES:,} files")
    for each in members:
        numbered = _NUMBERED.fullmatch(each.filename)
        if numbered is not None and _file_name(numbered[1]) == _file_name(job):
            return each
    raise ValueError("the zip file has no log of this job")


def _file_name(job: str) -> str:
    """A job's name as far as a file's name shows it."""
    return _NO_NAME.sub("", job)[:_NAME_CHARS].strip()


def _chunks(log: IO[bytes], most: int = sys.maxsize) -> Iterator[bytes]:
    """The bytes piece by piece; no more than `most` of them, however many there are."""
    while chunk := log.read(min(_CHUNK_BYTES, most)):
        most -= len(chunk)
        yield chunk
