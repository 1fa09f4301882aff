"""The part of a job's log that its failed steps wrote, as lines without times and colours. Pure, in bounded memory.

A log's lines begin with the time, e.g. `2024-01-01T00:00:00.0000000Z `; the runner's own begin with `##[group]`,
`##[error]` and the like. A step begins with `##[group]Run …`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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

GAP = re.compile(r"\[… ([\d,]{1,15}) lines left out …\]")
"""What `gap` says."""

Moment = tuple[str, str]
"""When a step began and ended, as GitHub writes it: `2024-01-01T00:00:00Z`; empty where it does not say."""


def failing_lines(
    chunks: Iterable[bytes], moments: Sequence[Moment] = (), *, is_signal: Callable[[str], object] = lambda _line: False
) -> list[str]:
    """The lines of the failed steps: without times, colours and the runner's marks.

    Of what a step wrote, the first and the last megabyte are kept, and as much around the first line between them that
    reports a failure.

    Args:
        chunks: the log, in order, cut anywhere.
        moments: when the failed steps ran; of what was written at other times nothing is kept. Without any, all counts.
        is_signal: whether a line reports a failure.
    """
    kept = _Kept(is_signal)
    for line in _within(_lines(chunks), moments):
        kept.add(line)
    lines = [_plain(line) for line in kept.lines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(_STEP)]
    steps = [lines[first:last] for first, last in pairwise([0, *starts, len(lines)]) if first < last]
    # The steps in which the runner reports an error; all of them when it reports none.
    failing = [step for step in steps if any(line.startswith(_ERROR) for line in step)] or steps
    return [_unmarked(line) for step in failing for line in step if not line.startswith(_SILENT)]


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Line by line, of each no more than its beginning."""
    rest = b""
    for chunk in chunks:
        *whole, last = (rest + chunk).split(b"\n")
        yield from (line[:_LINE_BYTES] for line in whole)
        rest = last[:_LINE_BYTES]
    if rest:
        yield rest


def _within(lines: Iterable[bytes], moments: Sequence[Moment]) -> Iterator[bytes]:
    """Those that were written at such times, without the time."""
    spans = [(start[:_SECOND].encode(), (end[:_SECOND] or "9").encode()) for start, end in moments]
    now = b""
    for line in lines:
        line = line.removeprefix(_BYTE_ORDER)  # noqa: PLW2901 - the same line
        if (time := _TIME.match(line)) is not None:
            now = line[:_SECOND]
        if not spans or any(start <= now <= end for start, end in spans):
            yield line[time.end() :] if time is not None else line


class _Kept:
    """The beginning of some lines, their end, and what stands around the first signal between the two."""

    def __init__(self, is_signal: Callable[[str], object]) -> None:
        self._is_signal = is_signal
        self._parts: list[list[bytes]] = [[]]
        self._room = _PART_BYTES
        self._watching = True
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def add(self, line: bytes) -> None:
        """Take the next line."""
        if self._room <= 0 and self._watching and self._is_signal(_plain(line)):
            self._open()
        if self._room > 0:
            self._parts[-1].append(line)
            self._room -= len(line) + 1
            if self._watching and self._is_signal(_plain(line)):
                # From here on, so that what follows the first failure is not cut off by what stands before it.
                self._watching, self._room = False, _PART_BYTES
            return
        self._tail.append(line)
        self._tail_bytes += len(line) + 1
        while self._tail_bytes > _PART_BYTES:
            self._tail_bytes -= len(self._tail.popleft()) + 1
            self._dropped += 1

    def lines(self) -> list[bytes]:
        """All that was kept, with a word for each gap."""
        left_out = [gap(self._dropped).encode()] if self._dropped else []
        return [*(line for part in self._parts for line in part), *left_out, *self._tail]

    def _open(self) -> None:
        """Begin a part with the lines just before the signal."""
        before = [self._tail.pop() for _ in range(min(_LINES_BEFORE, len(self._tail)))][::-1]
        self._dropped += len(self._tail)
        left_out = [gap(self._dropped).encode()] if self._dropped else []
        self._parts.append([*left_out, *before])
        self._room, self._tail_bytes, self._dropped = _PART_BYTES, 0, 0
        self._tail.clear()


def gap(lines: int) -> str:
    """What stands where so many lines were."""
    return f"[… {lines:,} lines left out …]"


def _plain(line: bytes) -> str:
    text = _CODES.sub("", line.decode("utf-8", "replace").rstrip("\r"))
    return text.rpartition("\r")[2]  # what a progress bar came to


def _unmarked(line: str) -> str:
    """The line without the runner's mark; a word for it where the line does not say itself what it is."""
    for mark, word in _MARKS.items():
        if line.startswith(mark):
            text = line.removeprefix(mark)
            return text if _SAYS_WHERE.search(text) else word + text
    return line


# ---- Failures of a workflow run, as values. Strangers wrote the texts in them; code that shows one cleans it. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a failing check says about lines of a file."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a job, as it ended, and as the workflow's file has it.

    Attributes:
        number: GitHub's, from 1.
        name: as GitHub shows it.
        conclusion: in GitHub's words, e.g. `success`, `failure`, `skipped`; empty while it is under way.
        run: the commands of its `run:`, matrix values filled in; empty for a step that is none, or was not found.
        shell: its `shell:`; empty for the runner's own.
        working_directory: its `working-directory:`; empty for the repository's root.
        uses: the action of its `uses:`, e.g. `actions/setup-python@v6`.
        inputs: its `with:`.
    """

    number: int
    name: str
    conclusion: str
    run: str = ""
    shell: str = ""
    working_directory: str = ""
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it is what went wrong."""
        return self.conclusion in {"failure", "timed_out", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that went red.

    Attributes:
        id: GitHub's.
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        url: its page.
        steps: all of them, in order.
        runs_on: the runner's labels.
        environment: the variables of the failed step: workflow, job and step, one over the other. A secret is named
            and never had: `${{ secrets.NAME }}`.
        services: names of the job's services and their images.
        container: the image that it runs in; empty for none.
        excerpt: what its log says of the first failures, or its end; no colours, no times. Redacted.
        more: how many failures the log has beside those in the excerpt.
        no_log: why there is no excerpt, in one sentence; else empty.
        annotations: what it says about lines.
    """

    id: int
    name: str
    conclusion: str
    url: str = ""
    steps: tuple[Step, ...] = ()
    runs_on: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    excerpt: str = ""
    more: int = 0
    no_log: str = ""
    annotations: tuple[Remark, ...] = ()

    @property
    def failed_steps(self) -> tuple[Step, ...]:
        """What went wrong in it; nothing for a job that never began."""
        return tuple(each for each in self.steps if each.failed)

    @property
    def commands(self) -> tuple[str, ...]:
        """The `run:` of the steps that failed."""
        return tuple(each.run for each in self.failed_steps if each.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A workflow run that went red.

    Attributes:
        id: GitHub's.
        attempt: which attempt of it, from 1.
        name: the workflow's.
        path: the workflow's file.
        event: what it ran for, e.g. `push`.
        conclusion: in GitHub's words.
        url: its page.
        head_sha: the commit that it ran on.
        head_branch: the branch that it ran on.
        jobs: those that went red, in GitHub's order; not more than are read.
        unread: how many more went red.
        green_sha: the commit of the workflow's last successful run on this branch; empty for none.
        changes: the diff between that commit and `head_sha`.
        is_current: whether `head_sha` is the commit that is worked on.
    """

    id: int
    attempt: int = 1
    name: str
    path: str = ""
    event: str = ""
    conclusion: str = ""
    url: str
    head_sha: str
    head_branch: str = ""
    jobs: tuple[FailedJob, ...]
    unread: int = 0
    green_sha: str = ""
    changes: str = ""
    is_current: bool = True
