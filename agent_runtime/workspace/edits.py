"""Edits by `write_file` and numbered views of files. Pure.

Start with `apply_write`. Line numbers refer to lines that the agent saw (`Versions`), rebased after changes; ambiguous
edits fail.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace import diffs as engine
from agent_runtime.workspace.diffs import LineEdit, Opcode, Text, changed_spans, opcodes, split_lines

LINE_MODES = frozenset({"edit", "insert", "multi_edit"})
WHOLE_MODES = frozenset({"w", "a"})
_LINE_ARGUMENTS: dict[str, frozenset[str]] = {
    "w": frozenset(),
    "a": frozenset(),
    "edit": frozenset({"start_line", "end_line"}),
    "insert": frozenset({"after_line"}),
    "multi_edit": frozenset({"edits"}),
    "replace": frozenset(),
    "patch": frozenset(),
}
"""Line arguments of each mode."""
_ERROR_CONTEXT = 3
_MAX_ERROR_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """A call of `write_file`.

    Attributes:
        lines: line arguments that are not None.
        contents: payloads.
        force: write despite suspicious content.
    """

    path: str
    mode: str
    lines: dict[str, object]
    contents: tuple[str, ...]
    version: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedWrite:
    """Result of a write, with notes for the model."""

    raw: str
    notes: list[str] = field(default_factory=list)
    edits: list[LineEdit] = field(default_factory=list)


class StaleError(ToolError):
    """Addressed lines have changed; the text shows them."""


def check_mode(mode: str) -> None:
    """Validate a mode.

    Raises:
        ToolError: unknown.
    """
    if mode not in _LINE_ARGUMENTS:
        raise ToolError(f"mode={mode!r}: must be one of {', '.join(map(repr, _LINE_ARGUMENTS))}", kind="ValueError")


def payload_count(mode: str, edits: int | None = None) -> int:
    """Return the number of payloads of a write.

    Raises:
        ValueError: unknown mode, or no number of `edits` in `multi_edit`.
    """
    if mode not in _LINE_ARGUMENTS or (mode == "multi_edit" and edits is None):
        raise ValueError(f"mode {mode!r} with {edits} edits: no such write")
    return (edits or 0) if mode == "multi_edit" else 2 if mode == "replace" else 1


def check_arguments(mode: str, names: frozenset[str]) -> None:
    """Validate a call's line arguments.

    Raises:
        ToolError: one is missing, or not of this mode.
    """
    if missing := _LINE_ARGUMENTS[mode] - names:
        raise ToolError(f"mode={mode!r} needs {' and '.join(sorted(missing, reverse=True))}", kind="ValueError")
    if extra := names - _LINE_ARGUMENTS[mode]:
        name = min(extra)
        other_mode = next(candidate for candidate, arguments in _LINE_ARGUMENTS.items() if name in arguments)
        raise ToolError(f"mode={mode!r} takes no {name}; for that use mode={other_mode!r}", kind="ValueError")


def apply_write(change: WriteCall, text: Text, base: Lines | None) -> AppliedWrite:
    """Apply a write of any mode but `w` and `patch`; without `base`, line numbers refer to `text`.

    Raises:
        StaleError: the lines have changed.
        ToolError: out of range, overlapping edits, or old text not found.
    """
    if change.mode == "a":
        return AppliedWrite(raw=engine.append(text, change.contents[0]))
    if change.mode == "replace":
        old, new = (engine.payload_lines(content) for content in change.contents)
        match = find_block(text.lines, old, new)
        notes = [] if match.level == "exact" else [f"Not an exact match: {match.level} differed."]
        return AppliedWrite(raw=engine.apply(text, match.edits), notes=notes)
    lines, contents, count = change.lines, change.contents, len(text.lines if base is None else base)
    if change.mode == "insert":
        edits = [engine.make_insertion(lines["after_line"], contents[0], count)]
    elif change.mode == "edit":
        start, end = lines["start_line"], lines["end_line"]
        edits = [engine.make_replacement(f"start_line={start}, end_line={end}", start, end, contents[0], count)]
    else:
        edits = [
            engine.make_replacement(f"edits[{i}]=({start}, {end})", start, end, content, count)
            for i, ((start, end), content) in enumerate(zip(pairs(lines["edits"]), contents, strict=True))
        ]
    placed = edits if base is None else rebase_edits(edits, base, text.lines)
    if placed is None:
        head = f"{change.path!r} changed since you read it, and so did lines you address; nothing was written."
        first, last = min(edit.start for edit in edits), max(edit.end for edit in edits)
        raise StaleError(with_current_lines(head, text.lines, first, last), kind="ValueError")
    moves = [
        f"your {_describe_lines(edit)} now {'is' if new.end <= new.start else 'are'} {_describe_lines(new)}"
        for edit, new in zip(edits, placed, strict=True)
        if edit != new
    ]
    notes = [f"The file changed since you read it: {', '.join(moves)}."] if moves else []
    return AppliedWrite(raw=engine.apply(text, placed), notes=notes, edits=placed)


def _describe_lines(edit: LineEdit) -> str:
    if edit.end < edit.start:
        return f"place after line {edit.end}"
    return f"line {edit.start}" if edit.end == edit.start else f"lines {edit.start}-{edit.end}"


def with_current_lines(head: str, lines: Lines, first: int, last: int) -> str:
    """Add the lines around a range to an error text."""
    first = max(1, first - _ERROR_CONTEXT)
    last = min(len(lines), last + _ERROR_CONTEXT, first + _MAX_ERROR_LINES - 1)
    listing, _ = number_lines(lines, first, last) if first <= last else ([], 0)
    return "\n".join([f"{head} It has {len(lines)} lines{'; now:' if listing else '.'}", *listing])


def pairs(edits: object) -> list[tuple[object, object]]:
    """Parse the ranges of a `multi_edit`.

    Raises:
        ToolError: no list of pairs, or empty.
    """
    if not isinstance(edits, list | tuple) or not edits:
        raise ToolError("edits must be a list of (start_line, end_line) pairs, at least one", kind="ValueError")
    parsed: list[tuple[object, object]] = []
    for i, pair in enumerate(edits):
        match pair:
            case (start, end):
                parsed.append((start, end))
            case _:
                raise ToolError(f"edits[{i}]={pair!r}: must be a pair (start_line, end_line)", kind="ValueError")
    return parsed


_COMMENT = re.compile(
    r"^\s*(?:#+|//+|/\*+|\*|<!--|--+|;+|%+|\{/\*|\{#|\"\"\"|'{3})\s*(?P<text>.*?)\s*(?:\*/\}?|-->|#\})?\s*$"
)
_DOTS = r"(?:\.{3,}|…)"
_WHAT = (
    r"(?:code|file|content|contents|function|functions|class|classes|method|methods|implementation|body|logic|"
    r"imports|tests|lines|module|script|document|section|config|configuration)"
)
_WHICH = r"(?:the\s+|all\s+|your\s+)*(?:rest|remainder|remaining|existing|previous|other|original)"
_STAYS = (
    r"(?:unchanged|unmodified|(?:stays?|remains?|is|are)?\s*the\s+same|as\s+(?:before|is)|goes\s+here|omitted|here)"
)
_MAX_COMMENT_CHARS = 500
_PLACEHOLDER = re.compile(
    rf"^{_DOTS}\s*\(?{_WHICH}\b.*$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*\b{_STAYS}\)?\s*{_DOTS}?\.?$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*{_DOTS}$"
    rf"|^{_DOTS}\s*\(?(?:{_WHAT}\s+)?(?:unchanged|same\s+as\s+(?:before|above))\)?\s*{_DOTS}?$",
    re.IGNORECASE,
)


def check_placeholders(path: str, lines: Iterable[str], text: Text | None) -> None:
    """Reject new comments that stand for omitted code.

    Raises:
        ToolError: there is one.
    """
    if comment := find_placeholder(lines, text.lines if text else ()):
        raise ToolError(
            f"{path!r} not written: line {comment[0]} of the content, {comment[1]!r}, stands for code that was left "
            "out, and the file would lose that code. Write it out, or change only some lines (mode='edit', 'replace' "
            "or 'patch'). If the comment is meant, repeat with force=True",
            kind="ValueError",
        )


def find_placeholder(lines: Iterable[str], existing: Sequence[str]) -> tuple[int, str] | None:
    """Return number and text of the first new comment that stands for omitted code."""
    existing_comments: set[str] | None = None
    for number, line in enumerate(lines, 1):
        # Collapse spaces, over which the expressions would backtrack.
        comment = _COMMENT.match(" ".join(line[:_MAX_COMMENT_CHARS].split()))
        if comment and _PLACEHOLDER.match(comment["text"]):
            existing_comments = {text.strip() for text in existing} if existing_comments is None else existing_comments
            if line.strip() not in existing_comments:
                return number, line.strip()
    return None


MatchLevel = Literal["exact", "trailing whitespace", "indentation", "Unicode punctuation"]
_ASCII_PUNCTUATION = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2015": "-", "\u2212": "-",
        "\u2026": "...", "\u00a0": " ", "\u2002": " ", "\u2003": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ",
    }
)  # fmt: skip
_MAX_NEAREST = 12
_NEAREST_CONTEXT = 2
_MAX_COMPARED_LINES = 1_000_000
_MIN_SIMILARITY = 0.6
_SIMILARITY_CHARS = 100  # difflib's worst case is cubic
_SIMILARITY_LINES = 5_000
_SIMILARITY_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Location of old text and its reindented replacement."""

    start: int
    end: int
    lines: list[str]
    level: MatchLevel
    edits: list[LineEdit]


def find_block(
    lines: Sequence[str],
    old: Sequence[str],
    new: Sequence[str],
    *,
    label: str = "replace",
    regions: Sequence[Sequence[range]] | None = None,
    at_end: bool = False,
) -> Match:
    """Find whole lines once, at the strictest of the `MATCH_LEVELS` that matches, in alternative `regions`.

    Raises:
        ToolError: `old` is empty, missing or ambiguous.
    """
    if not any(line.strip() for line in old):
        raise ToolError(f"{label}: the old text is empty; it must hold whole lines of the file", kind="ValueError")
    for region in regions or [[range(len(lines))]]:
        for level, key in MATCH_LEVELS:
            places = _find_all([*map(key, lines)], [*map(key, old)], region)
            if at_end:
                places = [place for place in places if place + len(old) == len(lines)]
            exact = [(place, new) for place in places]
            matches = exact if level == "exact" else _match_indentation(label, lines, old, new, places)
            if len(matches) > 1:
                numbers = ", ".join(str(place + 1) for place, _ in matches[:_MAX_NEAREST])
                raise ToolError(
                    f"{label}: the old text stands {len(matches)} times (at lines {numbers}); add lines around it, to "
                    "the old and the new, until it is unique",
                    kind="ValueError",
                )
            for place, fresh in matches:
                edits = [
                    LineEdit(start=place + a + 1, end=place + b, text="".join(f"{line}\n" for line in fresh[c:d]))
                    for a, b, c, d in changed_spans(lines[place : place + len(old)], fresh)
                ]
                return Match(start=place + 1, end=place + len(old), lines=list(fresh), level=level, edits=edits)
    raise ToolError(f"{label}: {_describe_missing(lines, old, new, at_end=at_end)}", kind="ValueError")


def _punctuation(line: str) -> str:
    return (line if line.isascii() else line.translate(_ASCII_PUNCTUATION)).strip()


MATCH_LEVELS: tuple[tuple[MatchLevel, Callable[[str], str]], ...] = (
    ("exact", str),
    ("trailing whitespace", str.rstrip),
    ("indentation", str.strip),
    ("Unicode punctuation", _punctuation),
)


def _find_all(lines: Sequence[str], block: Sequence[str], region: Sequence[range]) -> list[int]:
    """Return all matches of a block in linear time (Knuth, Morris, Pratt)."""
    # For each prefix of the block: the length of its longest proper border.
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


def _match_indentation(
    label: str, lines: Sequence[str], old: Sequence[str], new: Sequence[str], places: Sequence[int]
) -> list[tuple[int, list[str]]]:
    if len(places) > 1 and len(places) * (len(old) + len(new)) > _MAX_COMPARED_LINES:
        numbers = ", ".join(str(place + 1) for place in places[:_MAX_NEAREST])
        raise ToolError(
            f"{label}: but for white space, the old text stands {len(places)} times (at lines {numbers}); give it as "
            "it is indented, with lines around it, to the old and the new, until it is unique",
            kind="ValueError",
        )
    changes = opcodes(old, new) if places else []
    fitting = [(place, _reindent(lines[place : place + len(old)], old, new, changes)) for place in places]
    return [(place, fresh) for place, fresh in fitting if fresh is not None]


def _reindent(
    current: Sequence[str], old: Sequence[str], new: Sequence[str], changes: Sequence[Opcode]
) -> list[str] | None:
    indent = _make_indenter(current, old)
    if indent is None:
        return None
    lines: list[str] = []
    for tag, a, b, c, d in changes:
        if tag == "equal":
            lines += current[a:b]
            continue
        for line in new[c:d]:
            indented = indent(line)
            if indented is None:
                return None
            lines.append(indented)
    return lines


def _make_indenter(current: Sequence[str], old: Sequence[str]) -> Callable[[str], str | None] | None:
    """Return a function that converts indentation, by a common prefix or per line."""
    pairs = [(_indent_of(mine), _indent_of(theirs)) for mine, theirs in zip(old, current, strict=True) if mine.strip()]
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


def _describe_missing(lines: Sequence[str], old: Sequence[str], new: Sequence[str], *, at_end: bool) -> str:
    applied = _find_all(tuple(lines), tuple(new), [range(len(lines))]) if any(line.strip() for line in new) else []
    if applied:
        first = applied[0] + 1
        return f"already applied: the new text stands at lines {first}-{first + len(new) - 1}, the old nowhere"
    nearest = _find_nearest(lines, old)
    if nearest is None:
        return "the old text is nowhere in the file, nor is any line like it; read the file again"
    start, end = (
        max(1, nearest + 1 - _NEAREST_CONTEXT),
        min(len(lines), nearest + min(len(old), _MAX_NEAREST) + _NEAREST_CONTEXT),
    )
    listing, _ = number_lines(lines, start, end)
    location = "at the end of the file" if at_end else "in the file"
    return "\n".join([f"the old text is not {location}; the nearest lines are", *listing])


def _find_nearest(lines: Sequence[str], old: Sequence[str]) -> int | None:
    offsets: dict[str, list[int]] = {}
    for offset, line in enumerate(old):
        if line.strip():
            offsets.setdefault(line.strip(), []).append(offset)
    votes = Counter(
        i - offset for i, line in enumerate(lines) for offset in offsets.get(line.strip(), ())[:_MAX_NEAREST]
    )
    if votes:
        return max(0, votes.most_common(1)[0][0])
    # The line most similar to the longest one, within a bounded part of the file.
    offset, longest = max(enumerate(line.strip() for line in old), key=lambda pair: len(pair[1]))
    matcher = SequenceMatcher(b=longest[:_SIMILARITY_CHARS], autojunk=False)
    best, place, tries = _MIN_SIMILARITY, None, 0
    for i, line in enumerate(lines[:_SIMILARITY_LINES]):
        matcher.set_seq1(line.strip()[:_SIMILARITY_CHARS])
        if matcher.real_quick_ratio() <= best or matcher.quick_ratio() <= best:
            continue
        tries += 1
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, max(0, i - offset)
        if tries == _SIMILARITY_TRIES:
            break
    return place


_MAX_VERSIONS = 8  # versions of one file
_MAX_VERSION_BYTES = 32_000_000  # of all versions of all files
Lines = tuple[str, ...]
_NEIGHBOURS = [(0, 0), *(pair for n in range(1, 9) for pair in ((n, n), (n, 0), (0, n)))]
"""Lines before and after a block to include, by attempt."""


class Versions:
    """Versions of files shown or written, and the base that line numbers refer to.

    Reads move the base at once; writes when the step ends.
    """

    def __init__(self) -> None:
        self._versions: dict[str, OrderedDict[str, str | None]] = {}
        self._sizes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._base: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._lost: set[str] = set()

    def copy(self, only: str | None = None) -> Versions:
        """Copy for a trial, of one file or all."""
        twin = Versions()
        versions_by_path = {path: versions for path, versions in self._versions.items() if only in {None, path}}
        twin._versions = {path: versions.copy() for path, versions in versions_by_path.items()}
        twin._sizes = self._sizes.copy()
        twin._base, twin._written, twin._lost = self._base.copy(), self._written.copy(), self._lost.copy()
        return twin

    @property
    def stored_bytes(self) -> int:
        """Memory used by texts."""
        return sum(self._sizes.values())

    def begin_step(self) -> None:
        """Make the files as written the base."""
        self._base |= self._written
        self._written.clear()

    def record_read(self, path: str, version: str, text: str) -> None:
        """Record a version shown to the agent."""
        self._base[path] = version
        self._written.pop(path, None)
        self._lost.discard(path)
        self._store(path, version, text)

    def record_write(self, path: str, version: str, text: str) -> None:
        """Record a version written by the agent."""
        self._store(path, version, text)
        self._written[path] = version

    def mark_lost(self, path: str) -> None:
        """Mark a base as unavailable, after an unobserved change."""
        self._lost.add(path)

    def bases(self) -> dict[str, tuple[str, Lines]]:
        """Return base version and lines of the files written in this step."""
        versions = {path: self._base[path] for path in self._written if path in self._base}
        texts = {path: (version, self._versions[path][version]) for path, version in versions.items()}
        return {path: (tag, tuple(split_lines(text))) for path, (tag, text) in texts.items() if text is not None}

    def restore_base(self, path: str, version: str, lines: Lines) -> None:
        """Restore a base for a file written in this step."""
        base = self._base.get(path)
        if base is None:
            return
        self._written[path] = base
        self._base[path] = version
        self._store(path, version, "".join(f"{line}\n" for line in lines))

    def base_lines(self, path: str, version: str | None, now: tuple[str, Text] | None = None) -> Lines | None:
        """Return the lines that line numbers refer to, of `version` if named; None if unknown.

        Raises:
            ToolError: unknown `version`, or a change during a pause.
        """
        if path in self._lost:
            raise ToolError(
                f"{path!r} changed while the run was paused, so its line numbers are not known; read the file again",
                kind="ValueError",
            )
        versions = self._versions.get(path, OrderedDict())
        if version is not None and version not in versions:
            hint = f"; the versions shown are {', '.join(versions)}" if versions else ""
            raise ToolError(
                f"version={version!r}: read_file has not shown this version of {path!r}{hint}; read the file again",
                kind="ValueError",
            )
        base = version or self._base.get(path) or self._written.get(path)
        if base is None:
            return None
        if now is not None and base == now[0]:
            return now[1].lines
        text = versions[base]
        if text is None:
            raise ToolError(
                f"{path!r} has changed, and how it was at version {base} is forgotten: much was read since. Read the "
                "file again",
                kind="ValueError",
            )
        return tuple(split_lines(text))

    def _store(self, path: str, version: str, text: str) -> None:
        versions = self._versions.setdefault(path, OrderedDict())
        versions[version] = text
        versions.move_to_end(version)
        self._sizes[path, version] = text.__sizeof__()
        self._sizes.move_to_end((path, version))
        old = [tag for tag in versions if tag not in {version, self._base.get(path)}]
        for tag in old[: max(0, len(versions) - _MAX_VERSIONS)]:
            del versions[tag]
            self._sizes.pop((path, tag), None)
        while self.stored_bytes > _MAX_VERSION_BYTES and len(self._sizes) > 1:
            (path, version), _ = self._sizes.popitem(last=False)
            self._versions[path][version] = None


def rebase_edits(edits: Sequence[LineEdit], base: Lines, current: Lines) -> list[LineEdit] | None:
    """Move edits to the current lines; None if one is uncertain."""
    if base == current:
        return list(edits)
    placed: list[LineEdit] = []
    for edit in edits:
        first, last = edit.start, edit.end
        if last < first:
            first, last = max(1, last), min(len(base), first)
        shift = find_shift(base, current, first, last) if last else (0 if not base else None)
        if shift is None:
            return None
        placed.append(LineEdit(start=edit.start + shift, end=edit.end + shift, text=edit.text))
    return placed


def find_shift(old: Sequence[str], current: Sequence[str], start: int, end: int) -> int | None:
    """Return the shift of lines `start` to `end`; None unless they are outside the changes or unique."""
    if end <= engine.count_shared_lines(old, current):
        return 0
    shift = len(current) - len(old)
    if len(old) - start + 1 <= engine.count_shared_lines(old[::-1], current[::-1]):
        return shift
    for before, after in _NEIGHBOURS:
        first = max(0, start - 1 - before)
        block = tuple(old[first : min(len(old), end + after)])
        places = _find_all(current, block, [range(len(current))])
        if len(places) == 1 and len(_find_all(old, block, [range(len(old))])) == 1:
            return places[0] - first
    return None


_MAX_VIEW_CHARS = 40_000
_LINE_CHARS = 2_000


def number_lines(lines: Sequence[str], start: int, end: int, room: int = _MAX_VIEW_CHARS) -> tuple[list[str], int]:
    """Number lines up to a size; return them and the last number."""
    listing: list[str] = []
    for number in range(start, end + 1):
        line = lines[number - 1]
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… [+{len(line) - _LINE_CHARS} characters]"
        room -= len(cut) + len(str(number)) + 4
        if room < 0 and listing:
            return listing, number - 1
        listing.append(f"{number} | {cut}" if line else f"{number} |")
    return listing, end
