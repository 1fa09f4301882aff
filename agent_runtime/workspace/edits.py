"""Change a file's text as `write_file` asks, and show files by numbered lines. Pure.

`make` applies a call. Line numbers refer to the lines that the agent saw last, which `Seen` remembers; they are brought
up to date when the file has changed since (`rebase`). Old text is found by `find_block`, exactly or up to white space.
Nothing is changed where the place is not certain: the error then shows the lines as they are.
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
from agent_runtime.workspace.diffs import LineEdit, Opcode, Text, changed_spans, opcodes, shared_lines, split
from agent_runtime.workspace.syntax import outline

LINE_MODES = frozenset({"edit", "insert", "multi_edit"})
WHOLE_MODES = frozenset({"w", "a"})
_NEEDED: dict[str, frozenset[str]] = {
    "w": frozenset(),
    "a": frozenset(),
    "edit": frozenset({"start_line", "end_line"}),
    "insert": frozenset({"after_line"}),
    "multi_edit": frozenset({"edits"}),
    "replace": frozenset(),
    "patch": frozenset(),
}
"""Each mode, and the line arguments that it takes and needs."""
_AROUND = 3
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """One call of `write_file`.

    Attributes:
        path: as the call names it.
        mode: how the contents are to be used.
        lines: the arguments of that name which are not None: `start_line`, `end_line`, `after_line`, `edits`.
        contents: the payloads, as many as the mode takes.
        version: the version of the file that the call is about, if it says.
        force: whether what would be refused for its content is meant.
    """

    path: str
    mode: str
    lines: dict[str, object]
    contents: tuple[str, ...]
    version: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What comes of it.

    Attributes:
        raw: the file's new text.
        notes: what the model should know about how it came to be.
        edits: the edits by line that made it, as they were placed; none in other modes.
    """

    raw: str
    notes: list[str] = field(default_factory=list)
    edits: list[LineEdit] = field(default_factory=list)


class StaleError(ToolError):
    """Line numbers refer to lines that are no longer as they were seen; the text shows how they are now."""


def check_mode(mode: str) -> None:
    """Refuse a mode that does not exist.

    Raises:
        ToolError: there is no such mode.
    """
    if mode not in _NEEDED:
        raise ToolError(f"mode={mode!r}: must be one of {', '.join(map(repr, _NEEDED))}", kind="ValueError")


def contents_taken(mode: str, edits: int | None = None) -> int:
    """How many contents a write takes.

    Args:
        mode: of the call.
        edits: the number of its edits, for `multi_edit`.

    Raises:
        ValueError: there is no such mode, or its edits are not known.
    """
    if mode not in _NEEDED or (mode == "multi_edit" and edits is None):
        raise ValueError(f"mode {mode!r} with {edits} edits: no such write")
    return (edits or 0) if mode == "multi_edit" else 2 if mode == "replace" else 1


def check_arguments(mode: str, given: frozenset[str]) -> None:
    """Hold a call's line arguments against its mode.

    Raises:
        ToolError: one is missing, or one has no meaning in this mode.
    """
    if missing := _NEEDED[mode] - given:
        raise ToolError(f"mode={mode!r} needs {' and '.join(sorted(missing, reverse=True))}", kind="ValueError")
    if extra := given - _NEEDED[mode]:
        name = min(extra)
        fitting = next(each for each, needed in _NEEDED.items() if name in needed)
        raise ToolError(f"mode={mode!r} takes no {name}; for that use mode={fitting!r}", kind="ValueError")


def make(change: WriteCall, text: Text, base: Lines | None) -> Changed:
    """Apply a change of any mode but `w` and `patch` to a text.

    Args:
        change: the call.
        text: the file as it is.
        base: the lines that the call's line numbers refer to, or None when the agent never saw the file: they are then
            taken for the file as it is.

    Raises:
        StaleError: the addressed lines have changed since.
        ToolError: a range is not within the file, edits overlap, or old text is not found.
    """
    if change.mode == "a":
        return Changed(raw=engine.append(text, change.contents[0]))
    if change.mode == "replace":
        old, new = (engine.lines_of(content) for content in change.contents)
        match = find_block(text.lines, old, new)
        notes = [] if match.rung == "exact" else [f"Not an exact match: {match.rung} differed."]
        return Changed(raw=engine.apply(text, match.edits), notes=notes)
    lines, contents, count = change.lines, change.contents, len(text.lines if base is None else base)
    if change.mode == "insert":
        edits = [engine.insertion(lines["after_line"], contents[0], count)]
    elif change.mode == "edit":
        start, end = lines["start_line"], lines["end_line"]
        edits = [engine.replacement(f"start_line={start}, end_line={end}", start, end, contents[0], count)]
    else:
        edits = [
            engine.replacement(f"edits[{i}]=({start}, {end})", start, end, content, count)
            for i, ((start, end), content) in enumerate(zip(pairs(lines["edits"]), contents, strict=True))
        ]
    placed = edits if base is None else rebased(edits, base, text.lines)
    if placed is None:
        head = f"{change.path!r} changed since you read it, and so did lines you address; nothing was written."
        first, last = min(edit.start for edit in edits), max(edit.end for edit in edits)
        raise StaleError(with_lines(head, text.lines, first, last), kind="ValueError")
    moves = [
        f"your {_name(edit)} now {'is' if new.end <= new.start else 'are'} {_name(new)}"
        for edit, new in zip(edits, placed, strict=True)
        if edit != new
    ]
    notes = [f"The file changed since you read it: {', '.join(moves)}."] if moves else []
    return Changed(raw=engine.apply(text, placed), notes=notes, edits=placed)


def _name(edit: LineEdit) -> str:
    if edit.end < edit.start:
        return f"place after line {edit.end}"
    return f"line {edit.start}" if edit.end == edit.start else f"lines {edit.start}-{edit.end}"


def with_lines(head: str, lines: Lines, first: int, last: int) -> str:
    """Add to an error text how a file stands now, around some lines."""
    first = max(1, first - _AROUND)
    last = min(len(lines), last + _AROUND, first + _SHOWN - 1)
    shown, _ = listed(lines, first, last) if first <= last else ([], 0)
    return "\n".join([f"{head} It has {len(lines)} lines{'; now:' if shown else '.'}", *shown])


def pairs(edits: object) -> list[tuple[object, object]]:
    """The ranges of a `multi_edit`, as pairs.

    Raises:
        ToolError: it is no list of pairs, or an empty one.
    """
    if not isinstance(edits, list | tuple) or not edits:
        raise ToolError("edits must be a list of (start_line, end_line) pairs, at least one", kind="ValueError")
    found: list[tuple[object, object]] = []
    for i, pair in enumerate(edits):
        match pair:
            case (start, end):
                found.append((start, end))
            case _:
                raise ToolError(f"edits[{i}]={pair!r}: must be a pair (start_line, end_line)", kind="ValueError")
    return found


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
_LONGEST = 500  # characters; such a comment is short
_LEFT_OUT = re.compile(
    rf"^{_DOTS}\s*\(?{_WHICH}\b.*$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*\b{_STAYS}\)?\s*{_DOTS}?\.?$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*{_DOTS}$"
    rf"|^{_DOTS}\s*\(?(?:{_WHAT}\s+)?(?:unchanged|same\s+as\s+(?:before|above))\)?\s*{_DOTS}?$",
    re.IGNORECASE,
)


def check_placeholders(path: str, lines: Iterable[str], text: Text | None) -> None:
    """Keep comments that stand for left-out code out of the file.

    Args:
        path: the file, for the error text.
        lines: what is to be written.
        text: the file as it is.

    Raises:
        ToolError: a line is such a comment that the file did not have before.
    """
    if found := placeholder_in(lines, text.lines if text else ()):
        raise ToolError(
            f"{path!r} not written: line {found[0]} of the content, {found[1]!r}, stands for code that was left out, "
            "and the file would lose that code. Write it out, or change only some lines (mode='edit', 'replace' or "
            "'patch'). If the comment is meant, repeat with force=True",
            kind="ValueError",
        )


def placeholder_in(lines: Iterable[str], known: Sequence[str]) -> tuple[int, str] | None:
    """The first comment line that stands for left-out code, with its number from 1; None when there is none.

    Args:
        lines: what is to be written.
        known: lines of the file as it is: a comment that stood there already is no placeholder of this edit.
    """
    there: set[str] | None = None
    for number, line in enumerate(lines, 1):
        # Without runs of spaces, over which the expressions would backtrack.
        comment = _COMMENT.match(" ".join(line[:_LONGEST].split()))
        if comment and _LEFT_OUT.match(comment["text"]):
            there = {each.strip() for each in known} if there is None else there
            if line.strip() not in there:
                return number, line.strip()
    return None


Rung = Literal["exact", "trailing whitespace", "indentation", "Unicode punctuation"]
_TWINS = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2015": "-", "\u2212": "-",
        "\u2026": "...", "\u00a0": " ", "\u2002": " ", "\u2003": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ",
    }
)  # fmt: skip
_NEAREST_LINES = 12
_NEAREST_CONTEXT = 2
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

    Whole lines are compared. The first of the `RUNGS` that finds the text decides, and it must be found once there;
    text that is merely similar is never replaced.

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
            places = _places([*map(key, lines)], [*map(key, old)], region)
            if at_end:
                places = [place for place in places if place + len(old) == len(lines)]
            found = _fitting(what, lines, old, new, places) if rung != "exact" else [(each, new) for each in places]
            if len(found) > 1:
                numbers = ", ".join(str(place + 1) for place, _ in found[:_NEAREST_LINES])
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


def _punctuation(line: str) -> str:
    return (line if line.isascii() else line.translate(_TWINS)).strip()


RUNGS: tuple[tuple[Rung, Callable[[str], str]], ...] = (
    ("exact", str),
    ("trailing whitespace", str.rstrip),
    ("indentation", str.strip),
    ("Unicode punctuation", _punctuation),
)


def _places(lines: Sequence[str], block: Sequence[str], region: Sequence[range]) -> list[int]:
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
        numbers = ", ".join(str(place + 1) for place in places[:_NEAREST_LINES])
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
    start, end = (
        max(1, near + 1 - _NEAREST_CONTEXT),
        min(len(lines), near + min(len(old), _NEAREST_LINES) + _NEAREST_CONTEXT),
    )
    shown, _ = listed(lines, start, end)
    where = "at the end of the file" if at_end else "in the file"
    return "\n".join([f"the old text is not {where}; the nearest lines are", *shown])


def _nearest(lines: Sequence[str], old: Sequence[str]) -> int | None:
    """Where most lines of the old text stand in order; else a line like its longest one. For the error text only."""
    where: dict[str, list[int]] = {}
    for offset, line in enumerate(old):
        if line.strip():
            where.setdefault(line.strip(), []).append(offset)
    votes = Counter(
        i - offset for i, line in enumerate(lines) for offset in where.get(line.strip(), ())[:_NEAREST_LINES]
    )
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


_KEPT = 8  # versions of one file
_KEPT_BYTES = 32_000_000  # of all versions of all files
Lines = tuple[str, ...]
_NEIGHBOURS = [(0, 0), *(pair for n in range(1, 9) for pair in ((n, n), (n, 0), (0, n)))]
"""How many lines before and after a block are taken with it, one try after the other."""


class Seen:
    """The versions of files that were shown or written, and which of them line numbers refer to.

    A reply's line numbers come from what its author had read, so writes of the same step do not move the base until
    the step is over; a read does at once, because code may compute line numbers from its value.

    Versions are kept as texts, not as lines, which would take up to thirty times the room; of very many large files the
    ones that were used last.
    """

    def __init__(self) -> None:
        self._versions: dict[str, OrderedDict[str, str | None]] = {}
        self._sizes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._base: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._lost: set[str] = set()

    def copy(self, only: str | None = None) -> Seen:
        """The same knowledge, to try something out on.

        Args:
            only: the one file of which it is wanted; None for all.
        """
        twin = Seen()
        chosen = {path: versions for path, versions in self._versions.items() if only in {None, path}}
        twin._versions = {path: versions.copy() for path, versions in chosen.items()}
        twin._sizes = self._sizes.copy()
        twin._base, twin._written, twin._lost = self._base.copy(), self._written.copy(), self._lost.copy()
        return twin

    @property
    def kept_bytes(self) -> int:
        """How much room the texts take."""
        return sum(self._sizes.values())

    def begin_step(self) -> None:
        """From here on, line numbers refer to the files as the last step left them."""
        self._base |= self._written
        self._written.clear()

    def read(self, path: str, version: str, text: str) -> None:
        """The agent was shown this version.

        Args:
            path: the file.
            version: its tag.
            text: `Text.plain`.
        """
        self._base[path] = version
        self._written.pop(path, None)
        self._lost.discard(path)
        self._keep(path, version, text)

    def wrote(self, path: str, version: str, text: str) -> None:
        """The agent made this version out of one that it knew in part."""
        self._keep(path, version, text)
        self._written[path] = version

    def lose(self, path: str) -> None:
        """The version that line numbers refer to is no longer available: it changed while nobody looked."""
        self._lost.add(path)

    def bases(self) -> dict[str, tuple[str, Lines]]:
        """Of the files written in this step: the version that line numbers refer to until it is over, and its lines."""
        known = {path: self._base[path] for path in self._written if path in self._base}
        texts = {path: (version, self._versions[path][version]) for path, version in known.items()}
        return {path: (version, tuple(split(text))) for path, (version, text) in texts.items() if text is not None}

    def put_back(self, path: str, version: str, lines: Lines) -> None:
        """A file that stands as it was read just now was written in this step; line numbers refer to this version."""
        now = self._base.get(path)
        if now is None:
            return
        self._written[path] = now
        self._base[path] = version
        self._keep(path, version, "".join(f"{line}\n" for line in lines))

    def base(self, path: str, version: str | None, now: tuple[str, Text] | None = None) -> Lines | None:
        """The lines that line numbers refer to: of `version` if given, else of what was last known; None if nothing.

        Args:
            path: the file.
            version: the version that the call names, if it does.
            now: the version and the text of the file as it is.

        Raises:
            ToolError: `version` was never shown, or the file changed while a run was paused.
        """
        if path in self._lost:
            raise ToolError(
                f"{path!r} changed while the run was paused, so its line numbers are not known; read the file again",
                kind="ValueError",
            )
        known = self._versions.get(path, OrderedDict())
        if version is not None and version not in known:
            shown = f"; the versions shown are {', '.join(known)}" if known else ""
            raise ToolError(
                f"version={version!r}: read_file has not shown this version of {path!r}{shown}; read the file again",
                kind="ValueError",
            )
        base = version or self._base.get(path) or self._written.get(path)
        if base is None:
            return None
        if now is not None and base == now[0]:
            return now[1].lines
        text = known[base]
        if text is None:
            raise ToolError(
                f"{path!r} has changed, and how it was at version {base} is forgotten: much was read since. Read the "
                "file again",
                kind="ValueError",
            )
        return tuple(split(text))

    def _keep(self, path: str, version: str, text: str) -> None:
        known = self._versions.setdefault(path, OrderedDict())
        known[version] = text
        known.move_to_end(version)
        self._sizes[path, version] = text.__sizeof__()
        self._sizes.move_to_end((path, version))
        old = [tag for tag in known if tag not in {version, self._base.get(path)}]
        for tag in old[: max(0, len(known) - _KEPT)]:
            del known[tag]
            self._sizes.pop((path, tag), None)
        while self.kept_bytes > _KEPT_BYTES and len(self._sizes) > 1:
            (path, version), _ = self._sizes.popitem(last=False)
            self._versions[path][version] = None


def rebased(edits: Sequence[LineEdit], base: Lines, now: Lines) -> list[LineEdit] | None:
    """The same edits on the lines as they stand now; None when one of them cannot be placed with certainty.

    An insertion is placed by the two lines that it parts.
    """
    if base == now:
        return list(edits)
    placed: list[LineEdit] = []
    for edit in edits:
        first, last = edit.start, edit.end
        if last < first:
            first, last = max(1, last), min(len(base), first)
        moved = rebase(base, now, first, last) if last else (0 if not base else None)
        if moved is None:
            return None
        placed.append(LineEdit(start=edit.start + moved, end=edit.end + moved, text=edit.text))
    return placed


def rebase(seen: Sequence[str], now: Sequence[str], start: int, end: int) -> int | None:
    """By how many lines the block `start`..`end` (from 1, inclusive) moved between two versions of a file.

    None when that is not certain: the block must lie in the part before or behind everything that changed, or it must,
    alone or with some of its neighbours, stand exactly once in either version.
    """
    if end <= shared_lines(seen, now):
        return 0
    moved = len(now) - len(seen)
    if len(seen) - start + 1 <= shared_lines(seen[::-1], now[::-1]):
        return moved
    for before, after in _NEIGHBOURS:
        first = max(0, start - 1 - before)
        block = tuple(seen[first : min(len(seen), end + after)])
        places = _places(now, block, [range(len(now))])
        if len(places) == 1 and len(_places(seen, block, [range(len(seen))])) == 1:
            return places[0] - first
    return None


DEFAULT_LINES = 200
_SLACK = 50  # a file this much longer than the default view is shown whole rather than cut near its end
_MOST_CHARS = 40_000
_LINE_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Some lines of a file, ready to be shown.

    Attributes:
        last: the last line shown.
        body: numbered lines, and what is said of the rest.
    """

    last: int
    body: str


def view(
    path: str, text: Text, start: int, end: int | None, outlined: Callable[[str, str, int], list[str]] = outline
) -> View:
    """Show the lines `start` to `end`; without an end about `DEFAULT_LINES`, with an outline of what follows.

    The caller has checked that `1 <= start`, and that `start` and `end` are lines of the file; `outlined` is
    `outline`, or the same for large files.
    """
    wanted = end if end is not None else start + DEFAULT_LINES - 1
    if end is None and text.count - wanted <= _SLACK:
        wanted = text.count
    listing, last = listed(text.first(wanted), start, wanted)
    notes: list[str] = []
    if last < wanted:
        notes.append(f"[cut after {_MOST_CHARS:,} characters: read_file({path!r}, start_line={last + 1}) goes on]")
    elif end is None and last < text.count:
        notes.append(f"[{text.count - last} more lines: read_file({path!r}, start_line={last + 1}) goes on]")
        rest = outlined(path, text.raw, last)
        notes += ["Outline of the rest:", *rest] if rest else []
    return View(last=last, body="\n".join([*listing, *notes]))


def listed(lines: Sequence[str], start: int, end: int) -> tuple[list[str], int]:
    """Number the lines `start` to `end`, as many as fit, at least one; and the number of the last."""
    width = len(str(end))
    shown: list[str] = []
    room = _MOST_CHARS
    for number in range(start, end + 1):
        line = lines[number - 1]
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… [+{len(line) - _LINE_CHARS} characters]"
        room -= len(cut) + width + 4
        if room < 0 and shown:
            return shown, number - 1
        shown.append(f"{number:>{width}} | {cut}" if line else f"{number:>{width}} |")
    return shown, end
