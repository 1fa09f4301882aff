"""Locate the hunks of a patch in a file. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.matching import RUNGS, find_block
from agent_runtime.workspace.patches import Hunk

_CLOSING = (")", "]", "}", "else", "elif", "except", "finally", "case", "#", "//")
_MOST_FAULTS = 5
_MOST_HEADS = 50
_WORD_GOES_ON = re.compile(r"\w\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHunks:
    """Where hunks are in a file.

    Attributes:
        edits: what they do.
        notes: one for each hunk that did not match as it was written.
        loose: the old lines, first and last, of those hunks.
    """

    edits: list[LineEdit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    loose: list[tuple[int, int]] = field(default_factory=list)


def place_hunks(path: str, lines: Sequence[str], hunks: Sequence[Hunk]) -> PlacedHunks:
    """Find every hunk in a file.

    Raises:
        ToolError: some are not found or not unique; the text reports each, and that nothing was applied.
    """
    placed = PlacedHunks()
    faults: list[str] = []
    unplaced: list[int] = []
    for hunk in hunks:
        what = f"{path!r}, hunk {hunk.number}" if hunk.number else f"{path!r}"
        try:
            _place(what, lines, hunk, placed)
        except ToolError as error:
            faults.append(str(error))
            unplaced.append(hunk.number)
    if faults:
        rest = ", ".join(map(str, unplaced[_MOST_FAULTS:]))
        more = [f"… and hunks {rest}, for reasons like these"] if rest else []
        raise ToolError("\n".join([*faults[:_MOST_FAULTS], *more]), kind="ValueError")
    return placed


def _place(what: str, lines: Sequence[str], hunk: Hunk, placed: PlacedHunks) -> None:
    # The lines that the innermost header names, beneath those that the outer ones name; none when one is missing.
    heads: list[int] = []
    scopes = [range(len(lines))]
    for header in hunk.headers:
        heads = _named(lines, header, scopes)
        scopes = _scopes(lines, heads)
    if not hunk.old:
        after = _insertion_point(what, lines, hunk, heads)
        placed.edits.append(LineEdit(start=after + 1, end=after, text="".join(f"{line}\n" for line in hunk.new)))
        return
    regions = [scopes, [range(heads[0], len(lines))]] if heads else None
    match = find_block(lines, hunk.old, hunk.new, what=what, regions=regions, at_end=hunk.at_end)
    notes = [] if match.rung == "exact" else [f"not an exact match: {match.rung} differed."]
    if hunk.headers and not heads:
        notes.append(f"no line {hunk.headers[-1].strip()!r} as the @@ says, but the lines stand only once.")
    placed.edits.extend(match.edits)
    if notes:
        placed.notes.append(f"{what}: {' '.join(notes)}")
        placed.loose.append((match.start, match.end))


def _insertion_point(what: str, lines: Sequence[str], hunk: Hunk, heads: Sequence[int]) -> int:
    """The line after which a hunk without old lines goes."""
    if len(heads) == 1 and not hunk.at_end:
        return heads[0] + 1
    if not lines or (hunk.at_end and not hunk.headers):
        return len(lines)
    if heads:
        numbers = ", ".join(str(head + 1) for head in heads[:12])
        raise ToolError(f"{what}: the @@ line stands {len(heads)} times (at lines {numbers}); add unchanged lines")
    raise ToolError(
        f"{what}: it adds lines and does not say where; add unchanged lines around them (or *** End of File)"
    )


def _scopes(lines: Sequence[str], heads: Sequence[int]) -> list[range]:
    """What belongs to each of the headers; of very many, all that follows the first."""
    if len(heads) > _MOST_HEADS:
        return [range(heads[0], len(lines))]
    scopes: list[range] = []
    for head in heads:  # up to the last line that belongs to it by indentation
        depth = _depth(lines[head])
        below = ((i, lines[i].strip()) for i in range(head + 1, len(lines)) if _depth(lines[i]) <= depth)
        end = next((i for i, line in below if line and not line.startswith(_CLOSING)), len(lines))
        scopes.append(range(head, end))
    return scopes


def _named(lines: Sequence[str], header: str, regions: Sequence[range]) -> list[int]:
    places = regions[0] if len(regions) == 1 else sorted({i for region in regions for i in region})
    core = header.strip()
    like = [i for i in places if core in lines[i]]  # one quick pass; all rungs but the last are about these only
    if not like:
        like = [i for i in places if not (lines[i].isascii() and core.isascii())]
    for _, key in RUNGS:
        wanted = key(header)
        if found := [i for i in like if key(lines[i]) == wanted]:
            return found
    # The format's own examples leave out what follows a name: a header may be a line's beginning, in whole words.
    begun = [i for i in like if lines[i].strip().startswith(core)]
    return [i for i in begun if not _WORD_GOES_ON.match(f"{core[-1:]}{lines[i].strip()[len(core) :][:1]}")]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
