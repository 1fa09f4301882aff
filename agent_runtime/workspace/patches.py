"""Parser of `*** Begin Patch` patches, and placement of their hunks. Pure.

The grammar is that of OpenAI's `apply_patch` tool; line numbers in hunk headers are accepted and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import LineEdit, payload_lines
from agent_runtime.workspace.edits import MATCH_LEVELS, find_block

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_END_OF_FILE = "*** End of File"
_MOVE = "*** Move to: "
_SECTION = re.compile(r"\*\*\* (?P<what>Add|Update|Delete) File: (?P<path>.+)")
_NUMBERS = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_LINE_MARKS = " +-"
_MAX_FAULTS = 5
_ENVELOPE = (_BEGIN, "*** Update File: ", _END)
_SHAPE = (
    "A patch is '*** Begin Patch', then for each file '*** Add File: path', '*** Update File: path' or "
    "'*** Delete File: path' with its lines, then '*** End Patch'"
)

_CLOSING = (")", "]", "}", "else", "elif", "except", "finally", "case", "#", "//")
_MAX_HEADS = 50
_IN_WORD = re.compile(r"\w\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Lines to find and their replacement.

    Attributes:
        headers: enclosing lines, outermost first.
        number: from 1; 0 if the only one.
        place: lines of the patch, from 0.
        fault: format error, or "".
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
    """A file to create."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A file to delete."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFile:
    """A file to change or move."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]


Section = AddFile | DeleteFile | UpdateFile


def parse_patch(patch: str) -> tuple[Section, ...]:
    """Parse a patch.

    Raises:
        ToolError: a format error; the text names the lines.
    """
    sections = _parse_sections(patch)
    broken = [hunk for hunk in _hunks_of(sections) if hunk.fault]
    faults = [f"hunk {hunk.number}, {hunk.fault}" if hunk.number else hunk.fault for hunk in broken]
    if faults:
        more = [f"… and {len(faults) - _MAX_FAULTS} more hunks"] if len(faults) > _MAX_FAULTS else []
        raise ToolError("\n".join([*faults[:_MAX_FAULTS], *more]), kind="ValueError")
    return sections


def replace_hunks(patch: str, corrections: Mapping[int, str]) -> str:
    """Replace hunks of a patch by number.

    Without an `@@` line, a correction keeps the old headers; an empty one removes the hunk.

    Raises:
        ToolError: no such hunk, or sections would become ambiguous.
    """
    lines = patch.replace("\r\n", "\n").split("\n")
    hunks = _hunks_of(_parse_sections(patch))
    for number in sorted(corrections, reverse=True):
        if not 1 <= number <= len(hunks):
            raise ToolError(f"hunks: there is no hunk {number}; the patch has 1 to {len(hunks)}", kind="ValueError")
        place = hunks[number - 1].place
        fresh = [line for line in payload_lines(corrections[number]) if not line.startswith(_ENVELOPE)]
        if fresh and not fresh[0].startswith("@@"):
            fresh[:0] = takewhile(lambda line: line.startswith("@@"), lines[place.start : place.stop])
        lines[place.start : place.stop] = fresh
    corrected = "\n".join(lines)
    try:
        _parse_sections(corrected)
    except ToolError as error:
        raise ToolError(f"hunks: not taken, the patch stays as it was: {error}", kind=error.kind) from error
    return corrected


def count_hunks(patch: str) -> int:
    """Count the correctable hunks; 0 if sections are invalid."""
    try:
        return len(_hunks_of(_parse_sections(patch)))
    except ToolError:
        return 0


def _parse_sections(patch: str) -> tuple[Section, ...]:
    """Parse sections, recording hunk errors.

    Raises:
        ToolError: any other error.
    """
    lines = patch.replace("\r\n", "\n").split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    last = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].strip()), 0)
    if lines[first].strip() != _BEGIN:
        raise _fault(first, f"must be {_BEGIN!r}. {_SHAPE}")
    if last == first or lines[last].strip() != _END:
        raise _fault(last, f"is the last and must be {_END!r}. {_SHAPE}")
    reader = _Reader(lines, first + 1, last)
    sections: list[Section] = []
    while reader.at < reader.end:
        if reader.line.strip():
            sections.append(_parse_section(reader))
        else:
            reader.at += 1
    if not sections:
        raise _fault(last, f"ends a patch that names no file. {_SHAPE}")
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
    """Position in a patch."""

    def __init__(self, lines: list[str], at: int, end: int) -> None:
        self.lines, self.at, self.end = lines, at, end

    @property
    def line(self) -> str:
        """Current line, or ""."""
        return self.lines[self.at] if self.at < self.end else ""

    def read_body(self) -> range:
        """Read up to the next section, without trailing empty lines."""
        start = self.at
        while self.at < self.end and not self.lines[self.at].startswith("*** "):
            self.at += 1
        stop = self.at
        while stop > start and not self.lines[stop - 1]:
            stop -= 1
        return range(start, stop)


def _parse_section(reader: _Reader) -> Section:
    head = _SECTION.fullmatch(reader.line.rstrip())
    if head is None:
        raise _fault(reader.at, f"{reader.line[:80]!r} begins no file. {_SHAPE}")
    path = head["path"].strip()
    number = reader.at
    reader.at += 1
    if head["what"] == "Add":
        lines: list[str] = []
        for i in reader.read_body():
            if not reader.lines[i].startswith("+"):
                raise _fault(i, f"{reader.lines[i][:80]!r}: every line of an added file must begin with '+'")
            lines.append(f"{reader.lines[i][1:]}\n")
        if reader.line.rstrip() == _END_OF_FILE:
            reader.at += 1
        return AddFile(path=path, content="".join(lines))
    if head["what"] == "Delete":
        if body := reader.read_body():
            raise _fault(body[0], "follows '*** Delete File', which takes no lines")
        return DeleteFile(path=path)
    move_to = None
    if reader.line.startswith(_MOVE):
        move_to = reader.line.removeprefix(_MOVE).strip()
        reader.at += 1
    hunks = _parse_hunks(reader)
    if not hunks and move_to is None:
        raise _fault(number, f"updates {path!r} but no hunk follows: '@@', then lines that begin with ' ', '-' or '+'")
    return UpdateFile(path=path, move_to=move_to, hunks=hunks)


def _parse_hunks(reader: _Reader) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    while True:
        body = reader.read_body()
        closed = reader.line.rstrip() == _END_OF_FILE
        reader.at += closed
        parts: list[tuple[list[int], list[int]]] = []  # line numbers of each hunk's headers and body
        for i in body:
            is_header = reader.lines[i].startswith("@@")
            if (is_header and (not parts or parts[-1][1])) or (not parts and reader.lines[i]):
                parts.append(([], []))
            if parts:
                parts[-1][0 if is_header else 1].append(i)
        if closed and not parts:
            raise _fault(reader.at - 1, "must follow the lines of a hunk")
        hunks += [
            _parse_hunk(reader.lines, headers, lines, at_end=closed and i == len(parts) - 1)
            for i, (headers, lines) in enumerate(parts)
        ]
        if not closed:
            return tuple(hunks)


def _parse_hunk(lines: list[str], headers: list[int], body: list[int], *, at_end: bool) -> Hunk:
    while body and not lines[body[-1]]:
        body = body[:-1]
    marked = [(i, lines[i][:1] or " ", lines[i][1:]) for i in body if not lines[i].startswith("\\ ")]
    fault = ""
    if (bad := next((i for i, mark, _ in marked if mark not in _LINE_MARKS), None)) is not None:
        fault = str(_fault(bad, f"{lines[bad][:80]!r}: a hunk's lines must begin with ' ' (unchanged), '-' or '+'"))
    elif all(mark == " " for _, mark, _ in marked):
        wrong = "begins a hunk that changes nothing: no line in it begins with '-' or '+'"
        fault = str(_fault((body or headers)[0], wrong))
    names = [lines[i][2:].removeprefix(" ").rstrip() for i in headers if not _NUMBERS.match(lines[i])]
    return Hunk(
        place=range((headers or body)[0], (body or headers)[-1] + 1),
        fault=fault,
        headers=tuple(name for name in names if name.strip()),
        old=tuple(text for _, mark, text in marked if mark != "+"),
        new=tuple(text for _, mark, text in marked if mark != "-"),
        at_end=at_end,
    )


def _fault(index: int, problem: str) -> ToolError:
    return ToolError(f"line {index + 1} of the patch {problem}", kind="ValueError")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHunks:
    """Hunks located in a file.

    Attributes:
        notes: on inexact matches.
        loose: line ranges of inexact matches.
    """

    edits: list[LineEdit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    loose: list[tuple[int, int]] = field(default_factory=list)


def place_hunks(path: str, lines: Sequence[str], hunks: Sequence[Hunk]) -> PlacedHunks:
    """Find every hunk in a file.

    Raises:
        ToolError: some are missing or ambiguous; nothing was applied.
    """
    placed = PlacedHunks()
    faults: list[str] = []
    unplaced: list[int] = []
    for hunk in hunks:
        label = f"{path!r}, hunk {hunk.number}" if hunk.number else f"{path!r}"
        try:
            _place_hunk(label, lines, hunk, placed)
        except ToolError as error:
            faults.append(str(error))
            unplaced.append(hunk.number)
    if faults:
        rest = ", ".join(map(str, unplaced[_MAX_FAULTS:]))
        more = [f"… and hunks {rest}, for reasons like these"] if rest else []
        raise ToolError("\n".join([*faults[:_MAX_FAULTS], *more]), kind="ValueError")
    return placed


def _place_hunk(label: str, lines: Sequence[str], hunk: Hunk, placed: PlacedHunks) -> None:
    # Lines of the innermost header, within those of the outer ones; none if one is missing.
    heads: list[int] = []
    scopes = [range(len(lines))]
    for header in hunk.headers:
        heads = _find_header(lines, header, scopes)
        scopes = _header_scopes(lines, heads)
    if not hunk.old:
        after = _insertion_point(label, lines, hunk, heads)
        placed.edits.append(LineEdit(start=after + 1, end=after, text="".join(f"{line}\n" for line in hunk.new)))
        return
    regions = [scopes, [range(heads[0], len(lines))]] if heads else None
    match = find_block(lines, hunk.old, hunk.new, label=label, regions=regions, at_end=hunk.at_end)
    notes = [] if match.level == "exact" else [f"not an exact match: {match.level} differed."]
    if hunk.headers and not heads:
        notes.append(f"no line {hunk.headers[-1].strip()!r} as the @@ says, but the lines stand only once.")
    placed.edits.extend(match.edits)
    if notes:
        placed.notes.append(f"{label}: {' '.join(notes)}")
        placed.loose.append((match.start, match.end))


def _insertion_point(label: str, lines: Sequence[str], hunk: Hunk, heads: Sequence[int]) -> int:
    """Return the line after which a hunk without old lines goes."""
    if len(heads) == 1 and not hunk.at_end:
        return heads[0] + 1
    if not lines or (hunk.at_end and not hunk.headers):
        return len(lines)
    if heads:
        numbers = ", ".join(str(head + 1) for head in heads[:12])
        raise ToolError(f"{label}: the @@ line stands {len(heads)} times (at lines {numbers}); add unchanged lines")
    raise ToolError(
        f"{label}: it adds lines and does not say where; add unchanged lines around them (or *** End of File)"
    )


def _header_scopes(lines: Sequence[str], heads: Sequence[int]) -> list[range]:
    if len(heads) > _MAX_HEADS:
        return [range(heads[0], len(lines))]
    scopes: list[range] = []
    for head in heads:  # up to the last line indented below it
        depth = _indent_width(lines[head])
        below = ((i, lines[i].strip()) for i in range(head + 1, len(lines)) if _indent_width(lines[i]) <= depth)
        end = next((i for i, line in below if line and not line.startswith(_CLOSING)), len(lines))
        scopes.append(range(head, end))
    return scopes


def _find_header(lines: Sequence[str], header: str, regions: Sequence[range]) -> list[int]:
    places = regions[0] if len(regions) == 1 else sorted({i for region in regions for i in region})
    core = header.strip()
    candidates = [i for i in places if core in lines[i]]  # all rungs but the last match among these only
    if not candidates:
        candidates = [i for i in places if not (lines[i].isascii() and core.isascii())]
    for _, key in MATCH_LEVELS:
        normalized = key(header)
        if matches := [i for i in candidates if key(lines[i]) == normalized]:
            return matches
    # The format's own examples shorten headers to a line's first words.
    prefixed = [i for i in candidates if lines[i].strip().startswith(core)]
    return [i for i in prefixed if not _IN_WORD.match(f"{core[-1:]}{lines[i].strip()[len(core) :][:1]}")]


def _indent_width(line: str) -> int:
    return len(line) - len(line.lstrip())
