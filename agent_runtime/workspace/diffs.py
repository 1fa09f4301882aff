"""Texts as lines: decode a file, apply edits by line, and compare two versions. Pure.

`Text` keeps everything about a file's bytes that an edit does not touch: encoding, byte order mark, line endings.
`diff` shows a change to the model in a few lines, `unified` to people. All comparisons take bounded time, whatever the
texts hold (`opcodes`).
"""

from __future__ import annotations

import codecs
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from typing import TypeGuard

from agent_runtime.core.errors import ToolError

_BOMS = (  # the longer ones first: UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFFED = 8000  # bytes that git, too, looks at for a NUL
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MAX_CONTROL_SHARE = 0.1


@dataclass(frozen=True)
class Text:
    """A text file, its line endings as they are.

    Attributes:
        raw: the text without a byte order mark.
        encoding: Python's name of its encoding.
        bom: the byte order mark, or nothing.
    """

    raw: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their endings, numbered as ripgrep and git number them: only a newline ends one."""
        lines = split(self.raw)
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def count(self) -> int:
        """How many lines there are."""
        return self.raw.count("\n") + (not self.ends_with_newline)

    def first(self, count: int) -> tuple[str, ...]:
        """The first lines; of a large file this takes much less room than all of them."""
        if "lines" in self.__dict__ or count >= self.count:
            return self.lines[:count]
        lines = self.raw.split("\n", count)[:count]
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def newline(self) -> str:
        """The line ending that most lines have."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if crlf and crlf * 2 > self.raw.count("\n") else "\n"

    @cached_property
    def plain(self) -> str:
        """The text with newlines only, whose `split` gives the lines; takes a thirtieth of their room."""
        return self.raw if self.newline == "\n" else self.raw.replace("\r\n", "\n").removesuffix("\r")

    @property
    def ends_with_newline(self) -> bool:
        """Whether the last line is terminated; an empty text counts as if it were."""
        return not self.raw or self.raw.endswith("\n")

    def encode(self, raw: str) -> bytes:
        """The bytes of a new text in the same encoding, mark included.

        Raises:
            ToolError: the encoding has no such character.
        """
        try:
            return self.bom + raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = raw[error.start]
            raise ToolError(
                f"the file is {self.encoding} and cannot hold {bad!r} (U+{ord(bad):04X}); use other characters, or "
                "write the whole file with mode='w', which makes it UTF-8",
                kind="ValueError",
            ) from error

    @property
    def peculiarities(self) -> str:
        """What is unusual about the bytes, for a header; empty for plain UTF-8 with newlines."""
        notes = [] if self.encoding == "utf-8" else [self.encoding]
        if self.bom and self.encoding == "utf-8":
            notes.append("UTF-8 with byte order mark")
        if self.newline == "\r\n":
            notes.append("CRLF line endings")
        if not self.ends_with_newline:
            notes.append("no newline at the end")
        return ", ".join(notes)


def version_of(data: bytes) -> str:
    """A short tag of a file's content: 8 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:8]


def decode(data: bytes) -> Text | None:
    """Read a file's bytes as text: UTF-8, UTF-16 and UTF-32 with their marks, else Latin-1. None when it is binary."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return Text(data[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                continue
    if b"\0" in data[:_SNIFFED]:
        return None
    try:
        return Text(data.decode("utf-8"))
    except UnicodeDecodeError:
        sample = data[:_SNIFFED]
        controls = sum(1 for byte in sample if (byte < 0x20 and byte not in _TEXT_CONTROLS) or 0x7F <= byte < 0xA0)  # noqa: PLR2004 - the C0 and C1 ranges
        too_many = controls > len(sample) * _MAX_CONTROL_SHARE
        return None if too_many else Text(data.decode("latin-1"), "latin-1")


def split(raw: str) -> list[str]:
    """Cut into lines at newlines only; a last newline ends the last line and begins none."""
    lines = raw.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def lines_of(payload: str) -> list[str]:
    """A payload's lines, whatever its line endings."""
    return split(payload.replace("\r\n", "\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """Put `text` in place of the lines `start` to `end`.

    Attributes:
        start: first line replaced, from 1.
        end: last line replaced; `start - 1` replaces nothing and inserts before `start`.
        text: the new lines; empty to delete.
    """

    start: int
    end: int
    text: str


def replacement(name: str, start: object, end: object, text: str, count: int) -> LineEdit:
    """An edit of existing lines, checked.

    Args:
        name: how the caller wrote the range, for the error text.
        start: first line.
        end: last line.
        text: the new lines.
        count: lines of the file.

    Raises:
        ToolError: the range is not within the file.
    """
    if not is_whole(start) or not is_whole(end):
        raise ToolError(f"{name}: line numbers must be whole numbers", kind="TypeError")
    if not 1 <= start <= end <= count:
        least = f"it must hold 1 <= start <= end <= {count}" if count else "use mode='w' or mode='a'"
        raise ToolError(f"{name}: out of range; the file has {count} lines, {least}", kind="ValueError")
    return LineEdit(start=start, end=end, text=text)


def insertion(after: object, text: str, count: int) -> LineEdit:
    """An insertion after a line, 0 for the top, checked.

    Raises:
        ToolError: there is no such line.
    """
    if not is_whole(after):
        raise ToolError("after_line must be a whole number", kind="TypeError")
    if not 0 <= after <= count:
        raise ToolError(f"after_line={after}: must be 0 (the top) to {count} (the last line)", kind="ValueError")
    return LineEdit(start=after + 1, end=after, text=text)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value can be a line number's type."""
    return isinstance(value, int) and not isinstance(value, bool)


def apply(text: Text, edits: Sequence[LineEdit]) -> str:
    """Make all edits, or none.

    Line numbers are those of `text`, in every edit. Lines that no edit touches keep every byte; new lines get the
    file's line ending, and the file ends with or without a newline as before.

    Raises:
        ToolError: two edits touch the same lines.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for before, after in pairwise(ordered):
        if after.start <= before.end:
            raise ToolError(
                f"edits overlap: lines {before.start}-{before.end} and {after.start}-{after.end}; "
                "give every line to one edit only",
                kind="ValueError",
            )
    carriage = text.newline.removesuffix("\n")
    pieces = list(text.lines) if text.newline == "\n" else split(text.raw)
    if pieces and not text.ends_with_newline:
        pieces[-1] += carriage
    for edit in reversed(ordered):
        pieces[edit.start - 1 : edit.end] = [line + carriage for line in lines_of(edit.text)]
    if not pieces:
        return ""
    if text.ends_with_newline:
        return "\n".join(pieces) + "\n"
    pieces[-1] = pieces[-1].removesuffix(carriage)
    return "\n".join(pieces)


def append(text: Text, payload: str) -> str:
    """Add lines at the end; a last line without a newline gets one first, so that no two lines are joined.

    The end is then the payload's own: with or without a newline as it was written.
    """
    added = payload.replace("\r\n", "\n").replace("\n", text.newline)
    joint = "" if text.ends_with_newline or not added else text.newline
    return text.raw + joint + added


_CONTEXT = 3
_RUN = 12  # lines of one addition or removal that are shown
_RUN_BESIDE_SENT = 4  # of a removal where the author of the addition needs only to see that the place is right
_LINES = 40
_RANGES = 40
_WIDTH = 200


def diff(
    before: Sequence[str],
    after: Sequence[str],
    *,
    sent: Sequence[LineEdit] = (),
    within: Sequence[tuple[int, int]] | None = None,
) -> str:
    """A short diff, empty when nothing changed.

    Removed lines carry their old numbers and `-`, added and unchanged ones their new numbers, with `+` or nothing.

    Args:
        before: the old lines.
        after: the new lines.
        sent: the edits that made one of the other, where the reader has just sent them: of the lines that they bring
            only the numbers are shown.
        within: ranges of old lines, from 1; changes elsewhere are left out. None for all changes.
    """
    head, old_end, new_end = outer_span(before, after)
    old, new = before[head:old_end], after[head:new_end]
    if not old and not new:
        return ""
    if not sent and len(old) + len(new) > _COMPARED:
        return f"(lines {head + 1}-{head + len(old)} replaced by {len(new)} lines; too much to compare)"
    end = ("equal", old_end, len(before), new_end, len(after))
    changes = _sent(before, sent, len(after)) if sent else [("equal", 0, head, 0, head), *_changes(old, new, head), end]
    groups = _groups(changes)
    width = len(str(max(len(before), len(after))))
    shown: list[str] = []
    for group in groups:
        spans = [(a, max(b, a + 1)) for tag, a, b, _, _ in group if tag != "equal"]
        if within is not None and not any(a < last and first <= b for a, b in spans for first, last in within):
            continue
        shown += ["…"] if shown else []
        for tag, a, b, c, d in group:
            if tag == "equal":
                shown += [numbered(i + 1, after[i], width) for i in range(c, d)]
                continue
            shown += _run(before, a, b, width, "-", most=_RUN_BESIDE_SENT if sent else _RUN)
            if not sent:
                shown += _run(after, c, d, width, "+")
            elif c < d:
                shown.append(f"{c + 1:>{width}} + … {d - c} line{'s' if d - c > 1 else ''} as sent, to {d}")
    rest = len(shown) - _LINES
    return "\n".join(shown if rest <= 1 else [*shown[:_LINES], f"… {rest} more lines of diff"])


def numbered(number: int, line: str, width: int, mark: str = " ") -> str:
    """One line of a listing."""
    cut = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}… [+{len(line) - _WIDTH} characters]"
    return f"{number:>{width}} {mark} {cut}" if line else f"{number:>{width}} {mark}".rstrip()


def counted(before: Sequence[str], after: Sequence[str]) -> str:
    """How many lines were added and removed, and where; empty when none was."""
    spans = changed_spans(before, after)
    if not spans:
        return ""
    added, removed = sum(d - c for _, _, c, d in spans), sum(b - a for a, b, _, _ in spans)
    places = ranges(spans)
    more = [f"{len(places) - _RANGES} more places"] if len(places) > _RANGES else []
    return f"Changed lines: {', '.join([*places[:_RANGES], *more])} (+{added} -{removed})."


def ranges(spans: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Changed lines by their new numbers; where lines only went, the line that they stood behind."""
    return [
        (f"{c + 1}-{d}" if d > c + 1 else str(d)) if d > c else f"after {c} ({b - a} removed)" for a, b, c, d in spans
    ]


def _groups(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their context; a gap of unchanged lines longer than two contexts parts two groups."""
    group: list[Opcode] = []
    for index, (tag, a, b, c, d) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        first, last = index == 0, index == len(opcodes) - 1
        if not first and not last and b - a <= 2 * _CONTEXT:
            group.append((tag, a, b, c, d))
            continue
        if not first:
            group.append((tag, a, min(b, a + _CONTEXT), c, min(d, c + _CONTEXT)))
            yield group
        group = [(tag, max(a, b - _CONTEXT), b, max(c, d - _CONTEXT), d)]


def _sent(before: Sequence[str], edits: Sequence[LineEdit], count: int) -> list[Opcode]:
    """The opcodes of some edits, without the lines at their ends that stay as they were.

    Args:
        before: the old lines.
        edits: of them, none on top of another.
        count: of the new lines.
    """
    codes: list[Opcode] = []
    at = to = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        old, new = before[edit.start - 1 : edit.end], lines_of(edit.text)
        head, old_end, new_end = outer_span(old, new)
        a, b = edit.start - 1 + head, edit.start - 1 + old_end
        c, d = to + a - at, to + a - at + new_end - head
        if a < b or c < d:
            codes += [("equal", at, a, to, c), ("replace", a, b, c, d)]
            at, to = b, d
    return [*codes, ("equal", at, len(before), to, count)]


def _run(lines: Sequence[str], start: int, stop: int, width: int, mark: str, *, most: int = _RUN) -> Iterator[str]:
    if stop - start <= most + 1:
        yield from (numbered(i + 1, lines[i], width, mark) for i in range(start, stop))
        return
    half = most // 2
    yield from (numbered(i + 1, lines[i], width, mark) for i in range(start, start + half))
    yield f"{'':>{width}} {mark} … {stop - start - 2 * half} more lines"
    yield from (numbered(i + 1, lines[i], width, mark) for i in range(stop - half, stop))


def unified(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The hunks that make one text of another, three lines of context each; none when nothing changed.

    Args:
        before: lines; one that keeps its line ending has one that the others have not.
        after: the same of the new text.
    """
    hunks: list[str] = []
    groups: list[list[_Span]] = []
    for span in changed_spans(before, after):  # changes whose contexts touch, together
        if groups and span[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(span)
        else:
            groups.append([span])
    for group in groups:
        (first, _, new_first, _), (_, last, _, new_last) = group[0], group[-1]
        lead, trail = min(_CONTEXT, first), min(_CONTEXT, len(before) - last)
        old = _range(first - lead, last + trail)
        hunks.append(f"@@ -{old} +{_range(new_first - lead, new_last + trail)} @@")
        at = first - lead
        for a, b, c, d in group:
            hunks += [f" {line}" for line in before[at:a]]
            hunks += [f"-{line}" for line in before[a:b]]
            hunks += [f"+{line}" for line in after[c:d]]
            at = b
        hunks += [f" {line}" for line in before[at : last + trail]]
    return hunks


_Span = tuple[int, int, int, int]


def unified_text(before: Sequence[str], after: Sequence[str], most: int) -> str:
    """The same as one text, of which the middle is left out beyond `most` characters."""
    text = "\n".join(unified(before, after)) or "(only line endings or the last newline changed)"
    half = most // 2
    cut = f"{text[:half]}\n... [{len(text) - 2 * half} characters truncated] ...\n{text[-half:]}"
    return text if len(text) <= most else cut


def _range(start: int, end: int) -> str:
    """A range as diffs write it: the first line, from 1, and how many; an empty one names the line before it."""
    return f"{start + (end > start)},{end - start}"


_STRETCH = 256
_COMPARED = 20_000  # lines on both sides together
_EFFORT = 2_000_000  # comparisons; difflib's worst case grows with the cube
Opcode = tuple[str, int, int, int, int]


def changed_spans(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Where two versions differ: `before[a:b]` became `after[c:d]`, as `(a, b, c, d)`, in order.

    Versions with very much between their first and their last difference are taken to differ in all of that.
    """
    head, old_end, new_end = outer_span(before, after)
    old, new = before[head:old_end], after[head:new_end]
    if len(old) + len(new) > _COMPARED:
        return [(head, head + len(old), head, head + len(new))]
    return [(a, b, c, d) for tag, a, b, c, d in _changes(old, new, head) if tag != "equal"]


def outer_span(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """The part that all differences lie in: `before[first:old_end]` became `after[first:new_end]`."""
    first = shared_lines(before, after)
    tail = shared_lines(before[first:][::-1], after[first:][::-1])
    return first, len(before) - tail, len(after) - tail


def shared_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the lines that two texts share at the beginning; whole stretches are compared at once."""
    size = min(len(one), len(other))
    start = 0
    while start < size and one[start : start + _STRETCH] == other[start : start + _STRETCH]:
        start += _STRETCH
    stop = min(size, start + _STRETCH)
    return next((i for i in range(start, stop) if one[i] != other[i]), min(size, stop))


def opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """The opcodes of difflib, in bounded time.

    What difflib would take too long for is parted at lines that stand once on either side, and only the parts are
    compared closely; one that has no such line and is still too long is taken to differ as a whole.
    """
    found: list[Opcode] = []
    a = c = 0
    for at, to, size in [*_equal(old, new), (len(old), len(new), 0)]:
        if a < at or c < to:
            found.append(("replace" if a < at and c < to else "delete" if a < at else "insert", a, at, c, to))
        if size:
            # Two stretches that touch are one.
            _, first, _, there, _ = found.pop() if found and found[-1][0] == "equal" else ("", at, at, to, to)
            found.append(("equal", first, at + size, there, to + size))
        a, c = at + size, to + size
    return found


def _equal(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Stretches that are equal: where they begin on either side, and how long they are."""
    room = _EFFORT
    anchors = _anchors(old, new) if _effort(len(old), len(new)) > room else []
    a = c = 0
    for at, to in [*anchors, (len(old), len(new))]:
        effort = _effort(at - a, to - c)
        if effort <= room:
            room -= effort
            for match in SequenceMatcher(None, old[a:at], new[c:to]).get_matching_blocks()[:-1]:
                yield a + match.a, c + match.b, match.size
        if at < len(old):
            yield at, to, 1
        a, c = at + 1, to + 1


def _effort(old: int, new: int) -> int:
    """How many comparisons difflib may need."""
    return old * new * min(old, new)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that stand once on either side, as many as there are in the same order on both."""
    once = _once(old)
    there = _once(new)
    pairs = [(at, there[line]) for line, at in once.items() if line in there]
    # The longest increasing run of the second numbers: patience sorting, with a link from each to the one before it.
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, to) in enumerate(pairs):
        pile = bisect_left(tops, to)
        before.append(ends[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [to]
        ends[pile : pile + 1] = [number]
    chosen: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _once(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: at for at, line in enumerate(lines) if counts[line] == 1}


def _changes(old: Sequence[str], new: Sequence[str], head: int) -> list[Opcode]:
    return [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in opcodes(old, new)]
