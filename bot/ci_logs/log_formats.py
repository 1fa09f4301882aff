"""Excerpts of job logs: failures reported by programs such as pytest, cargo and ESLint.

To support another program, add an entry to `FORMATS`, and a sample to `tests/bot/ci_logs/samples`. Logs are untrusted,
so this runs in a worker process.
"""

from __future__ import annotations

import re
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import re2

_CHUNK_BYTES = 256 * 1024
_MAX_ENTRIES = 20_000
# Characters that the runner leaves out of a file's name: https://github.com/cli/cli/blob/trunk/pkg/cmd/run/view/logs.go
_NO_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_NAME_CHARS = 90
_NUMBERED = re.compile(r"-?\d+_(.*)\.txt", re.DOTALL)

Moment = tuple[str, str]
LinePredicate = Callable[[str], object]


def digest(path: str, moments: list[Moment], limit: int) -> tuple[str, int]:
    """Return the excerpt of a job's log, and the number of omitted failures.

    Args:
        moments: times of the job's failed steps.
        limit: characters of the excerpt.
    """
    lines: list[str] = []
    # Where GitHub's times are not those of the log, all of it counts.
    for times in (moments, []):
        with Path(path).open("rb") as log:
            lines = lines or failing_lines(_read_chunks(log), times)
    return excerpt(lines, limit)


def digest_of_zip(path: str, job: str, moments: list[Moment], limit: int, most: int) -> tuple[str, int]:
    """Like `digest`, for a job in a run's zip file.

    Args:
        most: bytes to unpack.

    Raises:
        ValueError: it is no zip file, or lacks the job's log.
    """
    lines: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            member = _find_log(archive, job)
            for times in (moments, []):
                with archive.open(member) as log:
                    lines = lines or failing_lines(_read_chunks(log, most), times)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError("the zip file of the logs cannot be read") from error
    return excerpt(lines, limit)


def _find_log(archive: zipfile.ZipFile, job: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    if len(members) > _MAX_ENTRIES:
        raise ValueError(f"the zip file has more than {_MAX_ENTRIES:,} files")
    for member in members:
        numbered = _NUMBERED.fullmatch(member.filename)
        if numbered is not None and _file_name(numbered[1]) == _file_name(job):
            return member
    raise ValueError("the zip file has no log of this job")


def _file_name(job: str) -> str:
    return _NO_NAME.sub("", job)[:_NAME_CHARS].strip()


def _read_chunks(log: IO[bytes], most: int = sys.maxsize) -> Iterator[bytes]:
    while chunk := log.read(min(_CHUNK_BYTES, most)):
        most -= len(chunk)
        yield chunk


MAX_LINES = 60
"""Limit of one failure, e.g. a long stack."""

_SPACE = r"\t-\r\x1c-\x20\x85\p{Z}"
r"""Characters for which `str.isspace` is true; `\s` of RE2 has fewer."""
_BLANK = f"^[{_SPACE}]*$"
_FLUSH = f"^[^{_SPACE}]"
"""Lines without indentation."""
_ANY_LINE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    first: int
    end: int
    kind: Literal["failure", "summary"] = "failure"


def matcher(pattern: str) -> LinePredicate:
    compiled: Any = re2.compile(pattern)
    search: LinePredicate = compiled.search
    return search


@dataclass(frozen=True, slots=True)
class Section:
    """Patterns for the lines of a failure or a summary, each with exceptions.

    It ends before its end line, the next section, or the limit; the end line of a summary is part of it.
    """

    first: str
    end: str | None = None
    but_first: str | None = None
    but_end: str | None = None
    max_lines: int = MAX_LINES

    def find(self, lines: Sequence[str], kind: Literal["failure", "summary"] = "failure") -> list[Span]:
        begins, ends = _matcher_without(self.first, self.but_first), _matcher_without(self.end or "", self.but_end)
        starts = [number for number, line in enumerate(lines) if begins(line)]
        if self.end is None:
            return [Span(first=start, end=start + 1, kind=kind) for start in starts]
        spans: list[Span] = []
        for start, following in pairwise([*starts, len(lines)]):
            limit = min(following, start + self.max_lines)
            end = next((number for number in range(start + 1, limit) if ends(lines[number])), limit)
            if kind == "summary":
                end = min(end + 1, len(lines))
            else:
                end = next((number for number in range(end, start + 1, -1) if lines[number - 1].strip()), start + 1)
            spans.append(Span(first=start, end=end, kind=kind))
        return spans


def _matcher_without(pattern: str, exception: str | None) -> LinePredicate:
    matches = matcher(pattern)
    if exception is None:
        return matches
    is_exception = matcher(exception)
    return lambda line: matches(line) and not is_exception(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A program's format of failures.

    Attributes:
        signal: pattern of lines that only a failure produces.
        find_others: finds spans that patterns cannot describe.
    """

    name: str
    signal: str
    failures: tuple[Section, ...] = ()
    summaries: tuple[Section, ...] = ()
    find_others: Callable[[Sequence[str]], list[Span]] = lambda _lines: []

    def find(self, lines: Sequence[str]) -> list[Span]:
        failures = [span for section in self.failures for span in section.find(lines)]
        summaries = [span for section in self.summaries for span in section.find(lines, "summary")]
        return [*failures, *summaries, *self.find_others(lines)]


def _find_cargo_names(lines: Sequence[str]) -> list[Span]:
    """Find the names of failed tests: the second `failures:`; the first one precedes their output."""
    begins_output = matcher(_CARGO_OUTPUT)
    sections = Section(r"^failures:$", r"^test result: FAILED").find(lines, "summary")
    return [span for span in sections if not any(map(begins_output, lines[span.first : span.end]))]


def _find_eslint_rows(lines: Sequence[str]) -> list[Span]:
    is_error = matcher(r"^\s+\d+:\d+\s+error\s+\S")
    is_row = matcher(r"^\s+\d+:\d+\s+(?:error|warning)\s+\S")
    is_flush = matcher(_FLUSH)
    spans, file = [], -1
    for number, line in enumerate(lines):
        if is_flush(line):
            file = number
        elif is_error(line):
            # The file's name goes with its first error, if that is near; rows before that one are warnings.
            is_near = file >= 0 and number - file <= 5 and all(map(is_row, lines[file + 1 : number]))  # noqa: PLR2004 - a few
            spans.append(Span(first=file if is_near else number, end=number + 1))
            file = -1
    return spans


def _find_gcc_errors(lines: Sequence[str]) -> list[Span]:
    errors = Section(
        r"^\S+:\d+(?::\d+)?: (?:fatal error|error|internal compiler error): ",
        _FLUSH,
        but_end=r"^\S+:\d+(?::\d+)?: note: |^compilation terminated\.$",
    )
    is_above = matcher(r"^(?:In file included from \S|\S+: (?:In|At) |\s+from \S+:\d)")
    spans: list[Span] = []
    for error in errors.find(lines):
        first = error.first
        while first > 0 and error.first - first < 10 and is_above(lines[first - 1]):  # noqa: PLR2004 - includes in includes
            first -= 1
        spans.append(Span(first=first, end=error.end))
    return spans


def _find_go_tests(lines: Sequence[str]) -> list[Span]:
    return [Span(first=_go_test_start(lines, span.first), end=span.end) for span in _GO_TEST.find(lines)]


def _go_test_start(lines: Sequence[str], verdict: int) -> int:
    name = lines[verdict].split("--- FAIL: ", 1)[1].split(" ", 1)[0]
    for number in range(verdict - 1, max(-1, verdict - MAX_LINES), -1):
        if lines[number].split() == ["===", "RUN", name]:
            return number
        if "--- FAIL: " in lines[number] or "--- PASS: " in lines[number]:
            break
    return verdict


def _find_jest_tests(lines: Sequence[str]) -> list[Span]:
    """Find failed tests by title; Jest prints some twice."""
    section = Section(
        r"^  ● (?:[^C]|C[^o]|Co[^n]|Con[^s])",  # not `● Console`
        r"^(?:Test Suites: |(?:FAIL|PASS) \S|Summary of all failing tests|  ● Console)",
    )
    spans: dict[str, Span] = {}
    for span in section.find(lines):
        spans.setdefault(lines[span.first], span)
    return list(spans.values())


def _find_maven_compiler_errors(lines: Sequence[str]) -> list[Span]:
    """Find compiler errors, without the repetition below the failed goal."""
    is_goal = matcher(_MAVEN_GOAL)
    end = next((number for number, line in enumerate(lines) if is_goal(line)), len(lines))
    section = Section(r"^\[ERROR\] \S+:\[\d+,\d+\] ", r"^\[INFO\]|^\[ERROR\]\s*$|^\[ERROR\] \S")
    return section.find([*lines[:end], *("" for _ in lines[end:])])


def _find_pytest_failures(lines: Sequence[str]) -> list[Span]:
    """Find failed tests by title; without such a section, errors that prevented the run."""
    rule = r"^={3,} .* ={3,}$"
    if not any(map(matcher(r"^={3,} (?:FAILURES|ERRORS) ={3,}$"), lines)):
        bare = r"^(?:ImportError while loading conftest|ERROR: \S|INTERNALERROR> Traceback|E   \S+Error)"
        return Section(bare, rule).find(lines)
    is_captured = matcher(r"^-{3,} Captured .* -{3,}$")
    spans: list[Span] = []
    for span in Section(r"^_+ \S.* _+$", rule, max_lines=400).find(lines):
        # Of the test's own output only the first lines: the traceback stands above it.
        captured = next((number for number in range(span.first, span.end) if is_captured(lines[number])), span.end)
        spans.append(Span(first=span.first, end=min(span.end, captured + _CAPTURED_LINES)))
    return spans


def _find_ruff_blocks(lines: Sequence[str]) -> list[Span]:
    is_location = matcher(r"^\s+--> \S+\.(?:pyi?|ipynb|toml):")
    is_title = matcher(r"^(?:[A-Z]{1,6}\d{2,4}|invalid-syntax|unformatted|[a-z-]+)\b")
    spans: list[Span] = []
    for title, line in enumerate(lines[:-1]):
        if is_location(lines[title + 1]) and is_title(line):
            limit = min(len(lines), title + MAX_LINES)
            end = next((number for number in range(title, limit) if not lines[number].strip()), limit)
            spans.append(Span(first=title, end=end))
    return spans


_CAPTURED_LINES = 15
_CARGO_OUTPUT = r"^---- \S.* stdout ----$"
_CARGO_LAST = r"^error: (?:could not compile|test failed|aborting due|\d+ targets? failed|process didn't exit)"
_GO_TEST = Section(r"^\s*--- FAIL: \S", _FLUSH)
_GRADLE_TASK = r"^> Task \S+ FAILED$|^\d+ tests? completed, \d+ failed"
_JAVA_FILE = r"^\S+\.(?:java|groovy|scala):\d+: "
_MAVEN_GOAL = r"^\[ERROR\] Failed to execute goal "
_MAVEN_TEST = r"<<< (?:FAILURE|ERROR)!\s*$"
_MAVEN_TOTAL = r"^(?:\[ERROR\] )?Tests run: "
_PYTHON_FILE = r"^\S+\.(?:pyi?|ipynb)(?::\d+){0,4}: "

FORMATS: tuple[LogFormat, ...] = (
    LogFormat(
        name="pytest",
        signal=r"^={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}$|^ImportError while loading conftest"
        r"|^ERROR: (?:not found|file or directory not found|usage):|^INTERNALERROR> ",
        summaries=(
            Section(
                r"^={3,} short test summary info ={3,}$",
                r"^(?:={3,} )?\d+ (?:failed|passed|errors?|skipped|deselected)\b.* in [0-9.]+s",
                max_lines=200,
            ),
        ),
        find_others=_find_pytest_failures,
    ),
    LogFormat(  # and the runners that are built on it: a rule, `FAIL:` or `ERROR:`, another rule, a traceback
        name="unittest",
        signal=r"^(?:FAIL|ERROR): \S+ \(|^FAILED \((?:failures|errors)=",
        failures=(Section(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): \S", r"^={50,}$|^Ran \d+ tests? in "),),
        summaries=(Section(r"^Ran \d+ tests? in ", r"^FAILED \(", max_lines=4),),
    ),
    LogFormat(
        name="jest",
        signal=r"^FAIL \S+\.[cm]?[jt]sx?\b|^  ● |^Test Suites: \d+ failed",
        summaries=(Section(r"^FAIL \S"), Section(r"^Test Suites: ", r"^Time: ", max_lines=5)),
        find_others=_find_jest_tests,
    ),
    LogFormat(
        name="vitest",
        signal=r"^ FAIL  \S|⎯ Failed (?:Tests|Suites) \d",
        failures=(Section(r"^ FAIL  \S", r"^⎯{5,}"),),
        summaries=(Section(r"^ Test Files  ", r"^      Tests  ", max_lines=4),),
    ),
    LogFormat(  # and `go build`, `go vet`
        name="go test",
        signal=r"^\s*--- FAIL: \S|^FAIL\t\S|^panic: |^(?:vet: )?\S+\.go:\d+:\d+: |^WARNING: DATA RACE",
        failures=(
            Section(r"^(?:panic: |fatal error: |WARNING: DATA RACE)", r"^(?:FAIL\s|FAIL$|exit status \d|={10,})"),
            Section(r"^(?:vet: )?\S+\.go:\d+(?::\d+)?: "),
        ),
        summaries=(Section(r"^FAIL\t\S"),),
        find_others=_find_go_tests,
    ),
    LogFormat(  # the compiler's and clippy's blocks, the output of tests, and rustfmt's differences
        name="cargo",
        signal=rf"^error\[E\d{{4}}\]: |{_CARGO_OUTPUT}|^test result: FAILED|^Diff in \S+\.rs|{_CARGO_LAST}",
        failures=(
            Section(r"^error(?:\[E\d{4}\])?: \S", _BLANK, but_first=_CARGO_LAST),
            Section(_CARGO_OUTPUT, r"^(?:stack backtrace:|note: run with `RUST_BACKTRACE|failures:$|test result: )"),
            Section(r"^Diff in \S", _BLANK),
        ),
        summaries=(Section(_CARGO_LAST),),
        find_others=_find_cargo_names,
    ),
    LogFormat(  # with its compiler and Surefire
        name="maven",
        signal=r"^\[ERROR\] (?:Tests run: |Failed to execute goal |\S+:\[\d+,\d+\] )|" + _MAVEN_TEST,
        failures=(Section(_MAVEN_TEST, r"^\[(?:INFO|ERROR|WARNING)\]|^\s*$", but_first=_MAVEN_TOTAL, max_lines=25),),
        summaries=(
            Section(r"^\[ERROR\] (?:Failures|Errors):\s*$", f"{_BLANK}|{_MAVEN_TOTAL}"),
            Section(_MAVEN_GOAL),
        ),
        find_others=_find_maven_compiler_errors,
    ),
    LogFormat(  # with javac and kotlinc
        name="gradle",
        signal=r"^> Task \S+ FAILED$|^\* What went wrong:|^\S.* > .+ FAILED$|^e: (?:file://)?\S+\.kts?:\d+",
        failures=(
            Section(r"^\S.* > .+ FAILED$", f"{_BLANK}|{_FLUSH}", but_first=_GRADLE_TASK),
            Section(rf"{_JAVA_FILE}error: ", rf"^(?:\d+ (?:error|warning)s?$|> Task )|{_JAVA_FILE}warning: |^\s*$"),
            Section(r"^e: \S", _FLUSH),
        ),
        summaries=(Section(r"^\* What went wrong:", r"^\* Try:"), Section(_GRADLE_TASK)),
    ),
    LogFormat(  # TypeScript's compiler: a line for an error, or, for people, with the code below it
        name="tsc",
        signal=r"\berror TS\d+: ",
        failures=(
            Section(r"^\S.*\(\d+,\d+\): error TS\d+: |^error TS\d+: ", _FLUSH),
            Section(r"^\S+:\d+:\d+ - error TS\d+: ", _FLUSH, but_end=r"^\d+ ", max_lines=20),
        ),
        summaries=(Section(r"^Found \d+ errors? "),),
    ),
    LogFormat(
        name="eslint",
        signal=r"^\s+\d+:\d+\s+error\s+\S.*  \S+$|^✖ \d+ problems? \([1-9]\d* errors?",
        summaries=(Section(r"^✖ \d+ problems? "),),
        find_others=_find_eslint_rows,
    ),
    LogFormat(  # and Flake8, which prints lines as `ruff --output-format concise` does
        name="ruff",
        signal=r"^\S+:\d+:\d+: [A-Z]{1,6}\d{2,4} |^\s+--> \S+\.(?:pyi?|ipynb|toml):|^Would reformat: \S"
        r"|^Found \d+ errors?\.|^\d+ files? would be reformatted",
        failures=(Section(r"^\S+:\d+:\d+: (?:[A-Z]{1,6}\d{2,4}|[a-z-]+:) "), Section(r"^Would reformat: \S")),
        summaries=(Section(r"^Found \d+ errors?\b|^\d+ files? would be reformatted|^\[\*\] \d+ fixable"),),
        find_others=_find_ruff_blocks,
    ),
    LogFormat(
        name="mypy",
        signal=rf"{_PYTHON_FILE}error: |^Found \d+ errors? in \d+ files?",
        failures=(Section(f"{_PYTHON_FILE}error: ", _ANY_LINE, but_end=f"{_PYTHON_FILE}note: |^    "),),
        summaries=(Section(r"^Found \d+ errors? in \d+ files?"),),
    ),
    LogFormat(  # with its linker
        name="gcc",
        signal=r"^\S+\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|S|f90|f|cu|m|mm|ipp|inl):\d+(?::\d+)?: (?:fatal error|error): "
        r"|: undefined reference to |^collect2: error: ",
        failures=(Section(r": undefined reference to |: multiple definition of |\bld: cannot find "),),
        summaries=(Section(r"^collect2: error: |\bg?make(?:\[\d+\])?: \*\*\* "),),
        find_others=_find_gcc_errors,
    ),
    LogFormat(  # as GCC, but the code below an error begins at the margin, and errors are counted
        name="clang",
        signal=r"^(?:\d+ warnings? and )?\d+ errors? generated\.$|^clang(?:\+\+)?: error: "
        r"|^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: ",
        failures=(
            Section(
                r"^\S+:\d+:\d+: (?:fatal error|error): ",
                r"^\S+:\d+:\d+: warning: |^\d+ (?:error|warning)s?\b.* generated\.$|^\s*$",
                max_lines=15,
            ),
            Section(
                r"^Undefined symbols for architecture |^ld(?:\.lld|64\.lld)?: error: |^ld: symbol\(s\) not found",
                r"^clang(?:\+\+)?: error: |^ld: symbol",
                max_lines=15,
            ),
        ),
        summaries=(Section(r"^clang(?:\+\+)?: error: |^\d+ (?:error|warning)s?\b.* generated\.$"),),
    ),
)

is_signal = matcher("|".join(each.signal for each in FORMATS))


_LAST_LINES = 4
_LINE_CHARS = 600
_HALF = 280
_SMALL_GAP = 2
_SHORT_CHARS = 80


def excerpt(lines: Sequence[str], limit: int) -> tuple[str, int]:
    """Return the first failures of a log, or its end if no known program wrote it."""
    lines = [line if len(line) <= _LINE_CHARS else f"{line[:_HALF]} […] {line[-_HALF:]}" for line in lines]
    text = "\n".join(lines)
    formats = [item for item in FORMATS if re2.search(f"(?m){item.signal}", text)]
    spans = [span for item in formats for span in item.find(lines)]
    failures = _join_overlapping([item for item in spans if item.kind == "failure"])
    if not spans:
        return "\n".join(lines[_find_tail(lines, limit) :]), 0
    end = Span(first=max(0, len(lines) - _LAST_LINES), end=len(lines), kind="summary")
    summary = _select_fitting(
        lines, _join_overlapping([*(item for item in spans if item.kind == "summary"), end]), limit // 4
    )
    chosen = _select_fitting(lines, failures, limit - sum(_count_chars(lines, item) for item in summary))
    # The lines of the spans, with a word for each gap; of a span that is too long, its beginning and its end.
    parts: list[str] = []
    before = 0
    for item in _join_overlapping([*chosen, *summary]):
        room = limit // 4 if item.kind == "summary" else limit * 2 // 3
        parts += (*_describe_gap(lines[before : item.first]), *_cut_middle(lines[item.first : item.end], room))
        before = item.end
    return "\n".join([*parts, *_describe_gap(lines[before:])]), len(failures) - len(chosen)


def _join_overlapping(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.first, span.end)):
        if joined and span.first < joined[-1].end:
            last = joined.pop()
            joined.append(Span(first=last.first, end=max(last.end, span.end), kind=last.kind))
        else:
            joined.append(span)
    return joined


def _select_fitting(lines: Sequence[str], spans: Sequence[Span], room: int) -> list[Span]:
    chosen: list[Span] = []
    for span in spans:
        room -= _count_chars(lines, span)
        if chosen and room < 0:
            break
        chosen.append(span)
    return chosen


def _count_chars(lines: Sequence[str], span: Span) -> int:
    return sum(len(line) + 1 for line in lines[span.first : span.end])


def _describe_gap(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= _SMALL_GAP and sum(map(len, lines)) <= _SMALL_GAP * _SHORT_CHARS:
        return lines
    gaps = [_GAP.fullmatch(line) for line in lines if line.startswith("[…")]
    return [_mark_gap(len(lines) + sum(int(match[1].replace(",", "")) - 1 for match in gaps if match is not None))]


def _cut_middle(lines: Sequence[str], limit: int) -> Sequence[str]:
    if sum(len(line) + 1 for line in lines) <= limit:
        return lines
    last = _find_tail(lines, limit // 3)
    first, room = 0, limit - limit // 3
    while first < last and (first == 0 or room > len(lines[first])):
        room -= len(lines[first]) + 1
        first += 1
    return [*lines[:first], *_describe_gap(lines[first:last]), *lines[last:]]


def _find_tail(lines: Sequence[str], room: int) -> int:
    first = len(lines)
    while first > 0 and (room := room - len(lines[first - 1]) - 1) >= 0:
        first -= 1
    return first


_LINE_BYTES = 4_000
_PART_BYTES = 1024 * 1024
_LINES_BEFORE = 200
_BYTE_ORDER = b"\xef\xbb\xbf"
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z ?")
_SECOND = len("2024-01-01T00:00:00")
_CODES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[()][0-9A-B])")
_MARKS = {
    "##[group]": "",
    "##[command]": "",
    "##[section]": "",
    "##[error]": "Error: ",
    "##[warning]": "Warning: ",
    "##[notice]": "Notice: ",
}
_SILENT = ("##[endgroup]", "##[debug]", "##[add-matcher]", "##[remove-matcher]", "##[start-action", "##[end-action")
# The runner puts its mark before what it recognised, e.g. `##[error]src/a.ts(1,43): error TS2322: …`.
_SAYS_WHERE = re.compile(r"^\S{1,300}[:(]\d|^\s|^(?:error|warning)\b", re.IGNORECASE)
_STEP = "##[group]Run "
_ERROR = "##[error]"

_GAP = re.compile(r"\[… ([\d,]{1,15}) lines left out …\]")
"""Matches the result of `_mark_gap`."""


def failing_lines(chunks: Iterable[bytes], moments: Sequence[Moment] = ()) -> list[str]:
    """Return the failed steps' lines without times, colours and the runner's marks.

    A step begins with `##[group]Run …`. Of each step, the first and last megabyte are kept, and as much around the
    first signal between them.
    """
    kept = _KeptLines()
    for line in _written_at(_split_lines(chunks), moments):
        kept.add(line)
    lines = [_strip_codes(line) for line in kept.lines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(_STEP)]
    steps = [lines[first:last] for first, last in pairwise([0, *starts, len(lines)]) if first < last]
    # The steps in which the runner reports an error; all of them when it reports none.
    failing = [step for step in steps if any(line.startswith(_ERROR) for line in step)] or steps
    return [_strip_mark(line) for step in failing for line in step if not line.startswith(_SILENT)]


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, last = (rest + chunk).split(b"\n")
        yield from (line[:_LINE_BYTES] for line in whole)
        rest = last[:_LINE_BYTES]
    if rest:
        yield rest


def _written_at(lines: Iterable[bytes], moments: Sequence[Moment]) -> Iterator[bytes]:
    spans = [(start[:_SECOND].encode(), (end[:_SECOND] or "9").encode()) for start, end in moments]
    now = b""
    for line in lines:
        line = line.removeprefix(_BYTE_ORDER)  # noqa: PLW2901 - the same line
        if (time := _TIME.match(line)) is not None:
            now = line[:_SECOND]
        if not spans or any(start <= now <= end for start, end in spans):
            yield line[time.end() :] if time is not None else line


class _KeptLines:
    def __init__(self) -> None:
        self._parts: list[list[bytes]] = [[]]
        self._room = _PART_BYTES
        self._watching = True
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def add(self, line: bytes) -> None:
        if self._room <= 0 and self._watching and is_signal(_strip_codes(line)):
            # Begin a part with the lines before the signal.
            before = [self._tail.pop() for _ in range(min(_LINES_BEFORE, len(self._tail)))][::-1]
            self._dropped += len(self._tail)
            left_out = [_mark_gap(self._dropped).encode()] if self._dropped else []
            self._parts.append([*left_out, *before])
            self._room, self._tail_bytes, self._dropped = _PART_BYTES, 0, 0
            self._tail.clear()
        if self._room > 0:
            self._parts[-1].append(line)
            self._room -= len(line) + 1
            if self._watching and is_signal(_strip_codes(line)):
                # From here on, so that what follows the first failure is not cut off by what stands before it.
                self._watching, self._room = False, _PART_BYTES
            return
        self._tail.append(line)
        self._tail_bytes += len(line) + 1
        while self._tail_bytes > _PART_BYTES:
            self._tail_bytes -= len(self._tail.popleft()) + 1
            self._dropped += 1

    def lines(self) -> list[bytes]:
        left_out = [_mark_gap(self._dropped).encode()] if self._dropped else []
        return [*(line for part in self._parts for line in part), *left_out, *self._tail]


def _mark_gap(lines: int) -> str:
    return f"[… {lines:,} lines left out …]"


def _strip_codes(line: bytes) -> str:
    text = _CODES.sub("", line.decode("utf-8", "replace").rstrip("\r"))
    return text.rpartition("\r")[2]  # what a progress bar came to


def _strip_mark(line: str) -> str:
    for mark, word in _MARKS.items():
        if line.startswith(mark):
            text = line.removeprefix(mark)
            return text if _SAYS_WHERE.search(text) else word + text
    return line
