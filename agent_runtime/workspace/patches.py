"""The `*** Begin Patch` format: text in, what is to be done to which files out. Pure.

The grammar is the one that OpenAI publishes with its models' `apply_patch` tool. Two habits of other patch formats are
understood as well: line numbers in a hunk's header (`@@ -1,3 +1,4 @@`), which are not trusted and so not used, and an
unchanged empty line without its leading space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.text import split

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_END_OF_FILE = "*** End of File"
_MOVE = "*** Move to: "
_SECTION = re.compile(r"\*\*\* (?P<what>Add|Update|Delete) File: (?P<path>.+)")
_NUMBERS = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_MARKS = " +-"
_MOST_FAULTS = 5
_ENVELOPE = (_BEGIN, "*** Update File: ", _END)
_SHAPE = (
    "A patch is '*** Begin Patch', then for each file '*** Add File: path', '*** Update File: path' or "
    "'*** Delete File: path' with its lines, then '*** End Patch'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Lines to be found in a file and what they become.

    Attributes:
        headers: lines of the file, outermost first, below which the hunk stands.
        old: the unchanged and the removed lines.
        new: the unchanged and the added lines.
        at_end: whether the old lines are the file's last.
        number: which of the whole patch it is, from 1; 0 where there is but one.
        place: the lines of the patch, from 0, that it takes.
        fault: why it cannot be applied, whatever the file holds; empty for one that follows the format.
    """

    headers: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    at_end: bool = False
    number: int = 0
    place: range = range(0)
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile:
    """A file to be made, and its whole content."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A file to be removed."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFile:
    """A file to be changed, moved, or both."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]


Section = AddFile | DeleteFile | UpdateFile


def with_hunks(patch: str, corrections: Mapping[int, str]) -> str:
    """A patch with other hunks in the place of some.

    Args:
        patch: whose sections can be told apart; its hunks need not follow the format.
        corrections: by the number of the hunk, the lines of the one that replaces it; without a line that begins with
            `@@` it keeps those of the old one, and where it has no lines, the hunk is dropped.

    Raises:
        ToolError: the patch has no hunk of that number, or could no longer be corrected like this.
    """
    lines = patch.replace("\r\n", "\n").split("\n")
    hunks = _hunks_of(_sections(patch))
    for number in sorted(corrections, reverse=True):
        if not 1 <= number <= len(hunks):
            raise ToolError(f"hunks: there is no hunk {number}; the patch has 1 to {len(hunks)}", kind="ValueError")
        place = hunks[number - 1].place
        fresh = [line for line in split(corrections[number].replace("\r\n", "\n")) if not line.startswith(_ENVELOPE)]
        if fresh and not fresh[0].startswith("@@"):
            fresh[:0] = takewhile(lambda line: line.startswith("@@"), lines[place.start : place.stop])
        lines[place.start : place.stop] = fresh
    corrected = "\n".join(lines)
    try:
        _sections(corrected)
    except ToolError as error:
        raise ToolError(f"hunks: not taken, the patch stays as it was: {error}", kind=error.kind) from error
    return corrected


def hunk_count(patch: str) -> int:
    """How many hunks of a patch can be corrected; 0 where its sections cannot be told apart."""
    try:
        return len(_hunks_of(_sections(patch)))
    except ToolError:
        return 0


def parse_patch(patch: str) -> tuple[Section, ...]:
    """Read a patch.

    Raises:
        ToolError: it does not follow the format; the text names the lines.
    """
    sections = _sections(patch)
    broken = [hunk for hunk in _hunks_of(sections) if hunk.fault]
    faults = [f"hunk {hunk.number}, {hunk.fault}" if hunk.number else hunk.fault for hunk in broken]
    if faults:
        more = [f"… and {len(faults) - _MOST_FAULTS} more hunks"] if len(faults) > _MOST_FAULTS else []
        raise ToolError("\n".join([*faults[:_MOST_FAULTS], *more]), kind="ValueError")
    return sections


def _sections(patch: str) -> tuple[Section, ...]:
    """The sections of a patch, with what is wrong with each hunk.

    Raises:
        ToolError: something else is wrong.
    """
    lines = patch.replace("\r\n", "\n").split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    last = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].strip()), 0)
    if lines[first].strip() != _BEGIN:
        raise _wrong(first, f"must be {_BEGIN!r}. {_SHAPE}")
    if last == first or lines[last].strip() != _END:
        raise _wrong(last, f"is the last and must be {_END!r}. {_SHAPE}")
    reader = _Reader(lines, first + 1, last)
    sections: list[Section] = []
    while reader.at < reader.end:
        if reader.line.strip():
            sections.append(_section(reader))
        else:
            reader.at += 1
    if not sections:
        raise _wrong(last, f"ends a patch that names no file. {_SHAPE}")
    if len(_hunks_of(sections)) > 1:
        numbers = count(1)
        for at, section in enumerate(sections):
            if isinstance(section, UpdateFile):
                numbered = tuple(replace(hunk, number=next(numbers)) for hunk in section.hunks)
                sections[at] = replace(section, hunks=numbered)
    return tuple(sections)


def _hunks_of(sections: Iterable[Section]) -> list[Hunk]:
    return [hunk for section in sections if isinstance(section, UpdateFile) for hunk in section.hunks]


class _Reader:
    """A position in the lines of a patch."""

    def __init__(self, lines: list[str], at: int, end: int) -> None:
        self.lines, self.at, self.end = lines, at, end

    @property
    def line(self) -> str:
        """The current line; empty past the end."""
        return self.lines[self.at] if self.at < self.end else ""

    def body(self) -> range:
        """Where the lines up to the next section or end-of-file mark stand, empty ones at their end left out."""
        start = self.at
        while self.at < self.end and not self.lines[self.at].startswith("*** "):
            self.at += 1
        stop = self.at
        while stop > start and not self.lines[stop - 1]:
            stop -= 1
        return range(start, stop)


def _section(reader: _Reader) -> Section:
    head = _SECTION.fullmatch(reader.line.rstrip())
    if head is None:
        raise _wrong(reader.at, f"{reader.line[:80]!r} begins no file. {_SHAPE}")
    path = head["path"].strip()
    number = reader.at
    reader.at += 1
    if head["what"] == "Add":
        lines: list[str] = []
        for i in reader.body():
            if not reader.lines[i].startswith("+"):
                raise _wrong(i, f"{reader.lines[i][:80]!r}: every line of an added file must begin with '+'")
            lines.append(f"{reader.lines[i][1:]}\n")
        if reader.line.rstrip() == _END_OF_FILE:
            reader.at += 1
        return AddFile(path=path, content="".join(lines))
    if head["what"] == "Delete":
        if body := reader.body():
            raise _wrong(body[0], "follows '*** Delete File', which takes no lines")
        return DeleteFile(path=path)
    move_to = None
    if reader.line.startswith(_MOVE):
        move_to = reader.line.removeprefix(_MOVE).strip()
        reader.at += 1
    hunks = _hunks(reader)
    if not hunks and move_to is None:
        raise _wrong(number, f"updates {path!r} but no hunk follows: '@@', then lines that begin with ' ', '-' or '+'")
    return UpdateFile(path=path, move_to=move_to, hunks=hunks)


def _hunks(reader: _Reader) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    while True:
        body = reader.body()
        closed = reader.line.rstrip() == _END_OF_FILE
        reader.at += closed
        parts: list[tuple[list[int], list[int]]] = []  # cut at `@@`: places of each hunk's headers, and of its lines
        for i in body:
            is_header = reader.lines[i].startswith("@@")
            if (is_header and (not parts or parts[-1][1])) or (not parts and reader.lines[i]):
                parts.append(([], []))
            if parts:
                parts[-1][0 if is_header else 1].append(i)
        if closed and not parts:
            raise _wrong(reader.at - 1, "must follow the lines of a hunk")
        hunks += [
            _hunk(reader.lines, headers, lines, at_end=closed and i == len(parts) - 1)
            for i, (headers, lines) in enumerate(parts)
        ]
        if not closed:
            return tuple(hunks)


def _hunk(lines: list[str], headers: list[int], body: list[int], *, at_end: bool) -> Hunk:
    while body and not lines[body[-1]]:
        body = body[:-1]
    marked = [(i, lines[i][:1] or " ", lines[i][1:]) for i in body if not lines[i].startswith("\\ ")]
    fault = ""
    if (bad := next((i for i, mark, _ in marked if mark not in _MARKS), None)) is not None:
        fault = str(_wrong(bad, f"{lines[bad][:80]!r}: a hunk's lines must begin with ' ' (unchanged), '-' or '+'"))
    elif all(mark == " " for _, mark, _ in marked):
        wrong = "begins a hunk that changes nothing: no line in it begins with '-' or '+'"
        fault = str(_wrong((body or headers)[0], wrong))
    named = [lines[i][2:].removeprefix(" ").rstrip() for i in headers if not _NUMBERS.match(lines[i])]
    return Hunk(
        place=range((headers or body)[0], (body or headers)[-1] + 1),
        fault=fault,
        headers=tuple(name for name in named if name.strip()),
        old=tuple(text for _, mark, text in marked if mark != "+"),
        new=tuple(text for _, mark, text in marked if mark != "-"),
        at_end=at_end,
    )


def _wrong(index: int, what: str) -> ToolError:
    return ToolError(f"line {index + 1} of the patch {what}", kind="ValueError")
