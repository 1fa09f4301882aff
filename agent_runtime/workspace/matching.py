"""Find old text in a file, and put new text in its place. Pure.

Whole lines are compared, on four rungs: exactly, without trailing whitespace, without indentation, with typographic
punctuation taken for its ASCII twin. The first rung on which the text is found decides, and it must be found once
there. Nothing is ever found by likeness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import Opcode, changed_spans, opcodes
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.views import listed

Rung = Literal["exact", "trailing whitespace", "indentation", "Unicode punctuation"]

_TWINS = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2015": "-", "\u2212": "-",
        "\u2026": "...", "\u00a0": " ", "\u2002": " ", "\u2003": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ",
    }
)  # fmt: skip
_SHOWN = 12
_AROUND = 2
_LOOKED_AT = 1_000_000  # lines of all places together
_LIKE = 0.6
_LIKE_CHARS = 100  # of a line; difflib's worst case grows with the cube
_LIKE_LINES = 5_000
_LIKE_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Where old text stands, and what takes its place.

    Attributes:
        start: first line, from 1.
        end: last line.
        lines: the new lines, indented as the file is; lines that old and new text share are the file's own.
        rung: how it was found.
        edits: the same as the smallest edits, so that lines which stay keep every byte.
    """

    start: int
    end: int
    lines: list[str]
    rung: Rung
    edits: list[LineEdit]


def find_block(
    lines: Sequence[str],
    old: Sequence[str],
    new: Sequence[str],
    *,
    what: str = "replace",
    regions: Sequence[Sequence[range]] | None = None,
    at_end: bool = False,
) -> Match:
    """Find `old` in `lines`.

    Args:
        lines: the file.
        old: the lines to be found.
        new: what takes their place.
        what: how error texts begin.
        regions: where to look, one choice after the other, each of one or more ranges of lines; everywhere if None.
        at_end: whether `old` must be the file's last lines.

    Raises:
        ToolError: `old` has no text, or it stands nowhere or in several places.
    """
    if not any(line.strip() for line in old):
        raise ToolError(f"{what}: the old text is empty; it must hold whole lines of the file", kind="ValueError")
    for region in regions or [[range(len(lines))]]:
        for rung, key in RUNGS:
            if rung == "exact":
                places = _places(tuple(lines), tuple(old), region)
            else:
                places = _places(tuple(key(line) for line in lines), tuple(key(line) for line in old), region)
            if at_end:
                places = [place for place in places if place + len(old) == len(lines)]
            found = _fitting(what, lines, old, new, places) if rung != "exact" else [(each, new) for each in places]
            if len(found) > 1:
                numbers = ", ".join(str(place + 1) for place, _ in found[:_SHOWN])
                raise ToolError(
                    f"{what}: the old text stands {len(found)} times (at lines {numbers}); add lines around it, to "
                    "the old and the new, until it is unique",
                    kind="ValueError",
                )
            for place, fresh in found:
                edits = [
                    LineEdit(start=place + a + 1, end=place + b, text="".join(f"{line}\n" for line in fresh[c:d]))
                    for a, b, c, d in changed_spans(lines[place : place + len(old)], fresh)
                ]
                return Match(start=place + 1, end=place + len(old), lines=list(fresh), rung=rung, edits=edits)
    raise ToolError(f"{what}: {_not_found(lines, old, new, at_end=at_end)}", kind="ValueError")


def _trailing(line: str) -> str:
    return line.rstrip()


def _indentation(line: str) -> str:
    return line.strip()


def _punctuation(line: str) -> str:
    return (line if line.isascii() else line.translate(_TWINS)).strip()


RUNGS: tuple[tuple[Rung, Callable[[str], str]], ...] = (
    ("exact", str),
    ("trailing whitespace", _trailing),
    ("indentation", _indentation),
    ("Unicode punctuation", _punctuation),
)


def _places(lines: tuple[str, ...], block: tuple[str, ...], region: Sequence[range]) -> list[int]:
    """Where the block begins, in time linear in the lines: Knuth, Morris and Pratt's way."""
    # Of each beginning of the block: how many lines at its end are those at its start, all of them left out.
    borders, border = [0], 0
    for line in block[1:]:
        while border and line != block[border]:
            border = borders[border - 1]
        border += line == block[border]
        borders.append(border)
    size = len(block)
    places: set[int] = set()
    for part in region:
        matched = 0
        for i in range(part.start, part.stop):
            while matched and (matched == size or lines[i] != block[matched]):
                matched = borders[matched - 1]
            matched += lines[i] == block[matched]
            if matched == size:
                places.add(i - size + 1)
    return sorted(places)


def _fitting(
    what: str, lines: Sequence[str], old: Sequence[str], new: Sequence[str], places: Sequence[int]
) -> list[tuple[int, list[str]]]:
    """The places whose indentation corresponds to the old text's, each with the new lines as it is indented.

    Raises:
        ToolError: there are too many places to look at.
    """
    if len(places) > 1 and len(places) * (len(old) + len(new)) > _LOOKED_AT:
        numbers = ", ".join(str(place + 1) for place in places[:_SHOWN])
        raise ToolError(
            f"{what}: but for white space, the old text stands {len(places)} times (at lines {numbers}); give it as it "
            "is indented, with lines around it, to the old and the new, until it is unique",
            kind="ValueError",
        )
    changes = opcodes(old, new) if places else []
    fitting = [(place, _reindented(lines[place : place + len(old)], old, new, changes)) for place in places]
    return [(place, fresh) for place, fresh in fitting if fresh is not None]


def _reindented(
    there: Sequence[str], old: Sequence[str], new: Sequence[str], changes: Sequence[Opcode]
) -> list[str] | None:
    """The new lines as the file indents them; None when its indentation does not correspond to the old text's."""
    indent = _indenter(there, old)
    if indent is None:
        return None
    fresh: list[str] = []
    for tag, a, b, c, d in changes:
        if tag == "equal":
            fresh += there[a:b]
            continue
        for line in new[c:d]:
            indented = indent(line)
            if indented is None:
                return None
            fresh.append(indented)
    return fresh


def _indenter(there: Sequence[str], old: Sequence[str]) -> Callable[[str], str | None] | None:
    """How to turn the old text's indentation into the file's: by one prefix added or removed, else line by line."""
    pairs = [(_indent_of(mine), _indent_of(theirs)) for mine, theirs in zip(old, there, strict=True) if mine.strip()]
    mapping: dict[str, str] = {}
    for mine, theirs in pairs:
        if mapping.setdefault(mine, theirs) != theirs:
            return None
    added = {theirs[: len(theirs) - len(mine)] if theirs.endswith(mine) else None for mine, theirs in pairs}
    removed = {mine[: len(mine) - len(theirs)] if mine.endswith(theirs) else None for mine, theirs in pairs}

    def indented(line: str) -> str | None:
        mine = _indent_of(line)
        if not line.strip():
            return line.strip(" \t")
        if mine in mapping:
            return mapping[mine] + line[len(mine) :]
        if len(added) == 1 and (prefix := next(iter(added))) is not None:
            return prefix + line
        if len(removed) == 1 and (prefix := next(iter(removed))) is not None and line.startswith(prefix):
            return line[len(prefix) :]
        return None

    return indented


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _not_found(lines: Sequence[str], old: Sequence[str], new: Sequence[str], *, at_end: bool) -> str:
    standing = _places(tuple(lines), tuple(new), [range(len(lines))]) if any(line.strip() for line in new) else []
    if standing:
        first = standing[0] + 1
        return f"already applied: the new text stands at lines {first}-{first + len(new) - 1}, the old nowhere"
    near = _nearest(lines, old)
    if near is None:
        return "the old text is nowhere in the file, nor is any line like it; read the file again"
    start, end = max(1, near + 1 - _AROUND), min(len(lines), near + min(len(old), _SHOWN) + _AROUND)
    shown, _ = listed(lines, start, end)
    where = "at the end of the file" if at_end else "in the file"
    return "\n".join([f"the old text is not {where}; the nearest lines are", *shown])


def _nearest(lines: Sequence[str], old: Sequence[str]) -> int | None:
    """Where most lines of the old text stand in order; else a line like its longest one. For the error text only."""
    where: dict[str, list[int]] = {}
    for offset, line in enumerate(old):
        if line.strip():
            where.setdefault(line.strip(), []).append(offset)
    votes = Counter(i - offset for i, line in enumerate(lines) for offset in where.get(line.strip(), ())[:_SHOWN])
    if votes:
        return max(0, votes.most_common(1)[0][0])
    # The line that is most like the longest one; a bounded part of the file is looked at.
    offset, longest = max(enumerate(line.strip() for line in old), key=lambda pair: len(pair[1]))
    matcher = SequenceMatcher(b=longest[:_LIKE_CHARS], autojunk=False)
    best, place, tries = _LIKE, None, 0
    for i, line in enumerate(lines[:_LIKE_LINES]):
        matcher.set_seq1(line.strip()[:_LIKE_CHARS])
        if matcher.real_quick_ratio() <= best or matcher.quick_ratio() <= best:
            continue
        tries += 1
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, max(0, i - offset)
        if tries == _LIKE_TRIES:
            break
    return place
